"""Convert Python literals in the arguments of a call to JSON; any other expression raises Malformed.

Models write strings with their own quote inside, so the text behind a quote decides if it ends one (see
string_ends.py).  Adjacent strings, or strings with a plus between them, are joined.  A set becomes a list.
"""

import re
from collections.abc import Callable, Mapping
from keyword import iskeyword
from types import MappingProxyType

from gateway.formats import lenient_json
from gateway.formats.argument_types import ANY, STRING, escape_json_string
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.string_ends import PREFIXES, Tail
from gateway.formats.text_buffer import Malformed

_DEPTH = 100  # levels of nested values
_BARE = re.compile(r"""[^,:={}\[\]()"'<>\n]*""")
_WORDS = re.compile(r"\w+(?:\s+\w+)*")
_CONSTANTS = ("True", "False", "None", "true", "false", "null")
_DECIMAL = re.compile(r"([+-]?)\s*([0-9][0-9_]*|(?=\.[0-9]))(?:\.([0-9_]*))?([eE][+-]?[0-9]+)?")
_BASED = re.compile(r"[+-]?0[xXoObB]\w{1,64}")


def value(
    read: TextReader, put: TextSink, wanted: frozenset[str], ends: str, depth: int = _DEPTH, begun: str = ""
) -> ReadStep:
    """Put one literal as JSON; return the end in `ends` that was taken behind it, "" if the text ended first.

    wanted: the JSON types that the schema allows.  Text without quotes becomes a string only if the schema allows one.
    begun: the beginning of a value without quotes that was already taken.

    Raises Malformed for any other expression.
    """
    first = "" if begun else (yield from read.peek())
    if first in _CONTAINERS:
        if not depth:
            raise Malformed
        whole = yield from _CONTAINERS[first](read, put, depth - 1)
        return (yield from _after(read, ends)) if whole else ""
    bare = begun + (yield from read.run(_BARE))
    prefix = bare.lower()
    if (not bare or prefix in PREFIXES) and (quote := (yield from read.take_literal(*lenient_json.QUOTES))):
        return (yield from _string(read, put, prefix, quote, ends))
    if read.ended and (read.cut or not bare):
        return ""  # the value may be incomplete
    put(_plain(bare.strip(), wanted))
    return (yield from _after(read, ends))


def _after(read: TextReader, ends: str) -> ReadStep:
    """Take the end behind a value; raise Malformed if the value is part of an expression."""
    end = yield from read.accept(*ends)
    if not end and not read.ended:
        raise Malformed
    return end


def _plain(text: str, wanted: frozenset[str]) -> str:
    """Return a value without quotes as JSON."""
    number = _number(text)
    if not number and text not in _CONSTANTS:
        expression = " " in text and any(map(iskeyword, text.split()))
        if expression or not _WORDS.fullmatch(text) or not ("string" in wanted or wanted == ANY):
            raise Malformed
    kept = text if wanted == STRING else number or text
    return lenient_json.bare_to_json(kept, wanted if "string" in wanted else ANY)


def _number(text: str) -> str:
    """Return a number as JSON; "" if the text is no number."""
    if _BASED.fullmatch(text):
        try:
            return str(int(text, 0))
        except ValueError:
            return ""
    if not (found := _DECIMAL.fullmatch(text)):
        return ""
    sign, whole, part, power = found.groups()
    fraction = "" if part is None else f".{part.replace('_', '') or '0'}"
    return f"{sign.strip('+')}{whole.replace('_', '').lstrip('0') or '0'}{fraction}{power or ''}"


def _string(read: TextReader, put: TextSink, prefix: str, quote: str, ends: str) -> ReadStep:
    """Put a string whose quote was taken, with the strings that are joined to it."""
    stops = (lenient_json.RAW if "r" in prefix else lenient_json.ENDS)[quote]
    text: list[str] = []
    quotes = False  # the string has its own quote inside
    while mark := (yield from read.until(stops, text.append)):
        if mark == "\\":
            text.append(mark + (yield from read.take(1)))
            continue
        tail = Tail(read, ends)
        end = yield from tail.run()
        if end or tail.open:
            break
        quotes = True
        text += [quote, *tail.text]
    if read.cut and read.ended and not (mark and end):
        put(f'"{escape_json_string(_decoded(prefix, "".join(text), cut=True))}')
        return ""
    if not mark and quotes:
        raise Malformed  # the end of the string is unknown
    strings = [(prefix, "".join(text)), *(tail.strings if mark else ())]
    put(f'"{escape_json_string("".join(_decoded(*string) for string in strings))}')
    if not mark:
        return ""
    put('"')
    return end


def _decoded(prefix: str, text: str, *, cut: bool = False) -> str:
    """Return the value of a string; raise Malformed if it is an f-string with an expression."""
    if "f" in prefix:
        if "{" in text.replace("{{", ""):
            raise Malformed
        text = text.replace("{{", "{").replace("}}", "}")
    return text if "r" in prefix else lenient_json.unescaped(text, cut=cut)


def _list(read: TextReader, put: TextSink, depth: int) -> ReadStep:
    yield from read.take_literal("[")
    if (yield from read.accept("]")):
        put("[]")
        return "whole"
    if read.ended:
        return ""
    put("[")
    end = yield from value(read, put, ANY, ",]", depth)
    return (yield from _items(read, put, end, "]", depth))


def _items(read: TextReader, put: TextSink, end: str, close: str, depth: int) -> ReadStep:
    """Put the remaining items of a list; `end` was taken behind the previous one."""
    while end == "," and not (yield from read.accept(close)):
        if read.ended:
            return ""
        put(", ")
        end = yield from value(read, put, ANY, f",{close}", depth)
    if end:
        put("]")
    return end


def _parentheses(read: TextReader, put: TextSink, depth: int) -> ReadStep:
    """Put a tuple as a list, and a single value in parentheses as itself."""
    yield from read.take_literal("(")
    if (yield from read.accept(")")):
        put("[]")
        return "whole"
    first: list[str] = []
    end = yield from value(read, first.append, ANY, ",)", depth)
    if end == ",":
        put(f"[{''.join(first)}")
        return (yield from _items(read, put, end, ")", depth))
    if end:
        put("".join(first))
    return end


def _braces(read: TextReader, put: TextSink, depth: int) -> ReadStep:
    """Put a dict, whose braces may be doubled, or a set as a list."""
    yield from read.take_literal("{")
    doubled = yield from read.accept("{")
    if (yield from read.accept("}")):
        put("{}")
        end = "}"
    else:
        key: list[str] = []
        end = yield from value(read, key.append, ANY, ":=,}", depth)
        if end in (":", "="):
            end = yield from _members(read, put, "".join(key), depth)
        elif end:
            put(f"[{''.join(key)}")
            end = yield from _items(read, put, end, "}", depth)
    if end and doubled:
        yield from read.accept("}")
    return end


def _members(read: TextReader, put: TextSink, key: str, depth: int) -> ReadStep:
    """Put all members of a dict; the first key and its colon were taken."""
    before = "{"
    while True:
        if key[0] in "[{":
            raise Malformed
        put(before + (key if key[0] == '"' else f'"{key}"') + ": ")
        before = ", "
        end = yield from value(read, put, ANY, ",}", depth)
        if end == "," and not (end := (yield from read.accept("}"))):
            keys: list[str] = []
            if not (yield from value(read, keys.append, ANY, ":=", depth)):
                return ""
            key = "".join(keys)
            continue
        if end:
            put("}")
        return end


_CONTAINERS: Mapping[str, Callable[[TextReader, TextSink, int], ReadStep]] = MappingProxyType(
    {"[": _list, "(": _parentheses, "{": _braces}
)
