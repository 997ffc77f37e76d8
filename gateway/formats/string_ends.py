"""Find out if a quote ends a string in Python-like arguments, by the text behind the quote.

A string ends if something that may follow a value comes next, directly or after operators and operands:

    'a' 'b'    "x" + y    '%s' % z

Otherwise the quote is inside the string, as in 'sed -n '1,5p' f'.
"""

import re

from gateway.formats import lenient_json
from gateway.formats.markers import Markers
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.text_buffer import Malformed

PREFIXES = {"r", "f", "b", "u", "rb", "br", "rf", "fr"}  # string prefixes in lower case
_SPACE, _WORD, _SIGNS = re.compile(r"\s*"), re.compile(r"\w*"), re.compile(r"[-+*/%@&|^<>=!~]*")
_BINARY = re.compile(r"(?:\*\*|//|<<|>>|[<>=!]=|[-+*/%@&|^<>])[-+~]*")
_UNARY = re.compile(r"[-+~]+")
_BETWEEN = {"and", "or", "if", "else", "for", "in", "is", "not"}
_BEFORE = {"not", "lambda", "await"}
_QUOTE, _OPEN, _CLOSE = ("'", '"'), ("(", "[", "{"), (")", "]", "}")
_CLOSINGS = tuple(quote + bracket for quote in _QUOTE for bracket in _CLOSE)
_INSIDE = tuple(closing + quote for closing in _CLOSINGS for quote in _QUOTE)
_MARK = re.compile(r"\\.|['\"()\[\]{}]", re.DOTALL)
_MARKS = Markers("\\", *_QUOTE, *_OPEN, *_CLOSE)


class Tail:
    """The text behind a quote, as far as it was read.

    text: the text itself, in pieces.
    strings: prefix and text of each string that is joined to the string before the quote.
    open: the text ended before it was clear if the quote ends its string.
    """

    def __init__(self, read: TextReader, ends: str) -> None:
        self._read, self._ends = read, ends
        self.text: list[str] = []
        self.strings: list[tuple[str, str]] = []
        self.open = False
        self._literal = self._strung = True  # all operands so far were strings; the last one was a string

    def run(self) -> ReadStep:
        """Return the end in `ends` that was taken; "" if the quote does not end its string.

        Raises Malformed if the value is an expression.
        """
        read = self._read
        while True:
            yield from self._run(_SPACE)
            if read.ended:
                break
            if end := (yield from read.take_literal(*self._ends)):
                return (yield from self._ended(end))
            if not (yield from self._part()):
                break
        self.open |= read.ended and (read.cut or not "".join(self.text).strip())
        return ""

    def _ended(self, end: str) -> ReadStep:
        """Return the end mark of the value; "" for a bracket right before a quote, which is inside the string.

        Raises Malformed if the value is an expression.
        """
        if end in _CLOSE and (yield from self._read.lookahead(*_QUOTE)):
            self.text.append(end)
            return ""
        if not self._literal:
            raise Malformed
        return end

    def _part(self) -> ReadStep:
        """Read an operator and its operand, another string, or a suffix of an operand; return "" if none comes."""
        apart = bool(self.text[-1])
        word = yield from self._run(_WORD)
        prefix = word.lower()
        if self._strung and (not word or (apart and prefix in PREFIXES)):
            closing = (word or not apart) and (yield from self._closing())
            if not closing and (string := (yield from self._string(prefix))):
                return string
        if word:
            self._literal = False
            return (yield from self._operand()) if word in _BETWEEN else ""
        if signs := (yield from self._run(_SIGNS)):
            self._literal &= signs == "+" and self._strung
            return (yield from self._operand()) if _BINARY.fullmatch(signs) else ""
        self._literal = self._strung = False
        if (yield from self._take(".")):
            return (yield from self._run(_WORD))
        return (yield from self._group("(", "["))

    def _operand(self) -> ReadStep:
        """Read the operand behind an operator; return "" if none comes."""
        yield from self._run(_SPACE)
        word = yield from self._run(_WORD)
        if (not word or word.lower() in PREFIXES) and (string := (yield from self._string(word.lower()))):
            self._strung = True
            return string
        self._literal = self._strung = False
        if word in _BEFORE or (not word and _UNARY.fullmatch((yield from self._run(_SIGNS)))):
            return (yield from self._operand())
        if word:
            return "" if word in _BETWEEN else word
        return (yield from self._group(*_OPEN)) or (yield from self._take("."))

    def _string(self, prefix: str) -> ReadStep:
        """Read a string up to the first quote that may end it; return "" if none comes."""
        read = self._read
        text: list[str] = []
        quote = yield from self._take(*lenient_json.QUOTES)
        while quote and (mark := (yield from read.until(lenient_json.ENDS[quote], text.append))) != quote:
            if not mark:
                return ""
            text.append(mark + (yield from read.take(1)))
        if quote:
            self.text += [*text, quote]
            self.strings.append((prefix, "".join(text)))
        return quote

    def _closing(self) -> ReadStep:
        """Return the next quote and bracket if they close a string and its container, else ""."""
        found = yield from self._read.lookahead(*_CLOSINGS, *_INSIDE)
        return "" if found in _INSIDE else found

    def _group(self, *brackets: str) -> ReadStep:
        """Read a text in brackets; return "" if none comes."""
        if bracket := (yield from self._take(*brackets)):
            return (yield from Nesting(bracket).leave(self._read, self.text.append))
        return ""

    def _take(self, *options: str) -> ReadStep:
        taken = yield from self._read.take_literal(*options)
        self.text.append(taken)
        return taken

    def _run(self, characters: re.Pattern[str]) -> ReadStep:
        taken = yield from self._read.run(characters)
        self.text.append(taken)
        return taken


class Nesting:
    """Track the open brackets behind a text, and the quote of the string that the text ends in."""

    def __init__(self, text: str) -> None:
        self._depth, self._quote = 0, ""
        for mark in _MARK.findall(text):
            self._see(mark)

    def leave(self, read: TextReader, put: TextSink) -> ReadStep:
        """Put the text up to the bracket that closes the outermost one, and return that; "" if the text ends first."""
        mark = ""
        while self._depth > 0 and (mark := (yield from read.until(_MARKS, put))):
            put(mark)
            if mark == "\\":
                put((yield from read.take(1)))
            self._see(mark)
        return mark

    def _see(self, mark: str) -> None:
        if self._quote or mark in _QUOTE:
            self._quote = "" if mark == self._quote else self._quote or mark
        elif mark in _OPEN:
            self._depth += 1
        elif mark in _CLOSE:
            self._depth -= 1
