"""How a response begins and how it ends: the events that carry all of it, and the one that says what went wrong."""

from gateway.endpoints.responses import shape
from gateway.endpoints.responses.asked import ResponseHead, ResponseParams
from gateway.endpoints.responses.frames import EventWriter
from gateway.endpoints.responses.shape import JsonObject
from gateway.errors import CANCELLED, Problem

_EVENTS = {"completed": "response.completed", "incomplete": "response.incomplete"}


def in_progress_response(head: ResponseHead, asked: ResponseParams) -> JsonObject:
    """The Response as long as it is in progress."""
    said = {"id": head.id, "object": "response", "created_at": head.created, "completed_at": None}
    state = {"status": "in_progress", "error": None, "incomplete_details": None}
    return {**said, **state, "model": head.model, "output": [], "usage": None, **asked.echo}


def created_events(head: ResponseHead, asked: ResponseParams) -> tuple[JsonObject, bytes]:
    """The Response as it is accepted, and the events that say so; in the background it is queued first."""
    frames = EventWriter()
    return write_in_progress(frames, in_progress_response(head, asked)), frames.taken()


def write_in_progress(frames: EventWriter, response: JsonObject) -> JsonObject:
    """Tell that it is in progress, and give what was told before that."""
    first = {**response, "status": "queued"} if response["background"] else response
    frames.put("response.created", response=first)
    if response["background"]:
        frames.put("response.queued", response=first)
    frames.put("response.in_progress", response=response)
    return first


def write_failed(frames: EventWriter, problem: Problem) -> JsonObject:
    """Tell what went wrong, and give how the response ends.  Of one that was cancelled there is nothing to be told.

    The event is flat and nested, as clients look for it in either place.
    """
    if problem.status == CANCELLED.status:
        return {"status": "cancelled"}
    error = problem.error()
    flat = {name: error[name] for name in ("code", "message", "param")}
    frames.put("error", **flat, error=error)
    return {"status": "failed", "error": shape.error_object(problem)}


def write_final(frames: EventWriter, response: JsonObject) -> None:
    """Tell what it came to; there is no event of a cancelled response."""
    frames.put(_EVENTS.get(response["status"], "response.failed"), response=response)


def final_event(response: JsonObject, number: int) -> bytes:
    """The last event, which has this number, of a response that is over."""
    frames = EventWriter(first=number)
    write_final(frames, response)
    return frames.taken()
