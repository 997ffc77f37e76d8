"""Encode a large body in steps: one call of the encoder for 32 MB would keep everything else from running."""

from collections.abc import Iterator
from typing import Any

from msgspec import json

_STEP = 1 << 20  # characters of a text, which take some milliseconds
_DEEPEST = 8  # levels that may hold a large text: body, messages, message, content, part, member of it, two more

_encode = json.Encoder().encode


def encoded(body: dict[str, Any], step: int = _STEP, levels: int = _DEEPEST) -> bytes:
    """Return what the encoder returns.  Each element of a list is a step, and so is so much of a text."""
    whole = bytearray()  # of which no piece is kept, as a list would keep them
    for piece in _object(body, step, levels):
        whole += piece
    return bytes(whole)


def _pieces(value: Any, step: int, levels: int) -> Iterator[bytes]:  # noqa: ANN401 - decoded JSON
    if not _holds_large(value, step, levels):
        yield _encode(value)
    elif isinstance(value, str):
        yield b'"'
        for start in range(0, len(value), step):
            yield _encode(value[start : start + step])[1:-1]
        yield b'"'
    elif isinstance(value, dict):
        yield from _object(value, step, levels - 1)
    else:
        yield from _list(value, step, levels - 1)


def _object(value: dict[str, Any], step: int, levels: int) -> Iterator[bytes]:
    yield b"{"
    for place, (name, member) in enumerate(value.items()):
        yield b"," * (place > 0) + _encode(name) + b":"
        yield from _list(member, step, levels) if isinstance(member, list) else _pieces(member, step, levels)
    yield b"}"


def _list(value: list[Any], step: int, levels: int) -> Iterator[bytes]:
    yield b"["
    for place, element in enumerate(value):
        if place:
            yield b","
        yield from _pieces(element, step, levels)
    yield b"]"


def _holds_large(value: Any, step: int, levels: int) -> bool:  # noqa: ANN401 - decoded JSON
    """Return whether a text in it takes more than a step, as far as these levels go."""
    if isinstance(value, str):
        return len(value) > step
    if not levels or not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return any(_holds_large(each, step, levels - 1) for each in inner)
