"""Encode a large body in steps: one call of the encoder for 32 MB would keep everything else from running."""

from collections.abc import Iterator
from typing import Any

from msgspec import json

_STEP = 1 << 20  # characters of a text, which take some milliseconds
_TOGETHER = 100  # elements of a list at most, in one call of the encoder
_DEEPEST = 8  # levels that may hold a large text: body, messages, message, content, part, member of it, two more

_encode = json.Encoder().encode


def encoded(body: dict[str, Any], step: int = _STEP, levels: int = _DEEPEST) -> bytes:
    """Return what the encoder returns.

    A step is a part of a text, or elements of a list that have no more text together.
    """
    whole = bytearray()  # of which no piece is kept, as a list would keep them
    for piece in _object(body, step, levels):
        whole += piece
    return bytes(whole)


def _pieces(value: Any, step: int, levels: int) -> Iterator[bytes]:  # noqa: ANN401 - decoded JSON
    if _size(value, levels) <= step:
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
    for place, some in enumerate(_portions(value, step, levels)):
        if place:
            yield b","
        if len(some) == 1:
            yield from _pieces(some[0], step, levels)
        else:
            yield _encode(some)[1:-1]
    yield b"]"


def _portions(value: list[Any], step: int, levels: int) -> Iterator[list[Any]]:
    """Cut a list into portions, each of one element or of several that are a step together."""
    some: list[Any] = []
    room = step
    for element in value:
        size = 1 + _size(element, levels)
        if some and (size > room or len(some) == _TOGETHER):
            yield some
            some, room = [], step
        some.append(element)
        room -= size
    if some:
        yield some


def _size(value: Any, levels: int) -> int:  # noqa: ANN401 - decoded JSON
    """Return the characters of the texts in it, as far as these levels go."""
    if type(value) is str:
        return len(value)
    if not levels or type(value) not in (dict, list):
        return 0
    inner = value.values() if type(value) is dict else value
    return sum([len(each) if type(each) is str else _size(each, levels - 1) for each in inner])
