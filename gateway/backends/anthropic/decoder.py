"""Decode messages, streamed or whole, as Anthropic and servers like it send them: payload in, raw events out.

A whole message is read as the stream of its blocks.  For a client that speaks the same API, the members that events
lack go beside them, so that it gets each block unchanged (events.py: NATIVE_BLOCK, NATIVE_END, NATIVE_USAGE).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from msgspec import DecodeError, Raw, json

from gateway.backends.anthropic.wire import (
    MessageCounts,
    WireBlock,
    WireDelta,
    WireEvent,
    redacted_thinking,
    thinking_signature,
)
from gateway.backends.openai.decoder import ChatDecoder
from gateway.backends.openai.error_mapping import problem_from_error_object
from gateway.backends.openai.payload_values import read_mended
from gateway.backends.openai.repeat_decoder import FrameDelimiters
from gateway.backends.openai.usage import count_value
from gateway.errors import Problem
from gateway.events import (
    NATIVE_BLOCK,
    NATIVE_END,
    NATIVE_USAGE,
    Annotation,
    Event,
    ExtraField,
    Failure,
    Finish,
    Media,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallStart,
)

_decode = json.Decoder(WireEvent).decode
_decode_block = json.Decoder(WireBlock).decode
_decode_object = json.Decoder(dict[str, Any]).decode
_KNOWN = ("text", "thinking", "redacted_thinking", "tool_use")  # types of blocks that have events
_READ = frozenset(WireBlock.__struct_fields__)
_NO_MESSAGE = Problem(502, "The backend's response is not a message of Anthropic's API.", "upstream_error")
_EMPTY = (b"", b"{}", b"null")


class DeltaFrames:
    """The delimiters of a delta in a stream: each event has its name on a line of its own."""

    opening: ClassVar[bytes] = b"event: content_block_delta\ndata: "
    ending: ClassVar[bytes] = b"\n\n"


_FRAMES = DeltaFrames()


@dataclass(slots=True, eq=False)
class OpenBlock:
    """A block that has begun.

    signature: the pieces of its signature; has_input: some arguments came.
    members: those of a block without events of its own; inputs: the pieces of its input.
    """

    type: str
    signature: list[str] = field(default_factory=list)
    has_input: bool = False
    members: dict[str, Any] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class MessageDecoder(ChatDecoder):
    """Decode the payloads of one message to raw events.

    native: the client speaks the same API.
    """

    native: bool = False
    _blocks: dict[int, OpenBlock] = field(default_factory=dict)  # by index
    _counts: MessageCounts = field(default_factory=MessageCounts)
    _stated: dict[str, Any] = field(default_factory=dict)  # the members of the usage so far

    payload_name: ClassVar[str] = "message"
    no_choice_problem: ClassVar[Problem] = _NO_MESSAGE

    @property
    def estimates_reasoning(self) -> bool:
        """Return False if the client gets the usage as the backend states it."""
        return not self.native

    def run(self, data: bytes, at: int, around: FrameDelimiters) -> tuple[list[Event], int]:
        """Decode deltas from `at` on that differ from a known one only in their text, see ChatDecoder."""
        return self._repeats.run(data, at, _FRAMES, self._decode_alone)

    def _remember(self, known: Sequence[Event]) -> None:
        """Keep no text, as a signature covers its own block."""

    def _decode_alone(self, payload: bytes) -> list[Event]:
        """Decode a delta by itself, without a change of state."""
        try:
            event = _decode(payload)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return []
        made = self._delta_event(count_value(event.index), event.delta) if event.delta else None
        return [made] if made else []

    def _decoded(self, payload: bytes) -> list[Event]:
        event = self._read(payload, _decode)
        if isinstance(event, Failure):
            return [event]
        if event.error:
            return [Failure(problem_from_error_object(event.error))]
        arm = self._arms.get(event.type)
        try:
            return arm(self, event, payload) if arm else []
        except (DecodeError, RecursionError) as problem:  # of a block, which is decoded apart
            return [
                Failure(Problem(502, f"The backend sent an invalid {self.payload_name}: {problem}.", "upstream_error"))
            ]

    # events of a stream

    def _start(self, event: WireEvent, _: bytes) -> list[Event]:
        self._met.add(0)
        message = event.message if isinstance(event.message, dict) else {}
        return self._count_usage(message.get("usage"))

    def _block_start(self, event: WireEvent, _: bytes) -> list[Event]:
        return self._begin(count_value(event.index), bytes(event.content_block))

    def _delta(self, event: WireEvent, payload: bytes) -> list[Event]:
        index, delta = count_value(event.index), event.delta
        block = self._blocks.get(index)
        if delta is None:
            return []
        if block and block.type not in _KNOWN:
            _extend(block, delta, payload)
            return []
        if delta.signature and block:
            block.signature.append(delta.signature)
        if bytes(delta.citation) not in _EMPTY:
            return self._cite(delta.citation)
        made = self._delta_event(index, delta)
        if made is None:
            return []
        self._decoded_size += len(delta.text or delta.thinking or delta.partial_json or "")
        if block:
            block.has_input = block.has_input or isinstance(made, ToolArgsDelta)
        return [made]

    def _delta_event(self, index: int, delta: WireDelta) -> Event | None:
        """Return the event of a delta; None for an empty or unknown one, or arguments without their call."""
        if delta.text:
            return TextDelta(0, delta.text)
        if delta.thinking:
            return ReasoningDelta(0, delta.thinking)
        block = self._blocks.get(index)
        if delta.partial_json and block and block.type == "tool_use":
            return ToolArgsDelta(0, index, delta.partial_json)
        return None

    def _block_stop(self, event: WireEvent, _: bytes) -> list[Event]:
        return self._end(count_value(event.index))

    def _message_delta(self, event: WireEvent, payload: bytes) -> list[Event]:
        ended = [made for index in [*self._blocks] for made in self._end(index)]
        members = _object(payload).get("delta")
        return ended + self._ending(members if isinstance(members, dict) else {}, event.usage)

    def _stop(self, _: WireEvent, __: bytes) -> list[Event]:
        self.done = True
        return []

    def _whole(self, event: WireEvent, payload: bytes) -> list[Event]:
        """Read a whole message as the stream of its blocks."""
        self._met.add(0)
        events: list[Event] = []
        for index, raw in enumerate(event.content or ()):
            events += self._begin(index, bytes(raw)) + self._end(index)
        message = _object(payload)
        return events + self._ending({name: message.get(name) for name in _ENDING if name in message}, event.usage)

    # blocks

    def _begin(self, index: int, raw: bytes) -> list[Event]:
        """Begin a block, which may have content already."""
        self._met.add(0)
        before = self._end(index)
        block = read_mended(raw, _decode_block) if raw else WireBlock()
        self._blocks[index] = OpenBlock(block.type)
        if block.type not in _KNOWN:
            self._blocks[index].members = _object(raw) if raw else {}
            return before
        if self.native:
            members = {name: value for name, value in _object(raw).items() if name not in _READ}
            before.append(ExtraField(0, NATIVE_BLOCK, _raw(members), asked=True, inside=True))
        return before + self._begun(index, block)

    def _begun(self, index: int, block: WireBlock) -> list[Event]:
        """Return the events of the content that a block begins with."""
        opened = self._blocks[index]
        self._decoded_size += len(block.text or block.thinking or "")
        if block.type == "tool_use":
            events: list[Event] = [ToolCallStart(0, index, block.id or "", block.name or "")]
            if (given := bytes(block.input)) not in _EMPTY:
                opened.has_input = True
                self._decoded_size += len(given)
                events.append(ToolArgsDelta(0, index, given.decode()))
            return events
        if block.type == "redacted_thinking":
            data = redacted_thinking(block.data or "", unsealed=self.native)
            return [ReasoningDelta(0, "", data)] if block.data else []
        if block.signature:
            opened.signature.append(block.signature)
        events = [TextDelta(0, block.text)] if block.text else []
        events += [ReasoningDelta(0, block.thinking)] if block.thinking else []
        return events + [made for citation in block.citations or () for made in self._cite(citation)]

    def _end(self, index: int) -> list[Event]:
        """End a block, if it is open."""
        block = self._blocks.pop(index, None)
        if block is None:
            return []
        if block.type == "tool_use":
            return [] if block.has_input else [ToolArgsDelta(0, index, "{}")]
        if block.signature:
            return [ReasoningDelta(0, "", thinking_signature("".join(block.signature), unsealed=self.native))]
        return [] if block.type in _KNOWN else self._other_block(block)

    def _other_block(self, block: OpenBlock) -> list[Event]:
        """Return a block without events of its own, whole; only a client that speaks the same API can have it."""
        if not self.native:
            self._ledger.add("dropped", f"content.{block.type}")
            return []
        if block.inputs:
            block.members["input"] = _input("".join(block.inputs))
        return [Media(0, _raw(block.members), "blocks")]

    def _cite(self, citation: Raw) -> list[Event]:
        if self.native:
            return [Annotation(0, Raw(bytes(citation)))]
        self._ledger.add("dropped", "content.citations")
        return []

    # the end

    def _ending(self, members: dict[str, Any], usage: object) -> list[Event]:
        """Return the events of the end: its reason, its members and the last usage."""
        events = self._count_usage(usage)
        reason, sequence = members.get("stop_reason"), members.get("stop_sequence")
        if isinstance(sequence, str):
            events.append(ExtraField(0, "stop_reason", _raw(sequence)))
        if self.native:
            events.append(ExtraField(None, NATIVE_END, _raw(members), asked=True))
        elif explanation := _explanation(members.get("stop_details")):
            events.append(RefusalDelta(0, explanation))
        if isinstance(reason, str):
            events.append(Finish(0, reason))
        return events

    def _count_usage(self, usage: object) -> list[Event]:
        counted = self._counts.update(usage)
        events: list[Event] = []
        if counted:
            self.counted = counted
            events.append(counted)
        if self.native and isinstance(usage, dict):
            self._stated |= usage
            events.append(ExtraField(None, NATIVE_USAGE, _raw(self._stated), asked=True))
        return events

    _arms: ClassVar[dict[str, Callable[[Any, WireEvent, bytes], list[Event]]]] = {
        "message": _whole,
        "message_start": _start,
        "content_block_start": _block_start,
        "content_block_delta": _delta,
        "content_block_stop": _block_stop,
        "message_delta": _message_delta,
        "message_stop": _stop,
    }


_ENDING = ("stop_reason", "stop_sequence", "stop_details", "container", "context_management")  # of a whole message


def _extend(block: OpenBlock, delta: WireDelta, payload: bytes) -> None:
    """Add a delta to a block without events of its own: texts are appended, other values replaced."""
    if delta.partial_json is not None:
        block.inputs.append(delta.partial_json)
        return
    for name, value in _object(payload)["delta"].items():
        before = block.members.get(name)
        if name != "type":
            block.members[name] = before + value if isinstance(before, str) and isinstance(value, str) else value


def _object(payload: bytes) -> dict[str, Any]:
    return read_mended(payload, _decode_object)


def _explanation(details: object) -> str:
    """Return the explanation of a refusal; "" without one."""
    text = details.get("explanation") if isinstance(details, dict) else None
    return text if isinstance(text, str) else ""


def _input(text: str) -> object:
    """Return the input of a block; an empty object if it was cut."""
    try:
        return json.decode(text)
    except (DecodeError, RecursionError):
        return {}


def _raw(value: object) -> Raw:
    return Raw(json.encode(value))
