"""Write the numbered response.* events of a stream, and read them back from its log.

The log of a response is its event stream as bytes, without the final `[DONE]`.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count

from msgspec import Raw, Struct

from gateway.api.responses import objects
from gateway.api.responses.objects import JsonObject, encode
from gateway.api.responses.params import ResponseHead, ResponseParams
from gateway.errors import CANCELLED, Problem

_END = b"}\n\n"
_EVENTS = {"completed": "response.completed", "incomplete": "response.incomplete"}
DONE = b"data: [DONE]\n\n"
_FRAME_END = b"\n\n"  # encoded JSON holds no line breaks
_DATA = b"\ndata: "
_LONG = ("instructions", "tools")  # members of an agent's request
_WARNINGS = b": gateway-warnings "


class DeltaTemplate(Struct, frozen=True, gc=False):
    """The bytes that all deltas of one run share: before their number, and between number and text."""

    before: bytes
    after: bytes


def delta_template(type: str, at: JsonObject) -> DeltaTemplate:
    """Return the template for deltas of this event type and these position members."""
    name = type.encode()
    return DeltaTemplate(
        b'event: %b\ndata: {"type":"%b","sequence_number":' % (name, name), b',%b,"delta":' % encode(at)[1:-1]
    )


class EventWriter:
    """Collect written events until `take` returns their bytes.

    pad: returns the padding of a delta; None for no padding.
    first: the number of the first event.
    """

    def __init__(self, pad: Callable[[], str] | None = None, first: int = 0) -> None:
        self._numbers, self._pad = count(first), pad
        self._out: list[bytes] = []

    def write_event(self, type: str, **fields: object) -> None:
        """Write an event with the next number."""
        body = {"type": type, "sequence_number": next(self._numbers), **fields}
        self._out += (b"event: %b\ndata: " % type.encode(), encode(body), _FRAME_END)  # one copy of a long event less

    def write_deltas(self, like: DeltaTemplate, texts: Iterable[str], more: bytes) -> None:
        """Write a delta event for each text.

        more: further members of each, encoded with a comma in front.
        """
        before, after, pad, end = like.before, like.after, self._pad, more + _END
        for text, number in zip(texts, self._numbers, strict=False):
            if pad:
                end = b'%b,"obfuscation":%b%b' % (more, encode(pad()), _END)
            self._out.append(b"%b%d%b%b%b" % (before, number, after, encode(text), end))

    def take(self) -> bytes:
        """Return the frames written since the last call."""
        frames = b"".join(self._out)
        self._out.clear()
        return frames

    def take_last(self) -> bytes:
        """Return the frames written since the last call, and the end of the stream."""
        self._out.append(DONE)
        return self.take()

    def restart_at(self, number: int) -> None:
        """Discard the written events, and give the next one this number."""
        self._out.clear()
        self._numbers = count(number)


class NullEventWriter(EventWriter):
    """An event writer that discards all events, for a whole body."""

    def write_event(self, type: str, **fields: object) -> None:
        """Discard the event."""

    def write_deltas(self, like: DeltaTemplate, texts: Iterable[str], more: bytes) -> None:
        """Discard the deltas."""


def in_progress_response(head: ResponseHead, params: ResponseParams) -> JsonObject:
    """Return the Response object while it is in progress."""
    fields = {"id": head.id, "object": "response", "created_at": head.created, "completed_at": None}
    state = {"status": "in_progress", "error": None, "incomplete_details": None}
    return {**fields, **state, "model": head.model, "output": [], "usage": None, **_encoded_once(params.echo)}


def _encoded_once(echo: JsonObject) -> JsonObject:
    """Return the members that repeat the request, with the long ones as JSON: three events and the store have them."""
    long = {name: Raw(encode(value)) for name in _LONG if (value := echo[name])}
    return {**echo, **long} if long else echo


def created_events(head: ResponseHead, params: ResponseParams) -> tuple[JsonObject, bytes]:
    """Return the Response object of an accepted request, and its first events.

    A background response is queued first.
    """
    frames = EventWriter()
    return write_in_progress(frames, in_progress_response(head, params)), frames.take()


def write_in_progress(frames: EventWriter, response: JsonObject) -> JsonObject:
    """Write the events of the start, and return the Response as the first event shows it."""
    first = {**response, "status": "queued"} if response["background"] else response
    frames.write_event("response.created", response=first)
    if response["background"]:
        frames.write_event("response.queued", response=first)
    frames.write_event("response.in_progress", response=response)
    return first


def write_failed(frames: EventWriter, problem: Problem) -> JsonObject:
    """Write the error event, and return the members of a failed or cancelled response.

    A cancelled response has no event.  The event holds the error both flat and nested, because clients look in either
    place.
    """
    if problem.status == CANCELLED.status:
        return {"status": "cancelled"}
    error = problem.error()
    flat = {name: error[name] for name in ("code", "message", "param")}
    frames.write_event("error", **flat, error=error)
    return {"status": "failed", "error": objects.error_object(problem)}


def write_final(frames: EventWriter, response: JsonObject) -> None:
    """Write the final event of a response; a cancelled response has none."""
    frames.write_event(_EVENTS.get(response["status"], "response.failed"), response=response)


def final_event(response: JsonObject, number: int) -> bytes:
    """Return the final event of a finished response, with this number."""
    frames = EventWriter(first=number)
    write_final(frames, response)
    return frames.take()


def error_event(problem: Problem, number: int) -> bytes:
    """Return the event of a problem that ends a stream, with this number."""
    frames = EventWriter(first=number)
    write_failed(frames, problem)
    return frames.take()


def count_events(data: bytes) -> int:
    """Return the number of events in whole frames; comments do not count."""
    return data.count(_DATA)


def event_payloads(data: bytes) -> Iterator[bytes]:
    """Yield the JSON of each event in whole frames."""
    for frame in data.split(_FRAME_END):
        _, found, payload = frame.partition(_DATA)
        if found:
            yield payload


def warning_comments(data: bytes) -> list[str]:
    """Return the warnings in comments among whole frames."""
    items = (frame.removeprefix(_WARNINGS).decode() for frame in data.split(_FRAME_END) if frame.startswith(_WARNINGS))
    return [entry for entries in items for entry in entries.split(", ")]


def events_after(data: bytes, first: int, after: int) -> bytes:
    """Return the events after number `after` in whole frames.

    first: the number of the first event in the data.
    A comment stays with the event that follows it.
    """
    start = end = 0
    while first <= after and end < len(data):
        comment = data.startswith(b":", end)
        end = data.index(_FRAME_END, end) + len(_FRAME_END)
        if not comment:
            first, start = first + 1, end
    return data[start:] if first > after else b""
