"""Encode events as content blocks, and these as the events of a stream or as one message."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from msgspec import json

from gateway import events as ev
from gateway.api.completion_encoder import flat_tool_name
from gateway.api.messages.event_frames import PING, BlockEventWriter, JsonObject, NullBlockEventWriter, encode
from gateway.api.messages.message_object import (
    STANDARD_TIER,
    MessageEnding,
    message_object,
    message_usage,
    native_citation,
    native_ending,
    native_usage,
    no_native_members,
    started_message,
    usage_counts,
)
from gateway.api.messages.output_blocks import (
    CompleteBlock,
    OutputBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    request_counts,
    use_result,
    use_start,
)
from gateway.api.messages.params import MessageHead, MessageParams
from gateway.api.messages.thinking import seal_thinking, sealable
from gateway.api.responses.objects import url_citation
from gateway.api.responses.params import EncoderInputs
from gateway.api.whole_encoder import WholeEncoder
from gateway.events import Event
from gateway.warnings import Warnings

_ARGUMENTS = "tool_calls.function.arguments"
_MATCHES = ("stop_reason", "matched_stop")  # members of a choice that may name the stop sequence
_FINISHED = ("stop", "tool_calls")
_PAUSED = "pause_turn"  # the tools of the gateway have reached the operator's limit
_REDACTED = "redacted_thinking"


class MessageBuilder:
    """Fold events into content blocks; at most one is open.

    failed: the backend failed, and the client has the error.
    """

    def __init__(
        self,
        head: MessageHead,
        params: MessageParams,
        ledger: Warnings,
        inputs: EncoderInputs,
        events: BlockEventWriter,
    ) -> None:
        self._head, self._params, self._ledger, self._inputs, self._events = head, params, ledger, inputs, events
        self._shows_thinking = params.shows_thinking and not head.hidden
        self._content: list[JsonObject] = []  # blocks that have ended
        self._open: OutputBlock | None = None
        self._builtin_call: JsonObject | None = None  # the open call of a tool at the gateway
        self._leading_space: list[str] = []  # white space that a text may begin with
        self._has_text = self._after_call = False  # a text has begun; the last block belongs to a call
        self._has_call = self._call_was_cut = False  # a complete call was sent; the last call is incomplete
        self._refusals: list[str] = []
        self._reason, self._matched = "stop", ""
        self._usage: ev.Usage | None = None
        self._server_uses: list[str] = []  # names of the tools at the gateway that were called
        self._native = no_native_members()  # of a backend that speaks the client's API
        self.failed = False

    def take(self, events: Sequence[ev.Event]) -> None:
        """Take events of one type."""
        first, *rest = events
        arm = self._arms[type(first)]
        arm(self, first)
        if rest and ev.are_texts(rest) and type(self._open) is TextBlock:
            self._open.add(*[event.text for event in rest])  # almost always
        else:
            for event in rest:
                arm(self, event)

    def initial_message(self) -> JsonObject:
        """Return the message at its beginning."""
        message = started_message(self._head, self._usage)
        return {**message, "usage": native_usage(message["usage"], self._native)}

    def message(self) -> JsonObject:
        """Return the whole message."""
        usage = native_usage(message_usage(*self._usage_and_requests()), self._native)
        return message_object(self._head, self._content, self.ending_members(), usage)

    def ending_usage(self) -> JsonObject:
        """Return the usage so far, estimated if the backend did not count; the initial message has the usual tier."""
        usage = native_usage(usage_counts(*self._usage_and_requests()), self._native)
        if usage.get("service_tier") == STANDARD_TIER:
            del usage["service_tier"]
        return usage

    def _usage_and_requests(self) -> tuple[ev.Usage, dict[str, int]]:
        """Return the tokens, and the number of requests of each tool at the gateway."""
        usage = self._usage or ev.Usage(self._head.input_tokens, 0)
        return usage, request_counts(self._server_uses)

    def ending_members(self) -> JsonObject:
        """Return the members for the end of the message."""
        return native_ending(self._message_ending().members(), self._native)

    def note_cut_call(self) -> None:
        """Warn if the limit cut a call, whose input is then its readable beginning."""
        if self._call_was_cut and self._reason == "length":
            self._ledger.add("repaired", _ARGUMENTS)

    def _message_ending(self) -> MessageEnding:
        if not self._params.request.generates:
            return MessageEnding("max_tokens")
        if self._refusals or self._reason == "content_filter":
            return MessageEnding("refusal", refusal="".join(self._refusals) or None)
        if self._reason == "length":
            return MessageEnding("model_context_window_exceeded" if self._is_window_full() else "max_tokens")
        if self._has_call or self._reason == _PAUSED:
            return MessageEnding("tool_use" if self._has_call else _PAUSED)
        if self._matched and self._reason == "stop":
            return MessageEnding("stop_sequence", self._matched)
        if self._reason not in _FINISHED:
            self._ledger.add("synthesised", "stop_reason")
        return MessageEnding("end_turn")

    def _is_window_full(self) -> bool:
        usage, window = self._usage, self._head.window
        return bool(usage and window and usage.prompt + usage.completion >= window)

    # blocks

    def _end_block(self) -> None:
        if self._open:
            self._content.append(self._open.close())
            self._open = None

    def _begin_block(self, *, call: bool = False) -> int:
        """End the open block, and return the index of the next one."""
        self._end_block()
        self._after_call = call
        return len(self._content)

    def _take_members(self) -> JsonObject:
        """Return further members of the next block."""
        members, self._native[ev.NATIVE_BLOCK] = self._native[ev.NATIVE_BLOCK], {}
        return members

    def _write_block(self, block: JsonObject, *, call: bool = False) -> None:
        self._open = CompleteBlock(self._events, self._begin_block(call=call), block)
        self._end_block()

    def _begin_text(self) -> TextBlock:
        """Return the open text block, or a new one that begins with delayed white space."""
        if type(self._open) is TextBlock:
            return self._open
        self._open = text = TextBlock(self._events, self._begin_block(), self._take_members())
        text.add(*self._leading_space)
        self._leading_space.clear()
        self._has_text = True
        return text

    def _settle_leading_space(self, *, call: bool = False) -> None:
        """Keep white space beside other text; clients may not send a blank text block back."""
        if any(self._leading_space) and self._has_text and not (call or self._after_call):
            self._begin_text()
        self._leading_space.clear()

    # the output of the model

    def _text(self, e: ev.TextDelta) -> None:
        if type(self._open) is TextBlock:
            self._open.add(e.text)
        elif e.text.strip():
            self._begin_text().add(e.text)
        else:
            self._leading_space.append(e.text)

    def _refusal(self, e: ev.RefusalDelta) -> None:
        self._refusals.append(e.text)
        self._begin_text().add(e.text)

    def _reasoning(self, e: ev.ReasoningDelta) -> None:
        if type(self._open) is ThinkingBlock and not (e.signature or self._leading_space):
            self._open.add_reasoning(e)  # almost always
            return
        signed = json.decode(e.signature) if e.signature else {}
        if e.text or (signed and signed["type"] != _REDACTED):
            self._thinking().add_reasoning(ev.ReasoningDelta(e.choice, e.text) if _is_redacted(signed) else e)
        if _is_redacted(signed):
            self._settle_leading_space()
            sealed = "" if signed.get("unsealed") else self._seal_redacted(signed)
            self._write_block({"type": _REDACTED, "data": sealed or signed["data"], **self._take_members()})

    def _seal_redacted(self, signed: JsonObject) -> str:
        return self._inputs.seal(sealable("", [signed], self._head.model, shown=False))

    def _thinking(self) -> ThinkingBlock:
        self._settle_leading_space()
        if type(self._open) is ThinkingBlock:
            return self._open
        index, members = self._begin_block(), self._take_members()
        shown = self._shows_thinking
        seal = partial(seal_thinking, self._inputs.seal, self._head.model, shown)  # a method would be a reference cycle
        self._open = thinking = ThinkingBlock(self._events, index, members, seal, shown=shown)
        return thinking

    def _annotation(self, e: ev.Annotation) -> None:
        if citation := native_citation(e.json):
            self._begin_text().cite(citation)
            return
        found = url_citation(e.json)
        if not found or "url" not in found or type(self._open) is not TextBlock:
            self._ledger.add("dropped", "annotations")
            return
        location = {"url": found["url"], "title": found.get("title"), "cited_text": "", "encrypted_index": ""}
        self._open.cite({"type": "web_search_result_location", **location})

    def _media(self, e: ev.Media) -> None:
        if e.member != "blocks":
            self._ledger.add("dropped", e.member)
            return
        self._settle_leading_space(call=True)
        block = json.decode(e.json)
        input = block.get("input")
        if isinstance(input, dict):  # clients collect the input of a call from deltas
            self._open = call = ToolUseBlock(self._events, self._begin_block(call=True), block)
            call.add(json.encode(input).decode())
            self._end_block()
        else:
            self._write_block(block, call=True)

    # calls

    def _tool_start(self, e: ev.ToolCallStart) -> None:
        self._settle_leading_space(call=True)
        start = {"type": "tool_use", "id": e.id, "name": flat_tool_name(e), **self._take_members()}
        self._open = ToolUseBlock(self._events, self._begin_block(call=True), start)

    def _tool_args(self, e: ev.ToolArgsDelta) -> None:
        assert isinstance(self._open, ToolUseBlock)
        self._open.add(e.json)

    def _tool_end(self, e: ev.ToolCallEnd) -> None:
        assert isinstance(self._open, ToolUseBlock)
        self._open.complete = e.complete
        self._has_call, self._call_was_cut = self._has_call or e.complete, not e.complete
        self._end_block()

    def _builtin_item(self, e: ev.BuiltinItem) -> None:
        self._ledger.add("dropped", json.decode(e.item)["type"])

    def _builtin_start(self, e: ev.BuiltinItemStart) -> None:
        item = json.decode(e.item)
        self._builtin_call = use = use_start(item, self._inputs.new_id)
        if not use:
            if item["type"] != "mcp_list_tools":  # of the gateway alone
                self._ledger.add("dropped", item["type"])
            return
        self._settle_leading_space(call=True)
        self._open = block = ToolUseBlock(self._events, self._begin_block(call=True), use)
        block.complete = False

    def _builtin_args(self, e: ev.BuiltinArgsDelta) -> None:
        if isinstance(self._open, ToolUseBlock):
            self._open.add(e.json)

    def _builtin_end(self, e: ev.BuiltinItemEnd) -> None:
        if not (use := self._builtin_call):
            return
        self._end_block()
        end = json.decode(e.item)
        self._write_block(use_result(use, end, self._inputs), call=True)
        if use["type"] == "server_tool_use" and "error_code" not in end:
            self._server_uses.append(use["name"])
        self._builtin_call = None

    # the end, and members beside the content

    def _finish(self, e: ev.Finish) -> None:
        self._settle_leading_space()
        self._end_block()
        self._reason = e.reason

    def _take_usage(self, e: ev.Usage) -> None:
        self._usage = e

    def _extra(self, e: ev.ExtraField) -> None:
        if e.name in _MATCHES:
            value = json.decode(e.json)
            if isinstance(value, str) and value in self._params.stop_sequences:
                self._matched = value
        elif e.asked and e.name in self._native:
            self._native[e.name] = json.decode(e.json)
            if e.name == ev.NATIVE_BLOCK and not isinstance(self._open, ToolUseBlock):  # a call has an end of its own
                self._settle_leading_space()
                self._end_block()
        elif e.name != "service_tier":
            self._ledger.add("dropped", e.name)

    def _failure(self, e: ev.Failure) -> None:
        self.failed = True
        self._events.write_error(e.problem, self._head.request_id)

    def _nothing(self, _: ev.Event) -> None:
        """Ignore an event without a counterpart: plain text input, and the start of a tool at the gateway."""

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], None]]] = {
        ev.TextDelta: _text,
        ev.ReasoningDelta: _reasoning,
        ev.RefusalDelta: _refusal,
        ev.Annotation: _annotation,
        ev.Media: _media,
        ev.BuiltinItem: _builtin_item,
        ev.ToolCallStart: _tool_start,
        ev.ToolArgsDelta: _tool_args,
        ev.ToolInputDelta: _nothing,
        ev.ToolCallEnd: _tool_end,
        ev.Finish: _finish,
        ev.Usage: _take_usage,
        ev.ExtraField: _extra,
        ev.Failure: _failure,
        ev.BuiltinItemStart: _builtin_start,
        ev.BuiltinArgsDelta: _builtin_args,
        ev.BuiltinRunStart: _nothing,
        ev.BuiltinItemEnd: _builtin_end,
    }


def _is_redacted(signed: JsonObject) -> bool:
    return signed.get("type") == _REDACTED


class MessageStreamEncoder:
    """Encode a message as the events of a stream."""

    def __init__(self, head: MessageHead, params: MessageParams, ledger: Warnings, inputs: EncoderInputs) -> None:
        self._events = BlockEventWriter()
        self._builder = MessageBuilder(head, params, ledger, inputs, self._events)
        self._ledger = ledger

    def start(self) -> bytes:
        """Return the event that begins the message."""
        self._events.write_event("message_start", message=self._builder.initial_message())
        return self._events.take()

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the events of the stream for events of one type."""
        self._builder.take(events)
        return self._events.take()

    def keep_alive(self) -> bytes:
        """Return an event that clients ignore."""
        return PING

    def stored_object(self) -> None:
        """Return None, as a message is not stored."""

    def close(self, *, stored: bool) -> bytes:
        """Return the end; nothing after an error."""
        if self._builder.failed:
            return b""
        self._events.write_event(
            "message_delta", delta=self._builder.ending_members(), usage=self._builder.ending_usage()
        )
        self._events.write_warnings(self._ledger.take_unsent())
        self._events.write_event("message_stop")
        return self._events.take()


class MessageBodyEncoder(WholeEncoder):
    """Encode a message as one body."""

    def __init__(self, head: MessageHead, params: MessageParams, ledger: Warnings, inputs: EncoderInputs) -> None:
        self._builder = MessageBuilder(head, params, ledger, inputs, NullBlockEventWriter())

    def encode(self, events: Sequence[Event]) -> bytes:
        """Collect events of one type, and return no bytes."""
        self._builder.take(events)
        return b""

    def stored_object(self) -> None:
        """Return None, as a message is not stored."""

    def close(self, *, stored: bool) -> bytes:
        """Return the body; a failure is an error of its own."""
        if self._builder.failed:
            return b""
        self._builder.note_cut_call()
        return encode(self._builder.message())
