"""Read text that comes in chunks.

A format is a generator.  It reads through a TextReader, which suspends it when the text runs out.  So a format reads
from top to bottom like the grammar that it parses, and its result does not depend on the chunks.
"""

import json
import re
from collections.abc import Callable, Collection, Generator
from operator import itemgetter

from gateway.formats.markers import Markers
from gateway.formats.plain_text import PassThrough, free_of
from gateway.formats.text_buffer import TextBuffer

ReadStep = Generator[PassThrough | None, None, str]
TextSink = Callable[[str], None]

SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[\w.:/-]*")
_SCALAR = re.compile(r"[\w.+-]*")
_JSON_STOP = re.compile(r'"|{|}|\[|\]|<|,\s{0,16}(?=[}\]]|\Z)')  # a character class of these would be slower
_STRING_END = re.compile(r'["\\]')
_CHARACTERS = re.compile(
    r'(?:[^"\\]++|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+"
)
_JSON_SPACE = re.compile(r"[ \t\r\n]*")
_CLEAN = re.compile(
    r'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+"
)
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_BEGUN_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?")
_LONGEST_ESCAPE = len(r"\ud83d\ude00")
_IN_STRING = frozenset('"\\')
_IN_CLEAN = frozenset('"\\') | {chr(code) for code in range(0x20)}
_IN_JSON = frozenset('"{}[]<,')  # characters to stop at outside of strings
_NONE: frozenset[str] = frozenset()
_first = itemgetter(0)
_FENCE = "`"  # text at the end of a response that the token limit cut, as Markdown has many of them
_TORN = 6  # least characters of a beginning of a tag that is no text
_GAP = 16  # most characters of white space before a marker that belong to it


class TextReader(TextBuffer):
    """The read operations of formats.  Each takes the text that is certain and suspends for the rest."""

    __slots__ = ("marker", "nesting", "was_repaired", "words")

    def __init__(self, limit: int = 8 << 20) -> None:
        super().__init__(limit)
        self.marker = ""  # the last marker found, with the white space that belongs to it
        self.was_repaired = False  # JSON was changed
        self.words: tuple[str, ...] = ()  # markers whose beginning is text at a cut
        self.nesting = 0  # open brackets in the arguments of a call

    def until(self, markers: Markers, emit: TextSink) -> ReadStep:
        """Emit text as soon as it is certain; return the next marker, or "" at the end."""
        passage = self._pass_through(markers.first, emit)
        while True:
            found = markers.search(self._buffer, self._pos)
            if found and self._is_whole_marker(found, markers):
                self._emit(found.start(), emit)
                self.marker = found[0]
                return self._take(found.end())
            self._emit(self._certain_end(markers), emit)
            if self._eof:
                return self._drop()
            yield passage if self._may_pass_through else None

    def read_until_trimmed(
        self, markers: Markers, emit: TextSink, bare: Collection[str] = (), torn: Collection[str] = ()
    ) -> ReadStep:
        """Emit text like `until`, without the white space right before the marker.

        Up to 16 characters of white space belong to the marker.

        bare: markers that keep the white space before them in the text.
        torn: tags that are dropped where only their beginning came before a tool call outside of this text.
        """
        passage = self._pass_through(markers.first, emit, trimmed=True)
        while True:
            found = markers.search(self._buffer, self._pos)
            if found and self._is_whole_marker(found, markers):
                self._emit(found.start() if found[0] in bare else self._gap_start(found.start()), emit)
                self.marker = self._take(found.end())
                return found[0]
            end = self._certain_end(markers)
            if self._eof and self.before_call:
                self._drop_torn(markers, torn)
                end = len(self._buffer)
            self._emit(end if self._eof else self._gap_start(end), emit)
            if self._eof:
                return self._drop()
            yield passage if self._may_pass_through else None

    def rest(self, emit: TextSink) -> ReadStep:
        """Emit all text up to the end."""
        passage = self._pass_through(_NONE, emit)
        while not self._eof:
            self._emit(len(self._buffer), emit)
            yield passage if self._may_pass_through else None
        self._emit(len(self._buffer), emit)
        return ""

    def lookahead(self, *options: str, text: bool = False, spaced: bool = False) -> ReadStep:
        """Return the longest option that comes next, without taking it; "" if none does.

        text: plain text may come next as well.
        spaced: up to 16 characters of white space may come first.
        """
        while True:
            begin = self._gap_end() if spaced else self._pos
            longest = max(map(len, options))
            here = self._buffer[begin : begin + longest]
            if here and here[0] not in map(_first, options):
                return ""  # the usual case
            undecided = len(here) < longest and any(len(here) < len(one) and one.startswith(here) for one in options)
            if undecided and not self._eof:
                yield None
                continue
            found = max(filter(here.startswith, options), key=len, default="")
            if undecided and self._cut and not found and not (text and not here.strip(_FENCE)):
                self._drop()
            return found

    def take_literal(self, *options: str) -> ReadStep:
        """Take the longest option that comes next and return it; "" if none does."""
        found = yield from self.lookahead(*options)
        return self._take(self._pos + len(found)) if found else ""

    def torn(self, *options: str) -> str:
        """Take the incomplete option at the end of the text and return it; "" for any other text.

        Call it after `lookahead` for the same options.
        """
        rest = self._buffer[self._pos :]
        torn = bool(rest) and self._eof and any(option.startswith(rest) for option in options)
        return self._take(len(self._buffer)) if torn else ""

    def take(self, count: int) -> ReadStep:
        """Take this number of characters, or all that are left."""
        while len(self._buffer) - self._pos < count and not self._eof:
            yield None
        return self._take(min(self._pos + count, len(self._buffer)))

    def accept(self, *options: str) -> ReadStep:
        """Skip white space, then take an option like `take_literal`."""
        yield from self.peek()
        return (yield from self.take_literal(*options))

    def expect(self, *options: str) -> ReadStep:
        """Take an option like `accept`, or raise Malformed."""
        return (yield from self.accept(*options)) or self._malformed()

    def peek(self) -> ReadStep:
        """Skip white space; return the next character without taking it, "" at the end."""
        found = self._buffer[self._pos : self._pos + 1]
        if not found or found.isspace():
            yield from self._run(SPACE, _ignore)
            found = self._buffer[self._pos : self._pos + 1]
        return found

    def read_word(self, characters: re.Pattern[str] = _WORD) -> ReadStep:
        """Take all of these characters that come next.  Raises Malformed if the next one is another."""
        return (yield from self.run(characters)) or self._malformed()

    def run(self, characters: re.Pattern[str]) -> ReadStep:
        """Take all of these characters that come next."""
        pieces: list[str] = []
        yield from self._run(characters, pieces.append)
        return "".join(pieces)

    def read_string(self) -> ReadStep:
        """Take one JSON string and return its value.  Raises Malformed for any other text."""
        pieces: list[str] = []
        yield from self.expect('"')
        return "".join(pieces) if (yield from self.read_characters(pieces.append)) else self._malformed()

    def read_characters(self, emit: TextSink) -> ReadStep:
        """Decode a JSON string whose quote was taken, piece by piece; return its end quote, or "" at the end."""
        passage = self._pass_through(_IN_STRING, emit)
        while True:
            whole = _CHARACTERS.match(self._buffer, self._pos)
            if whole and whole[0]:
                emit(json.loads(f'"{self._take(whole.end())}"', strict=False))
            left = len(self._buffer) - self._pos
            if left and self._buffer[self._pos] == '"':
                return self._take(self._pos + 1)
            if left >= _LONGEST_ESCAPE or (left > 1 and self._eof):
                self._odd_escape(emit)
            elif self._eof:
                return ""
            else:
                yield passage if self._may_pass_through else None

    def clean(self, emit: TextSink) -> ReadStep:
        """Pass on a string that begins here, as JSON; return its end quote, or "" at the end of the text.

        Control characters and backslashes that JSON does not allow are escaped, and `was_repaired` is set.
        """
        emit(self._take(self._pos + 1))
        passage = self._pass_through(_IN_CLEAN, emit)
        while True:
            whole = _CLEAN.match(self._buffer, self._pos)
            assert whole  # it may be empty
            self._emit(whole.end(), emit)
            first = self._buffer[self._pos : self._pos + 1]
            if not first:
                if self._eof:
                    return ""
                yield passage if self._may_pass_through else None
            elif first == '"':
                emit(first)
                return self._take(self._pos + 1)
            elif first != "\\":
                self.was_repaired = True
                emit(json.dumps(self._take(self._pos + 1))[1:-1])
            elif self._may_complete_escape():
                yield None
            else:
                self._bad_escape(emit)

    def _may_complete_escape(self) -> bool:
        """Return True if more text may complete the escape that begins here."""
        short = len(self._buffer) - self._pos < _LONGEST_ESCAPE and not self._eof
        return short and self._buffer[self._pos + 1 :][:1] in ("", "u")

    def space(self, emit: TextSink) -> ReadStep:
        """Pass on JSON's white space; return the next character without taking it, "" at the end."""
        yield from self._run(_JSON_SPACE, emit)
        return self._buffer[self._pos : self._pos + 1]

    def json(self, emit: TextSink, depth: int = 0) -> ReadStep:
        """Pass one JSON value through unchanged, piece by piece; return "" if the text ended first.

        A trailing comma is dropped, and `was_repaired` is set.  A tag between its values raises Malformed.

        depth: the number of its brackets that were taken before.
        """
        start = yield from self.peek()
        if depth or not start or start in '{["':
            return (yield from self._nested(emit, depth))
        if not (start.isalnum() or start == "-"):
            self._malformed()
        yield from self._run(_SCALAR, emit)
        return "whole"

    def _nested(self, emit: TextSink, depth: int) -> ReadStep:
        quoted, pos = False, self._pos
        outside, inside = self._pass_through(_IN_JSON, emit), self._pass_through(_IN_STRING, emit)
        while True:
            stop = (_STRING_END if quoted else _JSON_STOP).search(self._buffer, pos)
            if not stop or (stop[0][0] in "\\," and stop.end() == len(self._buffer)):
                self._emit(len(self._buffer) if not stop or (self._eof and quoted) else stop.start(), emit)
                if self._eof:
                    self.was_repaired |= bool(self._take(len(self._buffer)))
                    return ""
                yield (inside if quoted else outside) if self._may_pass_through else None
                pos = self._pos
                continue
            pos = stop.end()
            if stop[0] == "\\":
                pos += 1
            elif stop[0] == '"':
                quoted = not quoted
            elif stop[0][0] in "<,":
                self._repair_or_reject(stop, emit)
            else:
                depth += 1 if stop[0] in "{[" else -1
            if not depth and not quoted:
                self._emit(pos, emit)
                return "whole"

    def _repair_or_reject(self, stop: re.Match[str], emit: TextSink) -> None:
        self._emit(stop.start(), emit)
        if stop[0] == "<":
            self._malformed()
        self._take(stop.end())
        self.was_repaired = True

    def _run(self, characters: re.Pattern[str], emit: TextSink) -> ReadStep:
        while True:
            found = characters.match(self._buffer, self._pos)
            end = found.end() if found else self._pos
            self._emit(end, emit)
            if self._eof or end < len(self._buffer):
                return ""
            yield None

    def _pass_through(self, stops: frozenset[str], emit: TextSink, *, trimmed: bool = False) -> PassThrough:
        """Return the pass-through for text that has none of these characters."""
        return PassThrough(free_of(stops, self.ends.begun if self.ends else _NONE, trimmed=trimmed), emit)

    def _is_whole_marker(self, found: re.Match[str], markers: Markers) -> bool:
        """Return False if the marker may become a longer one."""
        end = self._eof and not self._cut
        if end or found[0] not in markers.short or len(self._buffer) - found.start() > markers.max_length:
            return True
        return self._buffer[found.start() :] not in markers.prefixes

    def _certain_end(self, markers: Markers) -> int:
        """Return the end of the text that cannot be the beginning of a marker."""
        end = len(self._buffer)
        begin = end if self._eof and not self._cut else end - markers.partial_suffix(self._buffer[self._pos :])
        tail = self._buffer[begin:]
        is_text = self._eof and (not tail.strip(_FENCE) or any(word.startswith(tail) for word in self.words))
        return end if is_text else begin

    def _gap_start(self, end: int) -> int:
        """Return the start of the white space before `end`."""
        least = max(self._pos, end - _GAP)
        while end > least and self._buffer[end - 1].isspace():
            end -= 1
        return end

    def _drop_torn(self, markers: Markers, tags: Collection[str]) -> None:
        """Drop the beginning of a tag on a line of its own at the end of the text."""
        begin = len(self._buffer) - markers.partial_suffix(self._buffer[self._pos :])
        torn, gap = self._buffer[begin:], self._gap_start(begin)
        alone = not self._base + gap or "\n" in self._buffer[gap:begin]
        if alone and len(torn) >= _TORN and torn[0] in "<[" and any(tag.startswith(torn) for tag in tags):
            self._buffer = self._buffer[:gap]

    def _gap_end(self) -> int:
        """Return the end of the white space that comes next."""
        begin = self._pos
        while begin - self._pos < _GAP and self._buffer[begin : begin + 1].isspace():
            begin += 1
        return begin

    def _odd_escape(self, emit: TextSink) -> None:
        """Replace a lone surrogate by U+FFFD; keep an escape that JSON does not know."""
        if lone := _LONE_SURROGATE.match(self._buffer, self._pos):
            self._take(lone.end())
            emit("\ufffd")
        else:
            emit(self._take(self._pos + 2))

    def _bad_escape(self, emit: TextSink) -> None:
        """Repair a backslash that begins no JSON escape; keep one that the end of the text cut off."""
        if self._eof and (begun := _BEGUN_ESCAPE.fullmatch(self._buffer, self._pos)):
            emit(self._take(begun.end()))
            return
        if lone := _LONE_SURROGATE.match(self._buffer, self._pos):
            self._take(lone.end())
            emit("\\ufffd")
        elif self._buffer.startswith("\\'", self._pos):
            self._take(self._pos + 2)
            emit("'")
        else:
            self._take(self._pos + 1)
            emit("\\\\")
        self.was_repaired = True

    def _emit(self, end: int, emit: TextSink) -> None:
        if end > self._pos:
            emit(self._take(end))


def _ignore(_: str) -> None:
    pass
