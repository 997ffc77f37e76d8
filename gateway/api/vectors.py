"""Read and write vectors in slices: decoding holds the interpreter's lock, and the event loop waits meanwhile.

A vector is a list of numbers, or base64 of little-endian 32-bit floats.  Most vectors pass unchanged, so they stay
undecoded.
"""

import re
import struct
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import hypot
from typing import Any, TypeVar

from msgspec import DecodeError, Raw, json

from gateway.backends.data_urls import base64_slices

_SLICE = 1 << 19  # bytes of numbers that take some milliseconds to decode
_NUMBERS = 3 << 14  # that take some milliseconds to encode; the base64 of their bytes needs no padding
_FOLDED = 2048  # bytes of a list that is left out of a body
_OF_OTHERS = (b'"', b"{", b"u", b"f")  # in all elements but numbers and lists: text, objects, true, null, false
_OPENING = re.compile(rb"\[\s*([-\d\[])")
_EMPTY = re.compile(rb"\[\s*\]")
_END, _END_OF_TWO = re.compile(rb"\s*\]"), re.compile(rb"\]\s*\]")
_BETWEEN_NUMBERS, _BETWEEN_LISTS = b",", b"],"
_MARK = b'{"":'
_T = TypeVar("_T")
_vector = json.Decoder(str | list[float]).decode
_floats = json.Decoder(list[float]).decode
_vectors = json.Decoder(list[Raw]).decode
_check = json.Decoder(Raw).decode


def decode_folded(raw: bytes, decode: Callable[[bytes], _T]) -> tuple[_T, dict[bytes, Raw]]:
    """Decode a large body without its long lists of numbers; return it with these lists.

    An object with one nameless member stands for each list.  Raise DecodeError as `decode` does.
    """
    rest, lists = _folded(raw)
    if rest.count(_MARK) == len(lists):  # else the body has such objects of its own
        try:
            return decode(rest), lists
        except DecodeError:
            pass  # the error of the body itself has the right position
    return decode(raw), {}


def _folded(raw: bytes) -> tuple[bytes, dict[bytes, Raw]]:
    """Return a body with marks in place of its long lists of numbers, and these lists by their marks."""
    whole, rest, lists = memoryview(raw), list[memoryview | bytes](), dict[bytes, Raw]()
    done = place = 0
    while (start := raw.find(b"[", place)) >= 0:
        found = _OPENING.match(raw, start)
        place = _end(raw, start, nested=found[1] == b"[") if found else start + 1
        if found and place - start > _FOLDED and _holds_numbers(raw, start, place, nested=found[1] == b"["):
            mark = b"%b%d}" % (_MARK, len(lists))
            lists[mark] = Raw(whole[start:place])
            rest += whole[done:start], mark
            done = place
    return b"".join((*rest, whole[done:])), lists


def _end(raw: bytes, start: int, *, nested: bool) -> int:
    """Return the position behind a list of numbers, or of lists of numbers, that begins here."""
    place = raw.find(b"]", start)
    while nested and place >= 0 and not _END_OF_TWO.match(raw, place):
        place = raw.find(b"]", place + 1)
    found = _END_OF_TWO.match(raw, place) if nested and place >= 0 else None
    return found.end() if found else place + 1 or len(raw)


def _holds_numbers(raw: bytes, start: int, end: int, *, nested: bool) -> bool:
    """Return True if these bytes are a list of numbers, or of lists of numbers, in valid JSON."""
    try:
        for part in _slices(raw, start, end, _BETWEEN_LISTS if nested else _BETWEEN_NUMBERS):
            if any([mark in part for mark in _OF_OTHERS]):
                return False
            _check(part)
    except DecodeError:
        return False
    return True


def _slices(raw: bytes, start: int, end: int, between: bytes) -> Iterator[bytes]:
    """Yield a list as shorter ones.  between: the end of an element, and the comma."""
    first = b""
    while end - start > _SLICE:
        cut = raw.rfind(between, start, start + _SLICE)
        cut = raw.find(between, start + _SLICE, end) if cut < 0 else cut
        if cut < 0 or _END.match(raw, cut + len(between)):
            break
        yield b"%b%b]" % (first, raw[start : cut + len(between) - 1])
        start, first = cut + len(between), b"["
    yield first + raw[start:end]


def encoding_of(raw: bytes) -> str | None:
    """Return the encoding of a vector in valid JSON, without decoding it; None for another value.

    A list without text, lists, objects, booleans and null holds numbers alone.
    """
    if raw.startswith(b"["):
        return None if raw.find(b"[", 1) > 0 or any([mark in raw for mark in _OF_OTHERS]) else "float"
    return "base64" if raw.startswith(b'"') else None


def length_of(raw: bytes) -> int:
    """Return the length of a list of numbers."""
    return raw.count(b",") + (not _EMPTY.fullmatch(raw))


def decode_vector(raw: bytes) -> Sequence[float]:
    """Return the numbers of a vector.  Raise ValueError or struct.error for another value."""
    if len(raw) > _SLICE and encoding_of(raw) == "float":
        return _collected(map(_floats, _slices(raw, 0, len(raw), _BETWEEN_NUMBERS)))
    data = _vector(raw)
    if isinstance(data, list):
        return data
    return _collected(struct.unpack(f"<{len(part) // 4}f", part) for part in base64_slices(data))


def _collected(parts: Iterable[Iterable[float]]) -> Sequence[float]:
    """Return all numbers, without an object for each."""
    numbers = array("d")
    for part in parts:
        numbers.extend(part)
    return numbers


def vectors_in(raw: bytes) -> Iterator[bytes]:
    """Yield each vector of several, as there may be a thousand for an input.  Raise DecodeError for another value."""
    for part in _slices(raw, 0, len(raw), _BETWEEN_LISTS):
        yield from map(bytes, _vectors(part))


def encode_vector(numbers: Sequence[float], encoding: str) -> bytes:
    """Return a vector in this encoding.  Raise OverflowError or struct.error for a number that base64 cannot hold."""
    parts = _parts(numbers)
    if encoding == "base64":
        return b'"%b"' % b"".join([b64encode(struct.pack(f"<{len(part)}f", *part)) for part in parts])
    return b"[%b]" % b",".join([json.encode([*part])[1:-1] for part in parts])


def _parts(numbers: Sequence[float]) -> list[Sequence[float]]:
    return [numbers[i : i + _NUMBERS] for i in range(0, len(numbers), _NUMBERS)]


def shortened(numbers: Sequence[float], dimensions: int) -> Sequence[float]:
    """Return the first dimensions, scaled to length one again, as OpenAI's own models do."""
    if dimensions > len(numbers):
        return numbers
    length = hypot(*[hypot(*part) for part in _parts(numbers[:dimensions])]) or 1.0
    return [number / length for number in numbers[:dimensions]]


def response_pieces(response: dict[str, Any]) -> Iterable[bytes | memoryview]:
    """Yield the JSON of a response, without copies of its vectors: the last member of each entry of `data`."""
    before, _, after = json.encode({**response, "data": None}).partition(b'"data":null')
    yield before
    start = b'"data":['
    for entry in response["data"]:
        *_, (name, vector) = entry.items()
        yield start + json.encode({**entry, name: None}).removesuffix(b"null}")
        yield memoryview(vector)
        start = b"},"
    yield b"}]" + after
