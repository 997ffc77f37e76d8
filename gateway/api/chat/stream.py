"""Encode events as chat.completion.chunk frames.

If a streamed completion is stored, its events are also folded into the stored object.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

from gateway import events as ev
from gateway.api.chat.parse import ChatParams
from gateway.api.chat.whole import ChatBodyEncoder
from gateway.api.completion_encoder import CompletionHead, StreamEncoder, encode, flat_tool_name, logprobs_object
from gateway.api.signatures import ThinkingBlocks, call_signature
from gateway.events import Event
from gateway.warnings import Warnings

# Templates of the most frequent frames.  `_delta` builds the same frames, and all others, from parts.
_TEXT = b'%b{"index":%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}%b'
_ARGUMENTS = (
    b'%b{"index":%d,"delta":{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}'
    b',"logprobs":null,"finish_reason":null}%b'
)
_GAP = b"\0"  # does not occur in JSON


class ChatStreamEncoder(StreamEncoder):
    """Encode events as chunks.

    pad: returns the padding of a chunk; None for no padding.
    """

    def __init__(
        self, head: CompletionHead, params: ChatParams, ledger: Warnings, pad: Callable[[], str] | None = None
    ) -> None:
        fields = {"id": head.id, "object": "chat.completion.chunk", "created": head.created, "model": head.model}
        tier = {"service_tier": "default"} if params.service_tier else {}
        options = params.stream_options
        super().__init__(
            {**fields, **tier},
            ledger,
            include_usage=options.get("include_usage") is True,  # the usage follows at the end
            continuous_usage=options.get("continuous_usage_stats") is True,  # each chunk has the usage so far
        )
        self._params, self._pad, self._unpadded = params, pad, pad is None
        self._reasoning_delta = _reasoning_template(head.reasoning)
        self._field_count = len(head.reasoning)  # of the fields that hold reasoning
        self._choices_with_role = 0  # the number of choices whose role has been sent
        self._last_call: dict[int, int] = {}  # by choice: the index of the last tool call
        self._blocks: dict[int, ThinkingBlocks] = defaultdict(ThinkingBlocks)  # by choice
        self._text_before = self._text_after = b""  # the bytes of the frame of `_text_choice` around a text

    def start(self) -> bytes:
        """Return the frame with the role of the first choice."""
        return self._role_frames(0)

    def stored_object(self) -> None:
        """Return None: `StoredChatStream` folds a stream that is stored."""

    def close(self, *, stored: bool) -> bytes:
        """Return the end of the stream."""
        return self._end(whole=self._choices_with_role >= self._params.request.n)

    def _role_frames(self, last: int) -> bytes:
        """Return frames with the role, once per choice in ascending order: the SDKs store choices by position."""
        first, self._choices_with_role = self._choices_with_role, last + 1
        role = b'{"role":%b,"content":"","refusal":null}' % encode(self._params.role)
        return b"".join([self._delta(choice, role) for choice in range(first, self._choices_with_role)])

    def _delta(self, choice: int, delta: bytes, reason: bytes = b"null", more: bytes = b'"logprobs":null') -> bytes:
        if choice >= self._choices_with_role:
            return self._role_frames(choice) + self._delta(choice, delta, reason, more)
        tail = self._tail
        if self._waiting:
            more += self._extras(choice)
            if inside := self._extras(choice, inside=True):
                delta = delta[:-1] + inside[delta == b"{}" :] + b"}"
            tail = self._ending()
        parts = (self._head, choice, delta, more, reason, tail)
        frame = b'%b{"index":%d,"delta":%b,%b,"finish_reason":%b}%b' % parts
        return frame if self._pad is None else b'%b,"obfuscation":%b}\n\n' % (frame[:-3], encode(self._pad()))

    def _text(self, e: ev.TextDelta) -> bytes:
        if e.choice == self._text_choice and not (e.logprobs or self._waiting):  # the usual case
            return self._text_before + encode(e.text) + self._text_after
        if e.logprobs:
            return self._delta(e.choice, b'{"content":%b}' % encode(e.text), more=_logprobs(content=e.logprobs))
        if self._unpadded and e.choice < self._choices_with_role and not self._waiting:
            self._text_before, self._text_after = (_TEXT % (self._head, e.choice, _GAP, self._tail)).split(_GAP)
            self._text_choice = e.choice
            return self._text(e)
        return self._delta(e.choice, b'{"content":%b}' % encode(e.text))

    def _texts(self, events: Sequence[ev.TextDelta]) -> bytes:
        choice = events[0].choice
        if self._unpadded and choice < self._choices_with_role and not self._waiting:
            items = [encode(e.text) for e in events if e.choice == choice and not e.logprobs]
            if len(items) == len(events):
                return _frames(_TEXT % (self._head, choice, _GAP, self._tail), items)
        return b"".join([self._text(e) for e in events])

    def _reasoning(self, e: ev.ReasoningDelta) -> bytes:
        output = (
            self._delta(e.choice, self._reasoning_delta % ((encode(e.text),) * self._field_count)) if e.text else b""
        )
        block = self._blocks[e.choice].add(e)
        if not block:
            return output
        signed = {"index": self._blocks[e.choice].count - 1, **block}  # the SDKs distinguish blocks by their index
        return output + self._delta(e.choice, b'{"thinking_blocks":[%b]}' % encode(signed))

    def _refusal(self, e: ev.RefusalDelta) -> bytes:
        more = _logprobs(refusal=e.logprobs) if e.logprobs else b'"logprobs":null'
        return self._delta(e.choice, b'{"refusal":%b}' % encode(e.text), more=more)

    def _annotation(self, e: ev.Annotation) -> bytes:
        return self._delta(e.choice, b'{"annotations":[%b]}' % e.json)

    def _media(self, e: ev.Media) -> bytes:
        return self._delta(e.choice, encode({e.member: [e.json]}))

    def _tool_start(self, e: ev.ToolCallStart) -> bytes:
        self._last_call[e.choice] = self._last_call.get(e.choice, -1) + 1
        empty = {"name": flat_tool_name(e), "arguments" if e.kind == "function" else "input": ""}
        call = {"index": self._last_call[e.choice], "id": e.id, "type": e.kind, e.kind: empty, **call_signature(e)}
        return self._delta(e.choice, b'{"tool_calls":[%b]}' % encode(call))

    def _tool_args(self, e: ev.ToolArgsDelta) -> bytes:
        call, output = self._last_call[e.choice], encode(e.json)
        if self._unpadded and not self._waiting:  # the role went out before the start of the tool call
            return _ARGUMENTS % (self._head, e.choice, call, output, self._tail)
        return self._delta(e.choice, b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}' % (call, output))

    def _several_args(self, events: Sequence[ev.ToolArgsDelta]) -> bytes:
        choice = events[0].choice
        if self._unpadded and not self._waiting:
            items = [encode(e.json) for e in events if e.choice == choice]
            if len(items) == len(events):  # all of one tool call: no other starts between them
                return _frames(_ARGUMENTS % (self._head, choice, self._last_call[choice], _GAP, self._tail), items)
        return b"".join([self._tool_args(e) for e in events])

    def _tool_input(self, e: ev.ToolInputDelta) -> bytes:
        call = b'{"tool_calls":[{"index":%d,"custom":{"input":%b}}]}'
        return self._delta(e.choice, call % (self._last_call[e.choice], encode(e.text)))

    def _finish(self, e: ev.Finish) -> bytes:
        return self._delta(e.choice, b"{}", encode(e.reason))

    def _frame_of(self, choice: int) -> bytes:
        return self._delta(choice, b"{}")

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {
        **StreamEncoder._arms,
        ev.TextDelta: _text,
        ev.ReasoningDelta: _reasoning,
        ev.RefusalDelta: _refusal,
        ev.Annotation: _annotation,
        ev.Media: _media,
        ev.BuiltinItem: StreamEncoder._nothing,
        ev.ToolCallStart: _tool_start,
        ev.ToolArgsDelta: _tool_args,
        ev.ToolInputDelta: _tool_input,
        ev.ToolCallEnd: StreamEncoder._nothing,
        ev.Finish: _finish,
        ev.BuiltinItemStart: StreamEncoder._nothing,
        ev.BuiltinArgsDelta: StreamEncoder._nothing,
        ev.BuiltinRunStart: StreamEncoder._nothing,
        ev.BuiltinItemEnd: StreamEncoder._nothing,
    }
    _runs: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {
        ev.TextDelta: _texts,
        ev.ToolArgsDelta: _several_args,
    }


class FunctionCallStreamEncoder(ChatStreamEncoder):
    """Encode chunks for clients that use `functions`: one call, in `function_call`."""

    def _tool_start(self, e: ev.ToolCallStart) -> bytes:
        self._last_call[e.choice] = self._last_call.get(e.choice, -1) + 1
        if self._last_call[e.choice]:
            self._ledger.add("dropped", "tool_calls")
            return b""
        if e.signature:
            self._ledger.add("dropped", "tool_calls.provider_specific_fields")
        called = {"name": flat_tool_name(e), "arguments": ""}
        return self._delta(e.choice, b'{"function_call":%b}' % encode(called))

    def _tool_args(self, e: ev.ToolArgsDelta) -> bytes:
        if self._last_call[e.choice]:
            return b""
        return self._delta(e.choice, b'{"function_call":{"arguments":%b}}' % encode(e.json))

    def _finish(self, e: ev.Finish) -> bytes:
        return super()._finish(ev.Finish(e.choice, "function_call") if e.reason == "tool_calls" else e)

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {
        **ChatStreamEncoder._arms, ev.ToolCallStart: _tool_start, ev.ToolArgsDelta: _tool_args, ev.Finish: _finish,
    }  # fmt: skip
    _runs: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {ev.TextDelta: ChatStreamEncoder._texts}


@cache
def _reasoning_template(names: tuple[str, ...]) -> bytes:
    """Return the template of a delta that has its text under each of these names, which the configuration gives."""
    return b"{%b}" % b",".join([b'"%b":%%b' % name.encode() for name in names])


def _frames(frame: bytes, items: list[bytes]) -> bytes:
    """Return the frame once for each item, with the item in the place of the gap.

    The items may be large, so they are copied only once.
    """
    before, after = frame.split(_GAP)
    items[0] = before + items[0]
    items[-1] += after
    return (after + before).join(items)


def _logprobs(content: tuple[ev.Logprob, ...] = (), refusal: tuple[ev.Logprob, ...] = ()) -> bytes:
    return b'"logprobs":' + encode(logprobs_object(content, refusal))


class StoredChatStream:
    """Encode a stream, and fold its events into the object that is stored."""

    def __init__(self, stream: ChatStreamEncoder, body: ChatBodyEncoder) -> None:
        self._stream, self._body = stream, body

    def start(self) -> bytes:
        """Return the first frame."""
        return self._stream.start()

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames of the events, and fold the events."""
        self._body.encode(events)
        return self._stream.encode(events)

    def keep_alive(self) -> bytes:
        """Return an SSE comment."""
        return self._stream.keep_alive()

    def stored_object(self) -> dict[str, Any] | None:
        """Return the whole completion; None after a failure."""
        return self._body.stored_object()

    def close(self, *, stored: bool) -> bytes:
        """Return the end of the stream."""
        return self._stream.close(stored=stored)
