"""How many values a body may hold: some bodies cost a thousand times what their bytes suggest.

Decoding takes time for each value, and nothing else runs meanwhile.  So the values are counted before that.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from gateway.endpoints.checks import too_long
from gateway.errors import TooLarge

_SLICE = 256 << 10  # bytes that are looked at in one step, which takes about a millisecond
_FOR_AN_ITEM = 8  # values
_NUMBERS = 1_000_000  # in lists
_ESCAPES = 8 << 20  # backslashes: some take 5 ns each to read
_MARKS = (b",", b"[", b"{")
_WHITE_SPACE = b" \t\r\n"
_OTHER = re.compile(rb"[^\\]")
_DIGITS = bytes.maketrans(b"-123456789", b"0000000000")


class Counts(Struct, frozen=True):
    """The limits of one body.

    items: messages of a chat completion, and items of a response.
    parts: parts of the content of one message or item.
    """

    items: int = 20_000
    parts: int = 2_000

    @property
    def values(self) -> int:
        """Members of objects and elements of lists, but for numbers in lists."""
        return _FOR_AN_ITEM * self.items

    def check_raw(self, raw: bytes) -> None:
        """Raise TooLarge for JSON with more values than that, or too many escapes.  raw: any bytes, JSON or not."""
        if len(raw) > _ESCAPES and _count(raw, b"\\") > _ESCAPES:
            raise TooLarge(f"The request body has more than {_ESCAPES} backslashes.")
        if len(raw) <= self.values or _most_values(raw) <= self.values:
            return
        values = numbers = 0
        for counted, of_them in _counts(raw):
            values, numbers = values + counted - of_them, numbers + of_them
            if values > self.values:
                limit = f"{self.values} values, {_FOR_AN_ITEM} for each of the gateway's 'limits.items'"
                raise TooLarge(f"The request body has more than {limit}.")
            if numbers > _NUMBERS:
                raise TooLarge(f"The request body has more than {_NUMBERS} numbers in lists.")

    def check_lists(self, body: Mapping[str, Any]) -> None:
        """Raise BadRequest for too many items, or too many parts of an item."""
        for name, value in body.items():
            if type(value) is list:
                _check_list(value, name, self.items, "items")
                for i, item in enumerate(value):
                    if type(item) is dict:
                        self._check_parts(item, f"{name}[{i}]")

    def _check_parts(self, item: dict[str, Any], param: str) -> None:
        for name, value in item.items():
            if type(value) is list:
                _check_list(value, f"{param}.{name}", self.parts, "parts")


def _check_list(value: list[Any], param: str, most: int, limit: str) -> None:
    if len(value) > most and type(value[0]) not in (int, float):
        raise too_long(value, param, most, f"the gateway's 'limits.{limit}'")


COUNTS = Counts()


def _most_values(raw: bytes) -> int:
    """Return how many values there are at most, also if no text has a comma or a bracket in it."""
    return sum(_count(raw, each) for each in _MARKS)


def _count(raw: bytes, mark: bytes) -> int:
    return sum(raw.count(mark, start, start + _SLICE) for start in range(0, len(raw), _SLICE))


def _counts(raw: bytes, size: int = _SLICE) -> Iterator[tuple[int, int]]:
    """Yield the number of values in each slice, and how many of them are numbers in a list."""
    last = b""
    for outside in _outside_strings(raw, size):
        marks = outside.translate(_DIGITS, _WHITE_SPACE)
        numbers = (last + marks).count(b",0") + (last + marks).count(b"[0")
        last = marks[-1:] or last
        yield sum(marks.count(each) for each in _MARKS), numbers


def _outside_strings(raw: bytes, size: int) -> Iterator[bytes]:
    """Yield what stands outside of the strings, slice by slice."""
    inside = 0
    for piece in _slices(raw, size):
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= (len(parts) - 1) & 1


def _slices(raw: bytes, size: int) -> Iterator[bytes]:
    """Yield the pieces of it, none of which ends with a backslash."""
    start = 0
    while start < len(raw):
        found = _OTHER.search(raw, start + size - 1)
        end = found.end() if found else len(raw)
        yield raw[start:end]
        start = end
