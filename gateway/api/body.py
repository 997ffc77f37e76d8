"""Decode a request body once, with limits on its values: some bodies cost a thousand times what their size suggests.

Decoding takes time for each value and blocks the event loop, so the values are counted first.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from msgspec import UNSET, DecodeError, Struct, json

from gateway.api.long_texts import Folded, fold, unfold
from gateway.api.validation import too_long, wrong_type
from gateway.errors import BadRequest, TooLarge
from gateway.request import SentTexts

_SLICE = 128 << 10  # bytes per step, which takes half a millisecond; the heap has room for them
_FOR_AN_ITEM = 8  # values per item
_NUMBERS = 1_000_000  # in lists
_ESCAPES = 8 << 20  # backslashes: decoding some of them takes 5 ns each
_OPENINGS = (b"[", b"{")
_MARKS = (b",", *_OPENINGS)
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
        """The limit of object members and list elements, except numbers in lists."""
        return _FOR_AN_ITEM * self.items

    def check_raw(self, raw: bytes) -> None:
        """Raise TooLarge for JSON with too many values, numbers or escapes.

        raw: any bytes, JSON or not.
        """
        if _has_more(raw, (b"\\",), _ESCAPES):
            raise TooLarge(f"The request body contains more than {_ESCAPES} backslashes. Send a smaller body.")
        if not _has_more(raw, _MARKS, self.values):  # commas and brackets in strings count, too
            return
        values = numbers = 0
        for counted, of_them in _counts(raw):
            values, numbers = values + counted - of_them, numbers + of_them
            if values > self.values:
                limit = f"{self.values} values ({_FOR_AN_ITEM} times the gateway's 'limits.items')"
                raise TooLarge(f"The request body contains more than {limit}. Send a smaller body.")
            if numbers > _NUMBERS:
                raise TooLarge(f"The request body contains more than {_NUMBERS} numbers in lists. Send a smaller body.")

    def check_lists(self, body: Mapping[str, Any]) -> None:
        """Raise BadRequest for too many items, or too many parts of an item."""
        for name, value in body.items():
            if type(value) is list:
                _check_list(value, name, self.items, "items")
                for i, item in enumerate(value):
                    if type(item) is dict and list in map(type, item.values()):
                        self._check_parts(item, f"{name}[{i}]")

    def _check_parts(self, item: dict[str, Any], param: str) -> None:
        for name, value in item.items():
            if type(value) is list:
                _check_list(value, f"{param}.{name}", self.parts, "parts")


def _check_list(value: list[Any], param: str, most: int, limit: str) -> None:
    if len(value) > most and type(value[0]) not in (int, float):
        raise too_long(value, param, most, f"the gateway's 'limits.{limit}'")


COUNTS = Counts()


def _has_more(raw: bytes, marks: Sequence[bytes], most: int) -> bool:
    """Return True if more than this many bytes of it are such marks.

    The count is the length that `replace` removes, which takes a thirtieth of the time of `count` where marks are rare.
    A slice without a mark, as of an image, is not copied.
    """
    found = 0
    for start in range(0, len(raw), _SLICE) if len(raw) > most else ():
        end = start + _SLICE
        if there := [mark for mark in marks if raw.find(mark, start, end) >= 0]:
            piece = raw[start:end]
            found += sum(len(piece) - len(piece.replace(mark, b"")) for mark in there)
            if found > most:
                return True
    return False


def _counts(raw: bytes, size: int = _SLICE) -> Iterator[tuple[int, int]]:
    """Yield the number of values in each slice, and how many of them are numbers in a list."""
    last = b""
    for outside in _outside_strings(raw, size):
        marks = outside.translate(_DIGITS, _WHITE_SPACE)
        numbers = (last + marks).count(b",0") + (last + marks).count(b"[0")
        last = marks[-1:] or last
        yield sum(marks.count(each) for each in _MARKS), numbers


def _outside_strings(raw: bytes, size: int) -> Iterator[bytes]:
    """Yield the bytes outside of strings, slice by slice."""
    inside = 0
    for piece in _slices(raw, size):
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= (len(parts) - 1) & 1


def _slices(raw: bytes, size: int) -> Iterator[bytes]:
    """Yield slices of about this size, none of them ending with a backslash."""
    start = 0
    while start < len(raw):
        found = _OTHER.search(raw, start + size - 1)
        end = found.end() if found else len(raw)
        yield raw[start:end]
        start = end


_DEEPEST = 600  # nested lists and objects: later steps recurse a little deeper than decoding does
_decode = json.Decoder().decode
# A server in Go takes such a member for `model`, so it could name a model that the key excludes.
_MODEL = "model"
_MODEL_SPELLINGS = frozenset(map("".join, product(*zip(_MODEL, _MODEL.upper(), strict=True)))) - {_MODEL}
_SURROGATES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)


def decode_body(raw: bytes, counts: Counts = COUNTS, sent: SentTexts | None = None) -> dict[str, Any]:
    """Return a client's body without its null members, which count as absent.

    Raise BadRequest if it is not a JSON object, and TooLarge for too many values.

    sent: gets the long texts of the body.
    """
    size = len(raw)
    if size <= counts.items and size <= counts.parts:
        return known(raw)
    if (folded := fold(raw)) and (body := _unfolded(folded, counts)) is not None:
        if sent is not None:
            sent.update(folded.sent)
        return body
    counts.check_raw(raw)
    body = known(raw)
    counts.check_lists(body)
    return body


def _unfolded(folded: Folded, counts: Counts) -> dict[str, Any] | None:
    """Return the body; None if the whole one has to be decoded, for the position of an error or the place of a text."""
    counts.check_raw(folded.rest)
    try:
        body = known(folded.rest)
    except BadRequest:
        return None
    if not unfold(body, folded.texts):
        return None
    counts.check_lists(body)
    return body


class _Update(Struct):
    """The member of an update that null empties."""

    metadata: Any = UNSET


def decode_update(raw: bytes, counts: Counts = COUNTS) -> dict[str, Any]:
    """Return a body as `decode_body` does, but with empty `metadata` for null, which removes the metadata."""
    body = decode_body(raw, counts)
    return {**body, "metadata": {}} if json.decode(raw, type=_Update).metadata is None else body


def known(raw: bytes) -> dict[str, Any]:
    """Return an already admitted body without its null members.

    Skips the limits of `decode_body`.  Raise BadRequest if it is not a JSON object, or if it has `Model` for `model`.
    """
    try:
        body = _decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"We could not parse the JSON body of your request. ({fault(raw, error)})") from None
    if _has_more(raw, _OPENINGS, _DEEPEST) and _is_deep([body]):
        raise BadRequest(f"The JSON body of your request is nested more than {_DEEPEST} levels deep. Flatten it.")
    if not isinstance(body, dict):
        raise wrong_type(body, "body", "an object")
    if not _MODEL_SPELLINGS.isdisjoint(body):
        raise _misspelled_model(body)
    return {name: value for name, value in body.items() if value is not None} if None in body.values() else body


def _misspelled_model(body: Mapping[str, Any]) -> BadRequest:
    name = next(name for name in body if name in _MODEL_SPELLINGS)
    return BadRequest(
        f"Unknown parameter: '{name}'. Some servers read it as '{_MODEL}'. Send '{_MODEL}' alone.",
        code="unknown_parameter",
        param=name,
    )


def fault(raw: bytes, error: Exception) -> str:
    """Return the reason why JSON could not be parsed.

    The parser reports half a surrogate pair as truncated data, so such a pair is searched for here.
    """
    found = next((escape for escape in _SURROGATES.finditer(raw) if escape[1]), None)
    if not found:
        return f"Parser error: {error}."
    place = f"{found[1].decode()} at byte {found.start()}"
    return f"A string contains the lone surrogate {place}. Send both halves of the surrogate pair."


def _is_deep(level: list[Any]) -> bool:
    """Return True if lists and objects are nested too deeply.

    Visits only lists and objects, level by level, in a tenth of the time of decoding.
    """
    depth = 0
    while level and depth < _DEEPEST:
        inner = [list(one.values()) if type(one) is dict else one for one in level]
        level = [each for one in inner for each in one if type(each) is dict or type(each) is list]
        depth += 1
    return bool(level)
