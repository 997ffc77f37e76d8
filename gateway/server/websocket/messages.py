"""Parse the messages of a WebSocket client, JSON objects with a type and a stream, and build events and errors."""

import re
from typing import Any

from msgspec import DecodeError, Raw, Struct, json

from gateway.api.body import COUNTS, Counts, decode_body, fault
from gateway.api.responses.event_stream import event_payloads
from gateway.api.responses.objects import JsonObject, encode
from gateway.api.validation import object_of, one_of
from gateway.errors import BadRequest, ClientError, Problem

_ERROR = b'{"type":"error",'
_NOT_STEERED = "The gateway does not support steering. Send the input with the next 'response.create'."
StreamId = str | None  # None: the stream without an id
_Members = dict[str, Raw]
_CREATE, _STEER, _PROCESSED = "response.create", "response.steer", "response.processed"
_check = object_of({"type": one_of(_CREATE, _STEER, _PROCESSED)})
_decode = json.Decoder(_Members).decode
_sound = re.compile("[A-Za-z0-9_.-]{1,256}").fullmatch
_NO_LANE = (
    "The 'stream_id' field must be a non-empty string with at most 256 characters and may only contain letters,"
    " numbers, underscores, hyphens, and periods."
)
_STREAMED = "Responses over a WebSocket are always streamed. Omit 'stream'."
_FOREGROUND = "Background responses are not supported over a WebSocket. Send the request by POST."


def event_messages(data: bytes, stream_id: str | None = None) -> list[str]:
    """Return a message for each event in whole frames of an event stream, with the id of its stream.

    An `error` event is left out: over a WebSocket it would end the response.  The `response.failed` event after it
    reports the same.
    """
    member = encode(_stream_id_member(stream_id))[1:-1]
    items = (payload for payload in event_payloads(data) if not payload.startswith(_ERROR))
    return [(b"%b,%b}" % (payload[:-1], member) if member else payload).decode() for payload in items]


def error_message(problem: Problem, stream_id: str | None = None) -> str:
    """Return the message for an error that would have a status of its own over HTTP."""
    fields = {"type": "error", "status": problem.status, **_stream_id_member(stream_id), "error": problem.error()}
    return encode(fields).decode()


def warnings_message(entries: list[str], stream_id: str | None = None) -> str:
    """Return a message with the warnings.  The API has no such message."""
    return encode({"type": "gateway:warnings", **_stream_id_member(stream_id), "warnings": entries}).decode()


def steer_failed_message(event: dict[str, Any], stream_id: str | None = None) -> str:
    """Return the reply to `response.steer`, which contains its input."""
    error = {"type": "invalid_request_error", "code": "steering_not_supported", "message": _NOT_STEERED}
    steer = {name: event.get(name, "") for name in ("input", "previous_response_id")}
    fields = {
        "type": "response.steer.failed",
        "sequence_number": 0,
        **_stream_id_member(stream_id),
        "error": error,
        "steer": steer,
    }
    return encode(fields).decode()


def _stream_id_member(stream_id: str | None) -> JsonObject:
    return {} if stream_id is None else {"stream_id": stream_id}


class CreateMessage(Struct, frozen=True):
    """A request for a response.  body: as for a POST; previous: the id of the response that it continues."""

    stream_id: StreamId
    body: bytes
    previous: str | None = None


class InvalidMessage(Struct, frozen=True):
    """A message that is rejected with a problem."""

    stream_id: StreamId
    problem: Problem
    body: bytes = b""


class SteerMessage(Struct, frozen=True):
    """A message that would steer a running response."""

    stream_id: StreamId
    event: dict[str, Any]


def parse_message(data: str | bytes, counts: Counts = COUNTS) -> CreateMessage | InvalidMessage | SteerMessage | None:
    """Parse a message; return None for one without an effect."""
    stream_id, raw = None, data if isinstance(data, bytes) else data.encode()
    try:
        counts.check_raw(raw)
        members = _decode(raw)
        stream_id = _parse_stream_id(members)
        kind = _value(members, "type")
        _check({"type": kind}, "")
        if kind == _CREATE:
            return _create(members, stream_id)
        return SteerMessage(stream_id, decode_body(raw, counts)) if kind == _STEER else None
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"We could not parse the JSON object of your message. ({fault(raw, error)})"
        return InvalidMessage(stream_id, BadRequest(message).problem)
    except ClientError as error:
        return InvalidMessage(stream_id, error.problem)


def _parse_stream_id(members: _Members) -> StreamId:
    name = _value(members, "stream_id")
    if name is not None and not (isinstance(name, str) and _sound(name)):
        raise BadRequest(_NO_LANE, code="invalid_stream_id", param="stream_id")
    return name


def _create(members: _Members, stream_id: StreamId) -> CreateMessage:
    """Parse a request.  Its parameters stay bytes.  `stream: true` is allowed, as some clients send it."""
    stream, background = _value(members, "stream"), _value(members, "background")
    if not (stream is None or stream is True):
        raise BadRequest(_STREAMED, code="unsupported_value", param="stream")
    if not (background is None or background is False):
        raise BadRequest(_FOREGROUND, code="unsupported_value", param="background")
    body = {name: value for name, value in members.items() if name not in ("type", "stream_id")}
    previous = _value(members, "previous_response_id")
    return CreateMessage(
        stream_id, json.encode({**body, "stream": True}), previous if isinstance(previous, str) else None
    )


def _value(members: _Members, name: str) -> Any:  # noqa: ANN401 - decoded JSON
    return json.decode(members[name]) if name in members else None
