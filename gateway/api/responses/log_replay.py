"""Read the log of an interrupted response: restore its output, and write the missing end."""

from collections.abc import Iterable
from typing import Any

from msgspec import json

from gateway.api.responses import event_stream
from gateway.api.responses.event_stream import EventWriter, NullEventWriter, count_events, event_payloads, events_after
from gateway.api.responses.objects import JsonObject
from gateway.api.responses.output_items import (
    HOSTED,
    BuiltinCallItem,
    CompleteItem,
    ItemStatus,
    MessageItem,
    ReasoningItem,
    ReasoningTextPart,
    ToolCallItem,
)
from gateway.errors import Problem
from gateway.events import Logprob, TopLogprob

_STATUSES = {"invalid_request_error": 400, "rate_limit_error": 429}
_ITEM_STATUSES: dict[str, ItemStatus] = {"completed": "completed", "failed": "failed"}
_Item = MessageItem | ReasoningItem | ToolCallItem | BuiltinCallItem | CompleteItem


class LogReplay:
    """Restore a response: call feed for the log, then, unless it has `ended`, fail and close.

    accepted: the Response object before its first event.
    next_event_number: the number of the next event.
    has_output: the log has more than the events of the start.
    ended: the Response of the last event, if the log has it.
    """

    def __init__(self, accepted: JsonObject) -> None:
        self.next_event_number, self.has_output = 0, False
        self.ended: JsonObject | None = None
        self._begun: JsonObject = {**accepted, "status": "in_progress"}
        self._record: JsonObject = {}
        self._frames = EventWriter()
        self._output: list[JsonObject] = []  # items that have ended
        self._open: _Item | None = None
        self._closed = 0  # the number of its end events in the log
        self._status: ItemStatus = "incomplete"  # of the open item, unless the log has another
        self._problem: Problem | None = None  # of the error event in the log

    def feed(self, data: bytes) -> None:
        """Read whole frames in order.  Frames before the first of them are unknown."""
        for payload in event_payloads(data):
            self._take(json.decode(payload))
        self._frames.take()  # the log has these events already

    def fail(self, problem: Problem) -> tuple[JsonObject, bytes]:
        """Return the Response to store, and the events that the log lacks before the final one.

        The open item becomes incomplete.
        """
        self._frames.restart_at(0)
        event_stream.write_in_progress(self._frames, self._begun)
        output = self._untold(0)
        self._frames.restart_at(first := self.next_event_number - self._closed)
        if self._open:
            self._output.append(self._open.close(self._status))
        end = (
            event_stream.write_failed(NullEventWriter(), self._problem)
            if self._problem
            else event_stream.write_failed(self._frames, problem)
        )
        output += self._untold(first)
        self._record = {**self._begun, **end, "output": self._output}
        return self._record, output

    def close(self, *, stored: bool) -> bytes:
        """Return the final event.

        stored: the response is stored.
        """
        return event_stream.final_event(
            {**self._record, "store": stored and self._record["store"]}, self.next_event_number
        )

    def _untold(self, first: int) -> bytes:
        """Return the written events numbered from this on, without the events in the log."""
        new = events_after(self._frames.take(), first, self.next_event_number - 1)
        self.next_event_number += count_events(new)
        return new

    def _take(self, event: JsonObject) -> None:
        number, response = event["sequence_number"], event.get("response")
        self.has_output |= number > self.next_event_number  # the missing events may be output
        self.next_event_number = number + 1
        if response and response["status"] in ("queued", "in_progress"):
            return
        self.has_output = True
        match event["type"]:
            case "response.output_item.added":
                self._open = _opened(self._frames, event["output_index"], event["item"])
            case "response.output_item.done":
                self._output.append(event["item"])
                self._open, self._closed, self._status = None, 0, "incomplete"
            case "error":
                self._problem = _problem(event["error"])
            case "response.completed" | "response.incomplete" | "response.failed":
                self.ended = response
            case type:
                self._within(type, event)

    def _within(self, type: str, event: JsonObject) -> None:
        """Read an event of the open item.  Events of its end are counted, because `fail` writes all of them again."""
        item = self._open
        if isinstance(item, MessageItem) and type == "response.content_part.done":
            item.ended(event["part"])
            self._closed = 0
        elif isinstance(item, BuiltinCallItem) and (status := _ITEM_STATUSES.get(type.rpartition(".")[2])):
            self._closed, self._status = self._closed + 1, status
        elif self._closed or (item and type.endswith(".done")):
            self._closed += 1
        elif isinstance(item, MessageItem):
            _say(item, event)
        elif isinstance(item, ReasoningItem):
            self._think(item, event)
        elif isinstance(item, ToolCallItem | BuiltinCallItem) and "delta" in event:
            item.add_arguments(event["delta"])

    def _think(self, item: ReasoningItem, event: JsonObject) -> None:
        """Read an event of reasoning.  Its first part shows the carrier."""
        if "part" in event and event["part"]["type"] == ReasoningTextPart.type:
            self._open = item = ReasoningItem(self._frames, event["output_index"], event["item_id"], "text", _unsealed)
        item.text(event.get("delta", ""))


def _opened(frames: EventWriter, index: int, item: JsonObject) -> _Item:
    match item["type"]:
        case "message":
            return MessageItem(frames, index, item["id"])
        case "reasoning":
            return ReasoningItem(frames, index, item["id"], "both" if "content" in item else "summary", _unsealed)
        case "function_call" | "custom_tool_call":
            return ToolCallItem(frames, index, item)
    return (BuiltinCallItem if item["type"] in HOSTED else CompleteItem)(frames, index, item)


def _say(message: MessageItem, event: JsonObject) -> None:
    """Add to a message.  The start of a part has no text yet."""
    match event:
        case {"annotation": annotation}:
            message.annotate(annotation)
        case {"part": {"type": "refusal"}} | {"type": "response.refusal.delta"}:
            message.add_refusal(event.get("delta", ""))
        case _:
            message.text(event.get("delta", ""), logprobs=tuple(map(_logprob, event.get("logprobs") or ())))


def _logprob(data: JsonObject) -> Logprob:
    """Return a log-probability of an event, which has no bytes."""
    return Logprob(data["token"], data["logprob"], None, tuple(map(_candidate, data["top_logprobs"])))


def _candidate(data: JsonObject) -> TopLogprob:
    return TopLogprob(data["token"], data["logprob"], None)


def _unsealed(text: str, blocks: Iterable[dict[str, Any]]) -> None:
    """Return None: incomplete reasoning cannot be continued."""


def _problem(error: JsonObject) -> Problem:
    """Return the problem of an error event; the exact status is lost."""
    return Problem(_STATUSES.get(error["type"], 500), error["message"], error["code"], error["param"])
