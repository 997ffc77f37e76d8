"""Encode a large body in steps, as one encoder call for 32 MB would block everything else."""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from msgspec import json

from gateway.request import SentTexts

_STEP = 1 << 16  # characters of text: the heap and the cache have room for them, and for what they are encoded to
_COPIED = 1 << 23  # bytes of a text that is not encoded: copying them takes a millisecond or two
_TOGETHER = 100  # most list elements in one encoder call
_DEEPEST = 8  # levels that may hold a large text: body, messages, message, content, part, its member, two more

_NO_TEXTS: SentTexts = {}

_encode = json.Encoder().encode
Piece = bytes | memoryview


def encoded(body: dict[str, Any], texts: SentTexts = _NO_TEXTS, step: int = _STEP, levels: int = _DEEPEST) -> bytes:
    """Encode a body to the same bytes as the encoder in one call.

    texts: long texts whose JSON is known.
    step: the most characters per encoder call; a longer text is split, and list elements are grouped up to it.
    levels: the depth to which long texts are looked for.
    """
    whole = BytesIO()  # grows in place and gives its bytes away without a copy
    whole.writelines(_object(body, texts, step, levels))
    return whole.getvalue()


def _pieces(value: Any, texts: SentTexts, step: int, levels: int) -> Iterator[Piece]:  # noqa: ANN401 - decoded JSON
    if _size(value, levels) <= step:
        yield _encode(value)
    elif id(value) in texts:
        sent = texts[id(value)][1]
        yield from (sent[start : start + _COPIED] for start in range(0, len(sent), _COPIED))
    elif isinstance(value, str):
        yield b'"'
        for start in range(0, len(value), step):
            yield _inner(value[start : start + step])
        yield b'"'
    elif isinstance(value, dict):
        yield from _object(value, texts, step, levels - 1)
    else:
        yield from _list(value, texts, step, levels - 1)


def _object(value: dict[str, Any], texts: SentTexts, step: int, levels: int) -> Iterator[Piece]:
    yield b"{"
    for place, (name, member) in enumerate(value.items()):
        yield b"," * (place > 0) + _encode(name) + b":"
        yield from (
            _list(member, texts, step, levels) if isinstance(member, list) else _pieces(member, texts, step, levels)
        )
    yield b"}"


def _list(value: list[Any], texts: SentTexts, step: int, levels: int) -> Iterator[Piece]:
    yield b"["
    for place, some in enumerate(_portions(value, step, levels)):
        if place:
            yield b","
        if len(some) == 1:
            yield from _pieces(some[0], texts, step, levels)
        else:
            yield _inner(some)
    yield b"]"


def _inner(value: str | list[Any]) -> memoryview:
    """Return the encoded text or list without its quotes or brackets; a slice of bytes would copy it."""
    return memoryview(_encode(value))[1:-1]


def _portions(value: list[Any], step: int, levels: int) -> Iterator[list[Any]]:
    """Cut a list into portions: single elements, or several that together do not exceed a step."""
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
    """Return the characters of the texts in a value, down to this many levels."""
    if type(value) is str:
        return len(value)
    if not levels or type(value) not in (dict, list):
        return 0
    inner = value.values() if type(value) is dict else value
    return sum([len(each) if type(each) is str else _size(each, levels - 1) for each in inner])
