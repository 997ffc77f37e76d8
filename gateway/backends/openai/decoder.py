"""Decode chat completions, chunked or whole, as vLLM, llama.cpp and many others send them: payload in, raw events out.

There is one tolerant decoder for all of them, so that no member has two meanings.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import repeat
from typing import ClassVar, TypeVar

from msgspec import DecodeError, Raw, json

from gateway.backends.openai import unknown_fields, wire
from gateway.backends.openai.error_mapping import problem_from_error_object
from gateway.backends.openai.json_repair import SurrogateHalves, mended
from gateway.backends.openai.payload_values import (
    DONE,
    DONE_SIZE,
    are_text_only,
    error_without_label,
    finish_reason,
    passable_value,
    read_mended,
    reasoning_text,
    split_members,
    text_of_details,
)
from gateway.backends.openai.repeat_decoder import FrameDelimiters, RepeatedChunkDecoder
from gateway.backends.openai.repeated_reasoning import RepeatedReasoning
from gateway.backends.openai.tool_call_decoder import ToolCallDecoder
from gateway.backends.openai.unknown_fields import NOTHING, Members, UnknownMembers
from gateway.backends.openai.usage import (
    UsageTotal,
    count_value,
    has_counts_beside_choices,
    usage_beside_choices,
    usage_from_counts,
)
from gateway.backends.openai.wire import SignedBlock, read_logprobs, signed_blocks
from gateway.backends.openai.wrong_types import without_wrong_types
from gateway.errors import Problem
from gateway.events import (
    Annotation,
    Event,
    ExtraField,
    Failure,
    Finish,
    Media,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    Usage,
)
from gateway.warnings import Warnings

_Decoded = TypeVar("_Decoded")
_decode = json.Decoder(wire.WireChunk).decode
_decode_plain = json.Decoder(wire.PlainChunk).decode
_part = json.Decoder(wire.WirePart | str).decode
_NO_MEMBERS: Iterable[tuple[Members, Members]] = repeat(({}, {}))  # for each choice
NO_CHOICE = Problem(502, "The backend's response is not a chat completion: it has no choices.", "upstream_error")
NO_MESSAGE = Problem(502, "The backend's response is not a chat completion: a choice has no message.", "upstream_error")
_TEXTS = frozenset((None, "text", "output_text", "refusal", "thinking", "reasoning"))  # part types without media


@dataclass(slots=True, eq=False)
class ChatDecoder:
    """Decode the payloads of one response to raw events.

    n: the number of choices in the request.  The decoder drops further ones.  A single choice always has index 0.
    _wanted: the members beyond the API that the client requested.
    _top_limit: the number of alternatives per token that the client requested; None to keep all.
    _passed: the last value of each member that chunks repeat, by choice and name.
    completion_tokens: the tokens of the response, if the backend counts only these.
    counted: the usage that the backend has stated so far.
    done: the backend has announced the end of the response.
    """

    _ledger: Warnings
    n: int = 1
    _wanted: Set[str] = frozenset()
    _top_limit: int | None = None
    _choice_indexes: dict[int, int | None] = field(default_factory=dict)  # the backend's index → ours, None: too many
    _total: UsageTotal = field(default_factory=UsageTotal)
    _repeats: RepeatedChunkDecoder = field(default_factory=RepeatedChunkDecoder)
    _unsigned: dict[int, list[str]] = field(default_factory=dict)  # by choice: the reasoning since its last signature
    _passed: dict[tuple[int | None, str], bytes] = field(default_factory=dict)
    _met: set[int] = field(default_factory=set)  # choices with a message so far, even an empty one
    _by_message: set[int] = field(default_factory=set)  # choices whose messages do not come as deltas
    _tool_calls: ToolCallDecoder | None = None  # set once there is a tool call
    _plain: bool = True  # all chunks so far were plain
    _halves: SurrogateHalves | None = None
    _repeated: RepeatedReasoning | None = None  # set once there is reasoning
    _decoded_size: int = 0
    _has_text: bool = False
    _has_logprobs: bool = False  # some text had log-probabilities
    completion_tokens: int = 0
    counted: Usage | None = None
    done: bool = False

    payload_name: ClassVar[str] = "chat completion"  # what the payloads are, in errors
    no_choice_problem: ClassVar[Problem] = NO_CHOICE  # of a response without any choice

    @property
    def decoded_characters(self) -> int:
        """The characters of text, reasoning and arguments so far."""
        arguments = self._tool_calls.decoded_characters if self._tool_calls else 0
        return self._decoded_size + self._repeats.decoded_characters + arguments

    def run(self, data: bytes, at: int, around: FrameDelimiters) -> tuple[list[Event], int]:
        """Decode the payloads from `at` on that differ from a known one only in their text.

        Returns their events, and the position where the run ends: `at` if it is empty.
        """
        events, until = self._repeats.run(data, at, around, self._decode_alone)
        if self._unsigned:
            self._remember(events)
        return events, until

    @property
    def repeated_event(self) -> Event | None:
        """The event of the last chunk without its text; None until its form is known."""
        return self._repeats.repeated_event

    def single_chunk_decoder(self, max_bytes: int) -> Callable[[bytes], Sequence[Event] | None]:
        """Return a decoder of one chunk of the known form; it returns None for other data and for longer chunks."""
        decode = self._repeats.single_chunk_decoder(max_bytes)
        if not isinstance(self._repeats.repeated_event, ReasoningDelta):
            return decode

        def decode_one(data: bytes) -> Sequence[Event] | None:
            events = decode(data)
            self._remember(events or ())
            return events

        return decode_one

    @property
    def estimates_reasoning(self) -> bool:
        """Return True if the client gets an estimate of reasoning tokens that the backend does not count."""
        return True

    @property
    def lacks_logprobs(self) -> bool:
        """Return True if the client requested log-probabilities, and text came without any."""
        return self._top_limit is not None and self._has_text and not self._has_logprobs

    @property
    def empty(self) -> bool:
        """Return True if no choice has had a message."""
        return not self._met

    @property
    def repeats_settled(self) -> bool:
        """Return True if the next payload cannot continue a run of the known form."""
        return self._repeats.is_settled

    def decode(self, payload: bytes) -> list[Event]:
        """Return the events of a payload; an unreadable one is a Failure."""
        if known := self._repeats.event(payload, self._decode_alone):
            self._remember([known])
            return [known]
        events = self.decode_whole(payload)
        if not self.done:
            self._repeats.train(payload, events)
        return events

    def decode_whole(self, payload: bytes) -> list[Event]:
        """Return the events of a payload that repeats no form, such as a whole body."""
        if payload[:DONE_SIZE] == DONE:
            self.done = True
            return self.held_events()
        events = self._decoded(payload)
        if self._halves and self._halves.due:
            events = self._halves.join(events)
        if self._unsigned:
            self._repeated = self._repeated or RepeatedReasoning(self._ledger, self._unsigned)
            events = self._repeated.remove(events) if self._repeated.due else events
        return [*events, *self.held_events()] if self.done else events  # the last line of Ollama also ends the response

    def held_events(self) -> list[Event]:
        """Return the events that are held for a continuation, at the end of the response."""
        halves = self._halves.held_events() if self._halves else []
        return [*self._repeated.remove(halves), *self._repeated.held_events()] if self._repeated else halves

    def _read(self, payload: bytes, decode: Callable[[bytes], _Decoded]) -> _Decoded | Failure:
        """Return the decoded payload, repaired if it is invalid JSON."""
        try:
            return decode(payload)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            self._halves = self._halves or SurrogateHalves(self._ledger)
            try:
                return decode(self._halves.mend(payload))
            except (DecodeError, RecursionError) as problem:
                message = f"The backend sent an invalid {self.payload_name}: {problem}."
                return Failure(Problem(502, message, "upstream_error"))

    def _remember(self, known: Sequence[Event]) -> None:
        """Keep the text that a signature may cover."""
        for event in known:
            if type(event) is not ReasoningDelta:
                return  # all events have the same type
            self._unsigned[event.choice].append(event.text)

    def _decode_alone(self, payload: bytes) -> list[Event]:
        """Decode a payload by itself, without a change of state."""
        fresh = ChatDecoder(Warnings(), self.n, self._wanted, self._top_limit, _passed={**self._passed})
        return fresh._decoded(payload)

    def _decoded(self, payload: bytes) -> list[Event]:
        if payload == b"null":  # llama.cpp begins with it if there are several prompts
            return []
        plain = self._plain_chunk(payload)
        chunk: wire.WireChunk | Failure = plain if plain else self._read(payload, _decode)
        if type(chunk) is Failure:
            fit = without_wrong_types(payload, _decode, self._ledger)
            return self._decoded(fit) if fit else [chunk]
        if chunk.error or chunk.object == "error":
            return [Failure(problem_from_error_object(chunk.error or json.decode(mended(payload))))]
        if chunk.choices is None and not plain and (error := error_without_label(payload)):
            return [Failure(problem_from_error_object(error))]
        if plain:
            return self.read(plain, unknown_fields.of_plain_chunk(plain) if plain.system_fingerprint else NOTHING)
        return self.read(chunk, read_mended(payload, unknown_fields.of_chunk))

    def _plain_chunk(self, payload: bytes) -> wire.PlainChunk | None:
        """Return the chunk if it is plain; None if not, and for all chunks after the first such one."""
        if self._plain:
            try:
                return _decode_plain(payload)
            except (DecodeError, UnicodeDecodeError, RecursionError):
                self._plain = False
        return None

    def read(self, chunk: wire.WireChunk, extra: UnknownMembers) -> list[Event]:
        """Return the events of a chunk that is no error.  `extra`: its members that have no event of their own."""
        out: list[Event] = []
        counts = type(chunk) is not wire.PlainChunk and has_counts_beside_choices(chunk)
        if chunk.usage or counts or chunk.timings or chunk.x_groq:
            self._usage(chunk, out)
        if extra.response:
            self._pass(None, extra.response, out)
        for number, (choice, members) in enumerate(
            zip(chunk.choices or (), extra.choices or _NO_MEMBERS, strict=False)
        ):
            self._choice(number, choice, members, out)
        return out

    def _choice(self, number: int, choice: wire.WireChoice, members: tuple[Members, Members], out: list[Event]) -> None:
        if (index := self._choice_index(number if choice.index is None else choice.index)) is None:
            return
        last = self._before(index, members, out, ended=bool(choice.finish_reason)) if any(members) else {}
        if choice.usage and (usage := usage_from_counts(choice.usage)):
            self.counted = self._total.of_choice(index, usage)
            out.append(self.counted)
        before = len(out)
        if message := choice.delta or (choice.message and self._whole_message(index, choice.message)):
            self._met.add(index)
            self._message(index, message, choice.logprobs, out)
        if choice.text is not None and len(out) == before:  # Together repeats the delta as `text`
            self._met.add(index)
            self._text(index, choice.text, choice.logprobs if choice.text else None, out)
        if last:
            self._pass(index, last, out)
        if choice.error:
            out.append(Failure(problem_from_error_object(choice.error)))
        elif choice.finish_reason:
            self._finish(index, choice.finish_reason, out)

    def _whole_message(self, index: int, message: wire.WireMessage) -> wire.WireMessage | None:
        """Return the message of a choice without a delta; None if it repeats the deltas, as MiniMax's last one does."""
        if index in self._by_message or index not in self._met or not self.decoded_characters:
            self._by_message.add(index)
            return message
        self._ledger.add("repaired", "content")
        return None

    def _before(self, index: int, members: tuple[Members, Members], out: list[Event], *, ended: bool) -> Members:
        """Pass on the members of a choice that go before its text; return those that belong to its end."""
        first, last = split_members(members[0], ended=ended)
        self._pass(index, first, out)
        out += [ExtraField(index, name, passable_value(value), inside=True) for name, value in members[1].items()]
        return last

    def _finish(self, index: int, data: object, out: list[Event]) -> None:
        reason = data if type(data) is str else finish_reason(data)
        if index not in self._met:
            out.append(Failure(NO_MESSAGE))
        else:
            self._total.finished = True
            if self._tool_calls:
                self._tool_calls.end_custom(index, out)
            out.append(Finish(index, reason))

    def _pass(self, index: int | None, rest: Members, out: list[Event]) -> None:
        """Pass on uninterpreted members.  A repeated value is passed once, unless it is a list of a choice."""
        for name, value in rest.items():
            data = bytes(value)
            if self._passed.get((index, name)) != data or (index is not None and data[:1] == b"["):
                self._passed[index, name] = data
                out.append(ExtraField(index, name, passable_value(value), asked=name in self._wanted))

    def _choice_index(self, number: wire.LenientNumber) -> int | None:
        theirs = count_value(number)
        if theirs not in self._choice_indexes:
            index = 0 if self.n == 1 and not self._choice_indexes else theirs
            self._choice_indexes[theirs] = index if index < self.n else None
            if index >= self.n:
                self._ledger.add("dropped", "choices")
        return self._choice_indexes[theirs]

    def _usage(self, chunk: wire.WireChunk, out: list[Event]) -> None:
        """Add the usage before all other events, so that a client that wants usage in every chunk gets the newest."""
        if usage := (usage_from_counts(chunk.usage) if chunk.usage else None) or usage_beside_choices(chunk):
            self.counted = self._total.add(usage, alone=self.n > 1 and not chunk.choices)
            out.append(self.counted)

    def _message(self, index: int, message: wire.WireMessage, logprobs: object, out: list[Event]) -> None:
        if message.reasoning_details and not are_text_only(message.reasoning_details):
            out.append(ExtraField(index, "reasoning_details", Raw(json.encode(message.reasoning_details)), inside=True))
        if message.content and self._tool_calls:
            self._tool_calls.end_custom(index, out)
        self._text_and_reasoning(index, message, logprobs, out)
        if message.refusal:
            found = read_logprobs(logprobs, message.refusal, self._top_limit).get("refusal", ())
            out.append(RefusalDelta(index, message.refusal, found))
        if message.annotations:
            out += [Annotation(index, passable_value(remark)) for remark in message.annotations]
        if message.images:
            out += [Media(index, passable_value(image), "images") for image in message.images]
        if message.tool_calls or message.function_call:
            self._tool_calls = self._tool_calls or ToolCallDecoder(self._ledger)
            self._tool_calls.decode(index, message, out)

    def _text_and_reasoning(self, index: int, message: wire.WireMessage, logprobs: object, out: list[Event]) -> None:
        """Add the text and reasoning of a message.

        Log-probabilities without text go first, as they may belong to the reasoning or the call in the same message.
        """
        content = message.content
        if not content and logprobs is not None:
            self._text(index, "", logprobs, out)
        thought = message.reasoning_content or message.reasoning or message.reasoning_text or message.thinking
        if not thought and message.reasoning_details:
            thought = text_of_details(message.reasoning_details)
        if message.thinking_blocks:
            self._signed(index, reasoning_text(thought), list(signed_blocks(message.thinking_blocks)), out)
        elif thought:
            self._thought(index, reasoning_text(thought), "", out)
        if isinstance(content, list):
            self._parts(index, content, out)
            content = ""
        if content or (logprobs is not None and message.content):
            self._text(index, content or "", logprobs, out)

    def _signed(self, index: int, thought: str, signed: list[SignedBlock], out: list[Event]) -> None:
        """Add the reasoning of signed blocks.  The reasoning field may repeat it, whole or in pieces."""
        rest = thought
        for block in signed:
            rest = rest.replace(block.text, "", 1)
        if rest == thought:
            self._thought(index, thought, "", out)
        for block in signed:
            whole = block.signature and block.text == "".join(self._unsigned.get(index, ()))
            self._thought(index, "" if whole else block.text, block.signature, out)
        if rest != thought and rest.strip():
            self._thought(index, rest, "", out)

    def _thought(self, index: int, text: str, signature: str, out: list[Event]) -> None:
        if not text and not signature:
            return
        self._decoded_size += len(text)
        out.append(ReasoningDelta(index, text, signature))
        if signature:
            self._unsigned[index] = []
        else:
            self._unsigned.setdefault(index, []).append(text)

    def _text(self, index: int, text: str, logprobs: object, out: list[Event]) -> None:
        self._decoded_size += len(text)
        found = read_logprobs(logprobs, text, self._top_limit).get("content", ()) if logprobs is not None else ()
        if text or found:
            self._has_text, self._has_logprobs = True, self._has_logprobs or bool(found)
            out.append(TextDelta(index, text, found))

    def _parts(self, index: int, parts: list[Raw], out: list[Event]) -> None:
        for raw in parts:
            part = self._read(bytes(raw), _part)
            if isinstance(part, Failure):
                out.append(part)
                return
            if isinstance(part, str):
                self._text(index, part, None, out)
                continue
            self._thought(index, reasoning_text(part.thinking), "", out)
            self._text(index, part.text or "", None, out)
            if part.refusal:
                out.append(RefusalDelta(index, part.refusal))
            if part.type not in _TEXTS:
                out.append(Media(index, passable_value(raw)))
