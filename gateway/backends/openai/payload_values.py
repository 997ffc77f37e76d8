"""Read values of a payload that backends write in several forms."""

from collections.abc import Callable
from typing import TypeVar

from msgspec import DecodeError, Raw, json

from gateway.backends.openai import unknown_fields, wire
from gateway.backends.openai.json_repair import mended
from gateway.backends.openai.unknown_fields import Members

_Value = TypeVar("_Value")
DONE = b"[DONE]"  # the beginning of the payload that ends a stream; the SDKs ignore what follows it
DONE_SIZE = len(DONE)
_string = json.Decoder(str).decode
_IN_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_LONGEST_DOUBLE = 308  # digits before the decimal point


def split_members(members: Members, *, ended: bool) -> tuple[Members, Members]:
    """Split the members of a choice: lists stand before its text, all others belong to its end."""
    if not ended:
        return members, {}
    first = {name: value for name, value in members.items() if bytes(value)[:1] == b"["}
    return first, {name: value for name, value in members.items() if name not in first}


def text_of_details(details: object) -> str:
    """Return the text of `reasoning_details`, as OpenRouter and MiniMax write them."""
    items = [one for one in details if isinstance(one, dict)] if isinstance(details, list) else []
    return "".join(str(one.get("text") or one.get("summary") or "") for one in items)


def are_text_only(details: object) -> bool:
    """Return True if `reasoning_details` hold only text, which is read."""
    items = details if isinstance(details, list) else [None]
    return all(isinstance(one, dict) and not (one.get("signature") or one.get("data")) for one in items)


def error_without_label(payload: bytes) -> object:
    """Return a payload that is an error object without an `error` member; None for any other."""
    try:
        data = json.decode(mended(payload))
    except (DecodeError, RecursionError):
        return None
    known = (
        isinstance(data, dict)
        and isinstance(data.get("message"), str)
        and data.keys().isdisjoint(unknown_fields.OF_CHUNK)
    )
    return data if known else None


def read_mended(payload: bytes, read: Callable[[bytes], _Value]) -> _Value:
    """Read a payload; if it is invalid JSON, repair it first."""
    try:
        return read(payload)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return read(mended(payload))


def is_complete_payload(payload: bytes) -> bool:
    """Return False for data that is only the beginning of a payload."""
    if payload[:DONE_SIZE] == DONE:
        return True
    try:
        json.decode(mended(payload))
    except (DecodeError, RecursionError):
        return False
    return True


def reasoning_text(thought: str | list[wire.WirePart] | None) -> str:
    """Return reasoning that is a text, or a list of parts, as one text."""
    return thought if isinstance(thought, str) else "".join(part.text or "" for part in thought or ())


def arguments_text(raw: bytes) -> str:
    """Return the arguments of a string, as in the API, or of an object.

    The word null inside a string is a piece like any other.
    """
    if raw == b"null":
        return ""
    try:
        return _string(raw) if raw[:1] == b'"' else raw.decode()
    except (DecodeError, UnicodeDecodeError):  # Raw members have not been decoded before
        return arguments_text(mended(raw))


def passable_value(value: Raw) -> Raw:
    """Return a value unchanged if it is valid text in one line without infinite numbers, else repaired."""
    raw = bytes(value)
    if b"\n" in raw or b"\r" in raw:  # white space; an empty line would end the client's SSE event
        raw = raw.translate(_IN_ONE_LINE)
    try:
        raw.decode()
        if b"e" in raw or b"E" in raw or len(raw) > _LONGEST_DOUBLE:
            json.decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return Raw(mended(raw))
    return Raw(raw)


def finish_reason(data: object) -> str:
    """Return the finish reason; some servers wrap it in an object, or send true or false."""
    if isinstance(data, dict):
        data = data.get("type") or data.get("reason") or "stop"
    return "stop" if data is True else str(data or "")
