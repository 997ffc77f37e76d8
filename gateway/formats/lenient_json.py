"""Values in the dialects of JSON that models write, and JSON made of them as they come.

Python's literals (`True`, `None`, either quote, r"strings", tuples), keys without quotes, strings between marks of a
family's own, text without any quotes, trailing commas.
"""

import re
from collections.abc import Mapping
from typing import Any

from gateway.formats.argument_types import ANY, argument_types, begun, escape_json_string, to_json
from gateway.formats.markers import Markers
from gateway.formats.reader import Malformed, ReadStep, TextReader, TextSink

MARKS = ('<|"|>', "<escape>")  # around a string in which nothing is escaped
QUOTES = ('"""', "'''", '"', "'")
RAW = {quote: Markers(quote) for quote in (*QUOTES, *MARKS)}
ENDS = RAW | {quote: Markers(quote, "\\") for quote in QUOTES}
_PREFIXES = {"r", "R", "f", "b", "u"}  # of a string in Python
_KEY = re.compile(r"[\w.$@/-]*")
_BARE = re.compile(r"""[^,{}\[\]()"'<>\n]*""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "\n": ""}
_HEX = {"x": 2, "u": 4, "U": 8}
_BACKSLASH = Markers("\\")
_DIGITS = re.compile(r"[0-9a-fA-F]+")
_OCTAL, _LONGEST_OCTAL = "01234567", 3
_DEPTH = 100  # of values inside values
_CLOSE = {"{": "}", "[": "]", "(": ")"}


def bare_types(tool: Mapping[str, Any], parameter: str) -> frozenset[str]:
    """The JSON types that text without quotes may have: any, unless the tool says that it may be a string."""
    wanted = argument_types(tool, parameter, ANY)
    return wanted if "string" in wanted else ANY


def read_value(read: TextReader, put: TextSink, wanted: frozenset[str] = ANY, depth: int = _DEPTH) -> ReadStep:
    """One value, as JSON for `put`; return "" if the text ended first.

    wanted: the JSON types that text without quotes may have.
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
    """A value without quotes, or a string of Python's with a prefix."""
    text = yield from read.run(_BARE)
    if text in _PREFIXES and (quote := (yield from read.take_literal(*QUOTES))):
        return (yield from _quoted(read, put, (RAW if text in "rR" else ENDS)[quote]))
    if not text and not read.ended:
        raise Malformed
    if read.ended:
        put("" if read.cut else begun(text))  # it may have gone on
        return ""
    put(bare_to_json(text, wanted))
    return "whole"


def bare_to_json(text: str, wanted: frozenset[str]) -> str:
    """Text without quotes as JSON; nothing is null, even where a string is wanted."""
    return "null" if text.strip() in ("None", "null") else to_json(text.strip(), wanted)


def read_object(read: TextReader, put: TextSink, depth: int = _DEPTH) -> ReadStep:
    """An object, its braces perhaps doubled, or Malformed; return "" if the text ended first."""
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
    """A key: a string in any quotes, or a word."""
    yield from read.peek()
    if (yield from read.lookahead(*QUOTES, *MARKS)):
        return (yield from read_string(read))
    return (yield from read.read_word(_KEY))


def read_string(read: TextReader) -> ReadStep:
    """Take one string in any quotes and return its value, or Malformed."""
    pieces: list[str] = []
    if not (yield from read_string_into(read, pieces.append)):
        raise Malformed
    return "".join(pieces)


def read_string_into(read: TextReader, put: TextSink) -> ReadStep:
    """Decode one string in any quotes, as it comes; return its end quote, "" if the text ended first."""
    quote = yield from read.expect(*QUOTES, *MARKS)
    return (yield from _inside(read, put, ENDS[quote]))


def unescaped(text: str, *, cut: bool) -> str:
    """Decode the inside of a string.  `cut`: its last escape sequence may be incomplete, and falls away then."""
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
    """A string whose quote was taken, as JSON; return "" if the text ended first."""
    put('"')
    if not (yield from _inside(read, lambda text: put(escape_json_string(text)), ends)):
        return ""
    put('"')
    return "whole"


def _inside(read: TextReader, put: TextSink, ends: Markers) -> ReadStep:
    """Decode a string whose quote was taken, as it comes; return its end quote, or "" at the end."""
    while (mark := (yield from read.until(ends, put))) == "\\":
        yield from _escape(read, put)
    return mark


def _escape(read: TextReader, put: TextSink) -> ReadStep:
    """One escape sequence after its backslash, JSON's or Python's; one that neither knows stays as it is."""
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
    if not (read.ended and read.cut):  # else it may have gone on
        put(whole)
    return ""


def _coded(read: TextReader, put: TextSink, letter: str, digits: str) -> ReadStep:
    """The character of a code, which may be half of a pair; halves that stand alone before it are put."""
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
    """Return the value of the digits behind such a letter; less than 0 if digits are missing."""
    return int(digits, 16) if len(digits) == _HEX[letter] and _DIGITS.fullmatch(digits) else -1
