"""A request's body, decoded once from its bytes, and what both APIs say alike of its parameters."""

import re
from typing import Any

from msgspec import DecodeError, json

from gateway.endpoints.checks import list_of, object_, string, string_of, too_many_members, wrong_type
from gateway.endpoints.counts import COUNTS, Counts
from gateway.errors import BadRequest

_SLICE = 1 << 20  # bytes that are looked at in one step
_DEEPEST = 600  # lists and objects in each other: what else is done with a body goes a little deeper than reading it
_decode = json.Decoder().decode
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)


def decode_body(raw: bytes, counts: Counts = COUNTS) -> dict[str, Any]:
    """Return a client's body without its null members, which count as absent.

    Raise BadRequest for what is no object, and TooLarge for too many values.
    """
    size = len(raw)
    if size <= counts.items and size <= counts.parts:
        return known(raw)
    counts.check_raw(raw)
    body = known(raw)
    counts.check_lists(body)
    return body


def known(raw: bytes) -> dict[str, Any]:
    """Return a body that was let in before, likewise."""
    try:
        body = _decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"We could not parse the JSON body of your request. ({fault(raw, error)})") from None
    if len(raw) > _DEEPEST and _opens_often(raw) and _is_deep([body]):
        raise BadRequest(f"The JSON body of your request is nested more than {_DEEPEST} levels deep.")
    if not isinstance(body, dict):
        raise wrong_type(body, "body", "an object")
    return {name: value for name, value in body.items() if value is not None} if None in body.values() else body


def fault(raw: bytes, error: Exception) -> str:
    """Return why JSON could not be parsed; the parser calls half a surrogate pair truncated data."""
    found = next((escape for escape in _ESCAPES.finditer(raw) if escape[1]), None)
    if not found:
        return f"The parser said: {error}."
    place = f"{found[1].decode()} at byte {found.start()}"
    return f"A string has the lone surrogate {place}. Half of a surrogate pair is no text."


def _opens_often(raw: bytes) -> bool:
    """Return whether so many lists and objects may begin in it that they may be too deep in each other.

    They are counted by what is left without them, which takes a fifth of what `count` does.
    """
    opened = 0
    for start in range(0, len(raw), _SLICE):
        piece = raw[start : start + _SLICE]
        opened += 2 * len(piece) - len(piece.replace(b"[", b"")) - len(piece.replace(b"{", b""))
        if opened > _DEEPEST:
            return True
    return False


def _is_deep(level: list[Any]) -> bool:
    """Level by level, of lists and objects alone: a tenth of what it takes to read them."""
    depth = 0
    while level and depth < _DEEPEST:
        inner = [list(one.values()) if type(one) is dict else one for one in level]
        level = [each for one in inner for each in one if type(each) is dict or type(each) is list]
        depth += 1
    return bool(level)


def check_stream_options(body: dict[str, Any]) -> None:
    """They mean nothing without a stream."""
    if "stream_options" in body and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise BadRequest(message, param="stream_options")


def check_stop(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """One string, or a list of them."""
    if not isinstance(value, str):
        list_of(string)(value, param)


def check_metadata(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    object_(value, param)
    if len(value) > 16:
        raise too_many_members(value, param, 16)
    for key, text in value.items():
        string_of(64)(key, f"{param}.{key[:64]}")
        string_of(512)(text, f"{param}.{key}")


def check_moderation(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    object_(value, param)
    policy = value.get("policy")
    sides = policy.values() if isinstance(policy, dict) else ()
    if any(isinstance(side, dict) and side.get("mode") == "block" for side in sides):
        message = "Moderation that blocks is not supported: no moderation engine is configured."
        raise BadRequest(message, code="unsupported_value", param=param)
