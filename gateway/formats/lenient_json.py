"""Read values in the dialects of JSON that models write, and convert them to JSON piece by piece.

The dialects have these features:

- Python's literals: `True`, `None`, either quote, r"strings", tuples
- keys without quotes, and text without any quotes
- strings between a family's own marks
- trailing commas
"""

import re
from collections.abc import Mapping
from typing import Any

from gateway.formats.argument_types import ANY, argument_types, begun, escape_json_string, to_json
from gateway.formats.markers import Markers
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.text_buffer import Malformed

MARKS = ('<|"|>', "<escape>")  # marks around a string without escapes
QUOTES = ('"""', "'''", '"', "'")
RAW = {quote: Markers(quote) for quote in (*QUOTES, *MARKS)}
ENDS = RAW | {quote: Markers(quote, "\\") for quote in QUOTES}
_PREFIXES = {"r", "R", "f", "b", "u"}  # string prefixes in Python
_KEY = re.compile(r"[\w.$@/-]*")
_BARE = re.compile(r"""[^,{}\[\]()"'<>\n]*""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "\n": ""}
_HEX = {"x": 2, "u": 4, "U": 8}
_BACKSLASH = Markers("\\")
_DIGITS = re.compile(r"[0-9a-fA-F]+")
_OCTAL, _LONGEST_OCTAL = "01234567", 3
_DEPTH = 100  # levels of nested values
_CLOSE = {"{": "}", "[": "]", "(": ")"}


def bare_types(tool: Mapping[str, Any], parameter: str) -> frozenset[str]:
    """Return the JSON types of text without quotes: any type, unless the schema allows a string."""
    wanted = argument_types(tool, parameter, ANY)
    return wanted if "string" in wanted else ANY


def read_value(read: TextReader, put: TextSink, wanted: frozenset[str] = ANY, depth: int = _DEPTH) -> ReadStep:
    """Convert one value to JSON for `put`; return "" if the text ended first.

    wanted: the JSON types that text without quotes may have.

    Raises Malformed if no value comes, or for too many levels of nesting.
    """
    first = yield from read.peek()
    if not first:
        return ""
    if first == "{":
        return (yield from read_object(read, put, depth))
    if first in "[(":
        return (yield from _array(read, put, depth))
    if quote := (yield from read.take_literal(*QUOTES, *MARKS)):
        return (yield from _quoted(read, put, ENDS[quote]))
    return (yield from read_bare(read, put, wanted))


def read_bare(read: TextReader, put: TextSink, wanted: frozenset[str]) -> ReadStep:
    """Convert a value without quotes, or a Python string with a prefix.

    Raises Malformed for any other text.
    """
    text = yield from read.run(_BARE)
    if text in _PREFIXES and (quote := (yield from read.take_literal(*QUOTES))):
        return (yield from _quoted(read, put, (RAW if text in "rR" else ENDS)[quote]))
    if not text and not read.ended:
        raise Malformed
    if read.ended:
        put("" if read.cut else begun(text))  # the value may be incomplete
        return ""
    put(bare_to_json(text, wanted))
    return "whole"


def bare_to_json(text: str, wanted: frozenset[str]) -> str:
    """Return text without quotes as JSON; None and null become null, even if the schema wants a string."""
    return "null" if text.strip() in ("None", "null") else to_json(text.strip(), wanted)


def read_object(read: TextReader, put: TextSink, depth: int = _DEPTH) -> ReadStep:
    """Convert an object, whose braces may be doubled; return "" if the text ended first.

    Raises Malformed for any other text.
    """
    if not depth:
        raise Malformed
    yield from read.expect("{")
    doubled = yield from read.accept("{")
    before = "{"
    while not (yield from read.accept("}")):
        if read.ended:
            return ""
        name = yield from read_key(read)
        yield from read.expect(":", "=")
        put(f'{before}"{escape_json_string(name)}": ')
        before = ", "
        if not (yield from read_value(read, put, depth=depth - 1)):
            return ""
        if not (yield from read.accept(",")):
            yield from read.expect("}")
            break
    if doubled:
        yield from read.accept("}")
    put("{}" if before == "{" else "}")
    return "whole"


def read_key(read: TextReader) -> ReadStep:
    """Take a key and return it: a string in any quotes, or a word.  Raises Malformed for any other text."""
    yield from read.peek()
    if (yield from read.lookahead(*QUOTES, *MARKS)):
        return (yield from read_string(read))
    return (yield from read.read_word(_KEY))


def read_string(read: TextReader) -> ReadStep:
    """Take one string in any quotes and return its value.

    Raises Malformed for any other text, or if the string has no end.
    """
    pieces: list[str] = []
    if not (yield from read_string_into(read, pieces.append)):
        raise Malformed
    return "".join(pieces)


def read_string_into(read: TextReader, put: TextSink) -> ReadStep:
    """Decode one string in any quotes, piece by piece; return its end quote, "" if the text ended first.

    Raises Malformed if no string comes.
    """
    quote = yield from read.expect(*QUOTES, *MARKS)
    return (yield from _inside(read, put, ENDS[quote]))


def unescaped(text: str, *, cut: bool) -> str:
    """Decode the inside of a string.  `cut`: an incomplete escape sequence at its end is dropped."""
    pieces: list[str] = []
    read = TextReader()
    read.feed(text)
    read.close(cut)
    next(_inside(read, pieces.append, _BACKSLASH), None)
    return "".join(pieces)


def _array(read: TextReader, put: TextSink, depth: int) -> ReadStep:
    if not depth:
        raise Malformed
    close = _CLOSE[(yield from read.expect("[", "("))]
    before = "["
    while not (yield from read.accept(close)):
        if read.ended:
            return ""
        put(before)
        before = ", "
        if not (yield from read_value(read, put, depth=depth - 1)):
            return ""
        if not (yield from read.accept(",")):
            yield from read.expect(close)
            break
    put("[]" if before == "[" else "]")
    return "whole"


def _quoted(read: TextReader, put: TextSink, ends: Markers) -> ReadStep:
    """Convert a string whose quote was taken; return "" if the text ended first."""
    put('"')
    if not (yield from _inside(read, lambda text: put(escape_json_string(text)), ends)):
        return ""
    put('"')
    return "whole"


def _inside(read: TextReader, put: TextSink, ends: Markers) -> ReadStep:
    """Decode a string whose quote was taken, piece by piece; return its end quote, or "" at the end."""
    while (mark := (yield from read.until(ends, put))) == "\\":
        yield from _escape(read, put)
    return mark


def _escape(read: TextReader, put: TextSink) -> ReadStep:
    """Decode a JSON or Python escape sequence behind its backslash; keep an unknown one unchanged."""
    letter = yield from read.take(1)
    if letter in _HEX:
        digits = yield from read.take(_HEX[letter])
        whole = yield from _coded(read, put, letter, digits)
    elif letter and letter in _OCTAL:
        digits = letter
        while len(digits) < _LONGEST_OCTAL and (digit := (yield from read.take_literal(*_OCTAL))):
            digits += digit
        whole = chr(int(digits, 8))
    else:
        whole = _ESCAPES.get(letter, letter if letter in "\\\"'/" else f"\\{letter}")
    if not (read.ended and read.cut):  # else it may be incomplete
        put(whole)
    return ""


def _coded(read: TextReader, put: TextSink, letter: str, digits: str) -> ReadStep:
    """Return the character of a code, which may be half of a surrogate pair; put U+FFFD for lone halves before it."""
    while 0xD800 <= (code := _code(letter, digits)) < 0xDC00 and (yield from read.take_literal("\\u")):
        digits = yield from read.take(4)
        if 0xDC00 <= (low := _code("u", digits)) < 0xE000:
            return chr(0x10000 + (code - 0xD800) * 0x400 + low - 0xDC00)
        put("\ufffd")
        letter = "u"
    if code < 0:
        return f"\\{letter}{digits}"
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def _code(letter: str, digits: str) -> int:
    """Return the number that the digits behind such a letter state; a negative number if digits are missing."""
    return int(digits, 16) if len(digits) == _HEX[letter] and _DIGITS.fullmatch(digits) else -1
