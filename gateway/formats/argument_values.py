"""Convert one value of a tool call's arguments to JSON that fits the tool's schema."""

import re
from json import loads

from gateway.formats import lenient_json
from gateway.formats.argument_types import escape_json_string, to_json
from gateway.formats.parser import FormatParser
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.schema_types import Shape
from gateway.formats.text_buffer import Malformed

MAX_DEPTH = 100  # levels of nested values
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_INTEGRAL = re.compile(r"(-?(?:0|[1-9]\d*))(?:\.0+)?")
_LOOSE_NUMBER = re.compile(r"([+-]?)(?=\.?\d)0*(\d*)(\.(\d*))?([eE][+-]?\d+)?")
_SEPARATOR = re.compile(r"(?<=\d)_(?=\d)")
_WORD = re.compile(r"""[^\s,:=\[\]{}()"'<>`]*""")
_REST = re.compile(r"""[^,:\[\]{}()"'<>\n]*""")
_KEY = re.compile(r"[\w.$@/-]*")
_STOPS = ("<", "`")  # characters that begin a tag or a fence after arguments without closing brackets
_BRACKETS = {"array": "[", "object": "{"}
_BEGUN = re.compile(r"[-+.\deE]*|t(?:ru?)?|f(?:a(?:ls?)?)?|n(?:ul?)?")  # a number, or the beginning of a JSON word
_WORDS = {
    **{word: word for word in ("true", "false", "null")},
    **dict.fromkeys(("None", "undefined", "NaN", "nan", "Infinity", "-Infinity", "+Infinity", "inf", "-inf"), "null"),
    "True": "true",
    "False": "false",
}


class ValueWriter:
    """Convert the values in one text."""

    def __init__(self, read: TextReader, put: TextSink) -> None:
        self._read, self._put = read, put
        self._key: str | None = None  # the key of the current member; None for none, or if the text ended first
        self._python = False  # a key has Python's quotes, so strings in either quotes have Python's escapes

    def value(self, shape: Shape, depth: int) -> ReadStep:
        """Pass on one value; return "" if the text ended first."""
        first = (yield from self._read.space(self._put)) if depth else _malformed()
        if first == '"' and not shape.allows("string"):
            return (yield from self._string(shape, depth))
        if first == "'" or (first == '"' and self._python):
            return (yield from self._python_string())
        if first == '"':
            return (yield from self._read.clean(self._put))
        if first in ("[", "("):
            return (yield from self._elements("]" if first == "[" else ")", shape, depth))
        if first != "{":
            return (yield from self._word(shape))
        listed = shape.only("array") and shape.item.only("object")
        return (yield from self._listed(shape.item, depth) if listed else self.members(shape, depth))

    def _listed(self, shape: Shape, depth: int) -> ReadStep:
        """Pass on one object as an array that holds it."""
        self._repair("[")
        if not (yield from self.members(shape, depth)):
            return ""
        self._put("]")
        return "whole"

    def opening(self) -> ReadStep:
        """Take the opening brace of the arguments, and drop an empty object before them.

        Returns the brace and white space if members follow.  Otherwise it passes on an empty object and returns "".
        """
        read = self._read
        while True:
            begun = [(yield from read.take_literal("{"))]
            if (yield from read.space(begun.append)) != "}":
                return "".join(begun)
            begun.append((yield from read.take_literal("}")))
            if (yield from read.peek()) != "{":
                self._put("".join(begun))
                return ""
            read.was_repaired = True

    def members(self, shape: Shape, depth: int, begun: str = "") -> ReadStep:
        """Pass on an object, whose beginning `begun` was taken; return "" if the text ended first."""
        return self._elements("}", shape, depth, begun)

    def _elements(self, close: str, shape: Shape, depth: int, begun: str = "") -> ReadStep:
        """Pass on an object, an array, or a Python tuple; return "" if the text ended first."""
        doubled = yield from self._opened(close, begun)
        read, comma, item = self._read, "", shape if close == "}" else shape.item
        while True:
            gap: list[str] = []
            first = yield from read.space(gap.append)
            if first == close:
                read.was_repaired |= bool(comma)
                self._put("" if comma else "".join(gap))
                comma = yield from read.take_literal(close)
                break
            self._put(comma + "".join(gap))
            if not first or (close == "}" and not (yield from self._name())):
                return ""
            inner = item if self._key is None else shape.member(self._key)
            self._key = None
            if not (yield from self.value(inner, depth - 1)):
                return ""
            comma = yield from self._separator(close)
            if comma != ",":
                break
        return (yield from self._closed(comma, doubled))

    def _opened(self, close: str, begun: str) -> ReadStep:
        """Pass on an opening bracket, or `begun` if it was taken; return a second brace, which is dropped."""
        read = self._read
        read.nesting += 1
        if close != "}":
            yield from read.take_literal("[", "(")
            read.was_repaired |= close == ")"
            self._put("[")
            return ""
        self._put(begun or (yield from read.take_literal("{")))
        yield from read.space(self._put)
        doubled = yield from read.take_literal("{")
        read.was_repaired |= bool(doubled)
        return doubled

    def _closed(self, bracket: str, doubled: str) -> ReadStep:
        """Pass on a closing bracket; return "" if the text ended before it."""
        self._put("]" if bracket == ")" else bracket)
        self._read.nesting -= 1
        if doubled and bracket:
            yield from self._read.accept("}")
        return bracket

    def _separator(self, close: str) -> ReadStep:
        """Take the comma or the closing bracket after an element.

        The bracket may be missing before a tag, a fence or the end.
        """
        gap: list[str] = []
        first = yield from self._read.space(gap.append)
        if first in _STOPS or not (first or self._read.cut):
            self._read.was_repaired = True  # the bracket is missing
            return close
        self._put("".join(gap))
        return (yield from self._read.take_literal(",", close)) or (_malformed() if first else "")

    def _name(self) -> ReadStep:
        """Pass on the key of a member and its colon; return "" if the text ended first."""
        read = self._read
        yield from self._take_key()
        if self._key is None:
            return ""
        yield from read.space(self._put)
        sign = yield from read.take_literal(":", "=")
        if not sign:
            return "" if read.ended else _malformed()
        read.was_repaired |= sign == "="
        self._put(":")
        return sign

    def _take_key(self) -> ReadStep:
        """Pass on a key in any quotes or none, and keep it in `_key`."""
        read, self._key = self._read, None
        pieces: list[str] = []
        if (yield from read.lookahead('"')):
            if (yield from read.clean(_both(self._put, pieces.append))):
                self._key = loads("".join(pieces))
        elif (yield from read.lookahead("'")):
            end = yield from lenient_json.read_string_into(read, pieces.append)
            key = "".join(pieces)
            self._key, self._python = key if end else None, True
            self._repair(f'"{escape_json_string(key)}' + ('"' if end else ""))
        elif (word := (yield from read.read_word(_KEY))) and not read.ended:
            self._key = word
            self._repair(f'"{word}"')
        else:
            self._put(word)
        return ""

    def _string(self, shape: Shape, depth: int) -> ReadStep:
        """Hold back a string if the schema allows none, and pass on the value that it stands for."""
        pieces: list[str] = []
        end = yield from self._read.clean(pieces.append)
        text = "".join(pieces)
        found = _readings(loads(text).strip(), shape, depth) if end else ()
        if len(found) == 1:
            self._repair(*found)
        else:
            self._put(text)
        return end

    def _python_string(self) -> ReadStep:
        self._repair('"')
        if not (yield from lenient_json.read_string_into(self._read, lambda text: self._put(escape_json_string(text)))):
            return ""
        self._put('"')
        return "whole"

    def _word(self, shape: Shape) -> ReadStep:
        """Pass on a value without quotes.

        The value is a JSON word or number, one of another language, or text if the schema allows a string.
        """
        read = self._read
        word = yield from read.run(_WORD)
        if literal := _WORDS.get(word):
            self._put(literal)
            read.was_repaired |= literal != word
        elif read.ended:
            self._put("" if read.cut and not _BEGUN.fullmatch(word) else word)
            return ""
        elif literal := _number(word, shape):
            self._put(literal)
            read.was_repaired |= literal != word
        elif word and shape.allows("string"):
            self._repair(f'"{escape_json_string((word + (yield from read.run(_REST))).rstrip())}"')
        else:
            self._put(word)
            raise Malformed
        return "whole"

    def _repair(self, json: str) -> None:
        self._read.was_repaired = True
        self._put(json)


def fitted(text: str, shape: Shape, depth: int = MAX_DEPTH) -> str:
    """Return the text of one value as JSON that fits; "" if the text is not exactly one value."""
    pieces: list[str] = []
    ends: list[str] = []
    read = TextReader()

    def value() -> ReadStep:
        ends.append((yield from ValueWriter(read, pieces.append).value(shape, depth)))
        return ""

    parse = FormatParser(read, value())
    try:
        parse.feed(text)
        parse.close(cut=True)  # so that no missing bracket is added
    except Malformed:
        return ""
    return "" if not any(ends) or read.left().strip() else "".join(pieces)


def from_text(text: str, wanted: frozenset[str], shape: Shape) -> str:
    """Return a text without quotes as JSON of a wanted type, with nested values that fit their schema."""
    literal = to_json(text, wanted)
    return (fitted(literal, shape) or literal) if literal.startswith(("[", "{")) else literal


def _readings(text: str, shape: Shape, depth: int) -> set[str]:
    """Return all values that a string may stand for.

    If numbers are allowed, a number is not read as an integer as well.
    """
    kinds = shape.types or frozenset()
    readable = kinds - {"integer"} if "number" in kinds else kinds
    return {found for kind in readable if (found := _reading(text, kind, shape, depth))}


def _reading(text: str, kind: str, shape: Shape, depth: int) -> str:
    match kind:
        case "array" | "object" if text[:1] == _BRACKETS[kind]:
            return fitted(text, shape, depth - 1)
        case "boolean" if text.lower() in ("true", "false"):
            return text.lower()
        case "null" if text.lower() in ("null", "none"):
            return "null"
        case "integer" if found := _INTEGRAL.fullmatch(text):
            return found[1]
        case "number" if _NUMBER.fullmatch(text):
            return text
    return ""


def _number(word: str, shape: Shape) -> str:
    """Return a number as JSON, as an integer if the schema wants one; "" if the word is no number."""
    literal = word if _NUMBER.fullmatch(word) else _plain(word)
    kinds = shape.types or frozenset()
    whole = _INTEGRAL.fullmatch(literal) if "integer" in kinds and "number" not in kinds else None
    return whole[1] if whole else literal


def _plain(word: str) -> str:
    """Convert a number of other languages to JSON: with a plus sign, leading zeros, `.5`, `5.`, `1_000`."""
    found = _LOOSE_NUMBER.fullmatch(_SEPARATOR.sub("", word))
    if not found:
        return ""
    sign, digits, point, fraction, exponent = found.groups(default="")
    return sign.strip("+") + (digits or "0") + (f".{fraction or 0}" if point else "") + exponent


def _both(first: TextSink, second: TextSink) -> TextSink:
    def put(text: str) -> None:
        first(text)
        second(text)

    return put


def _malformed() -> str:
    raise Malformed
