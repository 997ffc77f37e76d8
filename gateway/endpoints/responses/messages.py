"""Write the messages of a WebSocket connection: events and errors."""

from typing import Any

from gateway.endpoints.responses.log import event_payloads
from gateway.endpoints.responses.shape import JsonObject, encode
from gateway.errors import Problem

_ERROR = b'{"type":"error",'
_NOT_STEERED = "This gateway does not steer responses: send the input with the next 'response.create'."


def event_messages(data: bytes, stream_id: str | None = None) -> list[str]:
    """One of each event in whole frames of an event stream, for the lane that its request named.

    An `error` is left out: here it ends a turn, and so does the `response.failed` behind it, which says the same.
    """
    lane = encode(_stream_id_member(stream_id))[1:-1]
    said = (payload for payload in event_payloads(data) if not payload.startswith(_ERROR))
    return [(b"%b,%b}" % (payload[:-1], lane) if lane else payload).decode() for payload in said]


def error_message(problem: Problem, stream_id: str | None = None) -> str:
    """For what would have had a status of its own over HTTP."""
    said = {"type": "error", "status": problem.status, **_stream_id_member(stream_id), "error": problem.error()}
    return encode(said).decode()


def warnings_message(entries: list[str], stream_id: str | None = None) -> str:
    """Return a message with the warnings.  The API has no such message."""
    return encode({"type": "gateway:warnings", **_stream_id_member(stream_id), "warnings": entries}).decode()


def steer_failed_message(event: dict[str, Any], stream_id: str | None = None) -> str:
    """The answer to `response.steer`, which gives the input back."""
    error = {"type": "invalid_request_error", "code": "steering_not_supported", "message": _NOT_STEERED}
    steer = {name: event.get(name, "") for name in ("input", "previous_response_id")}
    said = {
        "type": "response.steer.failed",
        "sequence_number": 0,
        **_stream_id_member(stream_id),
        "error": error,
        "steer": steer,
    }
    return encode(said).decode()


def _stream_id_member(stream_id: str | None) -> JsonObject:
    return {} if stream_id is None else {"stream_id": stream_id}
