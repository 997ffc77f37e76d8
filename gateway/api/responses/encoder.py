"""Encode events as output items, and these as response.* events or one Response object."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from msgspec import json

from gateway import events as ev
from gateway.api.extra_members import Values, add_value, members
from gateway.api.responses import event_stream, objects
from gateway.api.responses.event_stream import EventWriter, NullEventWriter
from gateway.api.responses.objects import JsonObject, encode
from gateway.api.responses.output_items import (
    HOSTED,
    BuiltinCallItem,
    CompleteItem,
    ItemStatus,
    MessageItem,
    ReasoningItem,
    ToolCallItem,
)
from gateway.api.responses.params import Carrier, EncoderInputs, ResponseHead, ResponseParams
from gateway.api.responses.stored_items import visible_item
from gateway.api.whole_encoder import WholeEncoder
from gateway.events import Event
from gateway.request import StoredReasoning
from gateway.warnings import Warnings

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponseBuilder:
    """Build a Response from events.  At most one item is open; it ends where another begins.

    begun: the Response object while it is in progress.
    """

    def __init__(
        self, head: ResponseHead, params: ResponseParams, ledger: Warnings, inputs: EncoderInputs, frames: EventWriter
    ) -> None:
        self._params, self._ledger, self._inputs, self._frames = params, ledger, inputs, frames
        self._model, self._carrier = head.model, _carrier(head, params)
        self.begun = event_stream.in_progress_response(head, params)
        self._end: JsonObject = {}  # the members that tell the status
        self._output: list[JsonObject] = []  # items that have ended
        self._open: MessageItem | ReasoningItem | ToolCallItem | BuiltinCallItem | None = None
        self._start: ev.ToolCallStart | None = None  # of the last tool call
        self._blank: list[ev.TextDelta] = []  # white space before a message
        self._refused = False
        self._usage: JsonObject | None = None
        self._extras: Values = {}
        self._citations: list[JsonObject] = []  # of the whole text; their positions are unknown

    def take(self, events: Sequence[ev.Event]) -> None:
        """Add events of one type, at least one."""
        first, *rest = events
        arm = self._arms[type(first)]
        arm(self, first)
        if rest and ev.are_texts(rest) and type(self._open) is MessageItem and not self._params.logprobs:
            self._open.text(*[e.text for e in rest])  # the usual case
        else:
            for event in rest:
                arm(self, event)

    @property
    def failed(self) -> bool:
        """True if the response failed or was cancelled."""
        return self._end.get("status") in ("failed", "cancelled")

    def stored_response(self) -> JsonObject | None:
        """Return the final Response for the store; None if it is not stored."""
        return self._response(self._output, stored=True) if self._params.stored else None

    def response(self, *, stored: bool) -> JsonObject:
        """Return the final Response for the client.

        stored: the response is stored.
        """
        return self._response(list(map(self._seen, self._output)), stored=stored)

    def _response(self, output: list[JsonObject], *, stored: bool) -> JsonObject:
        store = stored and self._params.echo["store"]
        extras = members(self._extras) if self._extras else {}
        return {**self.begun, **self._end, "store": store, "output": output, "usage": self._usage, **extras}

    def _seen(self, item: JsonObject) -> JsonObject:
        """Return an item for the client; calls of built-in tools show only included members."""
        return visible_item(item, self._params.include) if item["type"] in HOSTED else item

    # what is open

    def _message(self) -> MessageItem:
        """Return the open message, or a new one."""
        if type(self._open) is MessageItem:
            return self._open
        self._end_item()
        self._open = message = MessageItem(self._frames, len(self._output), self._inputs.new_id("msg_"))
        return message

    def _end_item(self, status: ItemStatus = "completed") -> None:
        if self._open:
            self._output.append(self._open.close(status))
            self._open = None

    def _tell(self, item: JsonObject) -> None:
        self._output.append(CompleteItem(self._frames, len(self._output), item).close("completed"))

    # text

    def _text(self, e: ev.TextDelta) -> None:
        if type(self._open) is MessageItem:
            self._open.text(e.text, logprobs=e.logprobs if self._params.logprobs else ())
        elif e.text.strip():
            self._begin_text(e)
        else:
            self._blank.append(e)

    def _begin_text(self, *texts: ev.TextDelta) -> MessageItem:
        """Return the message, after adding the white space that was held back."""
        message = self._message()
        for e in (*self._blank, *texts):
            message.text(e.text, logprobs=e.logprobs if self._params.logprobs else ())
        self._blank.clear()
        return message

    def _end_text(self) -> None:
        """Add white space that was held back: at the end of a response without tool calls it counts as text."""
        if not self._start and any([e.text for e in self._blank]):
            self._begin_text()
        self._drop_blank()

    def _drop_blank(self) -> None:
        """Drop white space before another item, so that there is no empty message."""
        if not self._blank:
            return
        if any([e.text for e in self._blank]):
            self._ledger.add("dropped", "content")
        elif self._params.logprobs:
            self._ledger.add("dropped", "logprobs")
        self._blank.clear()

    def _refusal(self, e: ev.RefusalDelta) -> None:
        self._drop_blank()
        if e.logprobs and self._params.logprobs:
            self._ledger.add("dropped", "logprobs")
        self._refused = True
        self._message().add_refusal(e.text)

    def _annotation(self, e: ev.Annotation) -> None:
        annotation = objects.url_citation(e.json)
        if annotation is None:
            self._ledger.add("dropped", "annotations")
            return
        self._begin_text().annotate(annotation)

    def _media(self, e: ev.Media) -> None:
        if not (image := objects.image(e.json)):
            self._ledger.add("dropped", e.member)
            return
        self._drop_blank()
        self._end_item()
        self._tell({"id": self._inputs.new_id("ig_"), "type": "image_generation_call", "status": "completed", **image})

    # reasoning

    def _reasoning(self, e: ev.ReasoningDelta) -> None:
        self._drop_blank()
        self._thinking().add_reasoning(e)

    def _thinking(self) -> ReasoningItem:
        if type(self._open) is ReasoningItem:
            return self._open
        self._end_item()
        id = self._inputs.new_id("rs_")
        self._open = thinking = ReasoningItem(self._frames, len(self._output), id, self._carrier, self._seal)
        return thinking

    def _seal(self, text: str, blocks: list[dict[str, Any]]) -> str | None:
        """Return the encrypted reasoning if the client wants it, or if nothing else gives it back to the model."""
        if blocks or self._params.sealed or self._carrier == "hidden":
            return self._inputs.seal(StoredReasoning(text, tuple(blocks), self._model))
        return None

    # tool calls

    def _tool_start(self, e: ev.ToolCallStart) -> None:
        self._drop_blank()
        self._end_item()
        self._start = e
        if e.kind in ("function", "custom"):
            self._open = ToolCallItem(self._frames, len(self._output), objects.tool_call_item(e, self._inputs.new_id))

    def _tool_args(self, e: ev.ToolArgsDelta) -> None:
        if type(self._open) is ToolCallItem:
            self._open.add_arguments(e.json)
        else:
            assert self._start
            self._tell({**objects.tool_call_item(self._start, self._inputs.new_id), **json.decode(e.json)})

    def _tool_input(self, e: ev.ToolInputDelta) -> None:
        assert isinstance(self._open, ToolCallItem)
        self._open.add_arguments(e.text)

    def _tool_end(self, e: ev.ToolCallEnd) -> None:
        """End the item; a cut tool call stays open, because only the next event shows its status."""
        if e.complete:
            self._end_item()

    def _hosted_tool(self, e: ev.BuiltinItem) -> None:
        self._drop_blank()
        self._end_item()
        self._tell(json.decode(e.item))

    def _hosted_start(self, e: ev.BuiltinItemStart) -> None:
        self._drop_blank()
        self._end_item()
        self._open = BuiltinCallItem(
            self._frames, len(self._output), json.decode(e.item), partial(visible_item, include=self._params.include)
        )

    def _hosted_args(self, e: ev.BuiltinArgsDelta) -> None:
        assert isinstance(self._open, BuiltinCallItem)
        self._open.add_arguments(e.json)

    def _hosted_run(self, _: ev.BuiltinRunStart) -> None:
        assert isinstance(self._open, BuiltinCallItem)
        self._open.run()

    def _hosted_end(self, e: ev.BuiltinItemEnd) -> None:
        assert isinstance(self._open, BuiltinCallItem)
        self._output.append(self._open.end(json.decode(e.item)))
        self._open = None

    # the end

    def _cite(self) -> None:
        """Add the citations to the last text."""
        if self._citations and type(self._open) is not MessageItem:
            self._ledger.add("dropped", "citations")
            return
        for citation in self._citations:
            self._message().annotate(citation)

    def _finish(self, e: ev.Finish) -> None:
        self._end_text()
        self._cite()
        if not self._open and not self._output and self._params.request.generates:
            self._message().text("")
        reason = _INCOMPLETE.get(e.reason)
        if not reason or (reason == "content_filter" and self._refused):
            self._end_item()
            self._end = {"status": "completed", "completed_at": self._inputs.now()}
        else:
            self._end_item("incomplete")
            self._end = {"status": "incomplete", "incomplete_details": {"reason": reason}}

    def _failure(self, e: ev.Failure) -> None:
        self._end_text()
        self._end_item("incomplete")
        self._end = event_stream.write_failed(self._frames, e.problem)

    def _counted(self, e: ev.Usage) -> None:
        self._usage = objects.response_usage(e)

    def _extra(self, e: ev.ExtraField) -> None:
        if e.asked:
            add_value(self._extras, e.name, e.json)
        elif e.name == "service_tier" and e.choice is None:
            self._extras[e.name] = [e.json]
        elif e.name == "citations":
            self._citations = objects.citations(e.json)
        else:
            self._ledger.add("dropped", e.name)

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], None]]] = {
        ev.TextDelta: _text,
        ev.ReasoningDelta: _reasoning,
        ev.RefusalDelta: _refusal,
        ev.Annotation: _annotation,
        ev.Media: _media,
        ev.BuiltinItem: _hosted_tool,
        ev.ToolCallStart: _tool_start,
        ev.ToolArgsDelta: _tool_args,
        ev.ToolInputDelta: _tool_input,
        ev.ToolCallEnd: _tool_end,
        ev.Finish: _finish,
        ev.Usage: _counted,
        ev.ExtraField: _extra,
        ev.Failure: _failure,
        ev.BuiltinItemStart: _hosted_start,
        ev.BuiltinArgsDelta: _hosted_args,
        ev.BuiltinRunStart: _hosted_run,
        ev.BuiltinItemEnd: _hosted_end,
    }


def _carrier(head: ResponseHead, params: ResponseParams) -> Carrier:
    """Return the members that show the reasoning.

    The operator's setting wins if it hides reasoning or includes the client's choice; else the client's choice does.
    """
    if not params.carrier or head.carrier == "hidden" or (head.carrier, params.carrier) == ("both", "summary"):
        return head.carrier
    return params.carrier


class ResponseStreamEncoder:
    """Encode a response as a stream of events."""

    def __init__(self, head: ResponseHead, params: ResponseParams, ledger: Warnings, inputs: EncoderInputs) -> None:
        self._frames = EventWriter(inputs.pad if params.obfuscation else None, head.events_sent)
        self._answer = ResponseBuilder(head, params, ledger, inputs, self._frames)
        self._ledger, self._events_sent, self._started = ledger, head.events_sent, False

    def start(self) -> bytes:
        """Return the first events, unless the client has received them already."""
        self._started = True
        if not self._events_sent:
            event_stream.write_in_progress(self._frames, self._answer.begun)
        return self._frames.take()

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames of events of one type, at least one."""
        self._answer.take(events)
        return self._frames.take()

    def keep_alive(self) -> bytes:
        """Return an event that repeats that the response is in progress."""
        self._frames.write_event("response.in_progress", response=self._answer.begun)
        return self._frames.take()

    def stored_object(self) -> JsonObject | None:
        """Return the Response to store; None if the client has received no event of it."""
        return self._answer.stored_response() if self._started else None

    def close(self, *, stored: bool) -> bytes:
        """Return the final event and the end of the stream.

        stored: the response is stored.
        """
        text = self._ledger.take_unsent() if self._started else ""  # without a start there is no stream to comment on
        comment = b": gateway-warnings %b\n\n" % text.encode() if text else b""
        event_stream.write_final(self._frames, self._answer.response(stored=stored))
        return comment + self._frames.take_last()


class ResponseBodyEncoder(WholeEncoder):
    """Encode a response as one Response object."""

    def __init__(self, head: ResponseHead, params: ResponseParams, ledger: Warnings, inputs: EncoderInputs) -> None:
        self._answer = ResponseBuilder(head, params, ledger, inputs, NullEventWriter())

    def encode(self, events: Sequence[Event]) -> bytes:
        """Collect events of one type, and return no bytes."""
        self._answer.take(events)
        return b""

    def stored_object(self) -> JsonObject | None:
        """Return the Response to store; None after a failure, because the client gets an error response instead."""
        return None if self._answer.failed else self._answer.stored_response()

    def close(self, *, stored: bool) -> bytes:
        """Return the body; empty after a failure.

        stored: the response is stored.
        """
        return b"" if self._answer.failed else encode(self._answer.response(stored=stored))
