"""Write the numbered response.* events of a stream, and read them back from its log.

The log of a response is its event stream as bytes, without the mark of its end.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count

from msgspec import Struct

from gateway.api.responses import objects
from gateway.api.responses.objects import JsonObject, encode
from gateway.api.responses.params import ResponseHead, ResponseParams
from gateway.errors import CANCELLED, Problem

_END = b"}\n\n"
_EVENTS = {"completed": "response.completed", "incomplete": "response.incomplete"}
DONE = b"data: [DONE]\n\n"
_FRAME_END = b"\n\n"  # of a frame; JSON has no line breaks of its own
_DATA = b"\ndata: "
_WARNINGS = b": gateway-warnings "


class DeltaTemplate(Struct, frozen=True, gc=False):
    """The bytes that all deltas of one run share: before their number, and from there to their text."""

    before: bytes
    after: bytes


def delta_template(type: str, at: JsonObject) -> DeltaTemplate:
    name = type.encode()
    return DeltaTemplate(
        b'event: %b\ndata: {"type":"%b","sequence_number":' % (name, name), b',%b,"delta":' % encode(at)[1:-1]
    )


class EventWriter:
    """`put` what happens, then `taken` is what to send.

    pad: makes the padding of a delta; None: there is none.  first: the number of the first event.
    """

    def __init__(self, pad: Callable[[], str] | None = None, first: int = 0) -> None:
        self._numbers, self._pad = count(first), pad
        self._out: list[bytes] = []

    def write_event(self, type: str, **fields: object) -> None:
        body = {"type": type, "sequence_number": next(self._numbers), **fields}
        self._out.append(b"event: %b\ndata: %b\n\n" % (type.encode(), encode(body)))

    def write_deltas(self, like: DeltaTemplate, texts: Iterable[str], more: bytes) -> None:
        """One for each text.  more: further members, each behind a comma."""
        before, after, end, pad = like.before, like.after, more + _END, self._pad
        numbered = zip(texts, self._numbers, strict=False)
        if pad is None:
            self._out += [b"%b%d%b%b%b" % (before, number, after, encode(text), end) for text, number in numbered]
            return
        for text, number in numbered:
            padding = b',"obfuscation":%b' % encode(pad())
            self._out.append(b"%b%d%b%b%b%b%b" % (before, number, after, encode(text), more, padding, _END))

    def take(self) -> bytes:
        frames = b"".join(self._out)
        self._out.clear()
        return frames

    def restart_at(self, number: int) -> None:
        """Forget the written events, and give the next one this number."""
        self._out.clear()
        self._numbers = count(number)


class NullEventWriter(EventWriter):
    """An event writer without a reader."""

    def write_event(self, type: str, **fields: object) -> None: ...

    def write_deltas(self, like: DeltaTemplate, texts: Iterable[str], more: bytes) -> None: ...


def in_progress_response(head: ResponseHead, params: ResponseParams) -> JsonObject:
    """The Response as long as it is in progress."""
    fields = {"id": head.id, "object": "response", "created_at": head.created, "completed_at": None}
    state = {"status": "in_progress", "error": None, "incomplete_details": None}
    return {**fields, **state, "model": head.model, "output": [], "usage": None, **params.echo}


def created_events(head: ResponseHead, params: ResponseParams) -> tuple[JsonObject, bytes]:
    """The Response as it is accepted, and the events that say so; in the background it is queued first."""
    frames = EventWriter()
    return write_in_progress(frames, in_progress_response(head, params)), frames.take()


def write_in_progress(frames: EventWriter, response: JsonObject) -> JsonObject:
    """Tell that it is in progress, and give what was told before that."""
    first = {**response, "status": "queued"} if response["background"] else response
    frames.write_event("response.created", response=first)
    if response["background"]:
        frames.write_event("response.queued", response=first)
    frames.write_event("response.in_progress", response=response)
    return first


def write_failed(frames: EventWriter, problem: Problem) -> JsonObject:
    """Tell what went wrong, and give how the response ends.  Of one that was cancelled there is nothing to be told.

    The event is flat and nested, as clients look for it in either place.
    """
    if problem.status == CANCELLED.status:
        return {"status": "cancelled"}
    error = problem.error()
    flat = {name: error[name] for name in ("code", "message", "param")}
    frames.write_event("error", **flat, error=error)
    return {"status": "failed", "error": objects.error_object(problem)}


def write_final(frames: EventWriter, response: JsonObject) -> None:
    """Tell what it came to; there is no event of a cancelled response."""
    frames.write_event(_EVENTS.get(response["status"], "response.failed"), response=response)


def final_event(response: JsonObject, number: int) -> bytes:
    """The last event, which has this number, of a response that is over."""
    frames = EventWriter(first=number)
    write_final(frames, response)
    return frames.take()


def count_events(data: bytes) -> int:
    """How many events whole frames have; comments are none."""
    return data.count(_DATA)


def event_payloads(data: bytes) -> Iterator[bytes]:
    """The JSON of each event of whole frames."""
    for frame in data.split(_FRAME_END):
        _, found, payload = frame.partition(_DATA)
        if found:
            yield payload


def warning_comments(data: bytes) -> list[str]:
    """Return the warnings in comments among whole frames."""
    items = (frame.removeprefix(_WARNINGS).decode() for frame in data.split(_FRAME_END) if frame.startswith(_WARNINGS))
    return [entry for entries in items for entry in entries.split(", ")]


def events_after(data: bytes, first: int, after: int) -> bytes:
    """Return the events behind number `after` in whole frames, whose first event has the number `first`.

    A comment is kept where the event is that follows it.
    """
    start = end = 0
    while first <= after and end < len(data):
        comment = data.startswith(b":", end)
        end = data.index(_FRAME_END, end) + len(_FRAME_END)
        if not comment:
            first, start = first + 1, end
    return data[start:] if first > after else b""
