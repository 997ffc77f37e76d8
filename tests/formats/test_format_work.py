"""Test that parsing is linear: the cost of a character does not depend on the text before.

The tests count function calls and buffered characters instead of time.
"""

import gc
from cProfile import Profile
from types import SimpleNamespace

import pytest

from gateway.formats import FORMATS
from gateway.formats.markers import END_TOKENS
from gateway.formats.parser import FormatParser, ParseContext
from gateway.formats.reader import TextReader
from support.encoders import ENCODERS
from support.encoders.turn import Call, Calls, Text, Thought
from support.format_events import untraced
from support.format_literals import tags
from support.sampling import ONE_OF_EACH_GRAMMAR, some

OFFERED = ParseContext({"f": {"properties": {"a": {"type": "string"}, "o": {}}}})
DELTA = 4  # characters
SMALL, LARGE, MANY, HUGE = 128, 1 << 10, 64 << 10, 1 << 20
FACTOR = 2  # the largest ratio of the costs per character
PIECES = ("a[i] = x;\n", "<", " ", "\n", "\\\\", '\\"', "{", '"')
TAGS = 4  # of a format, at most
WHERE = "Paris"


class Counted(str):
    """A buffer that counts the characters copied out of it."""

    __slots__ = ("tally",)

    def __getitem__(self, key):
        part = str.__getitem__(self, key)
        self.tally.copied += len(part)
        return part


class Watched(TextReader):
    """A Reader that counts the characters of its buffer."""

    __slots__ = ("tally",)

    def __init__(self, tally):
        super().__init__()
        self.tally = tally

    def feed(self, text):
        super().feed(text)
        self.tally.copied += len(self._buffer)
        self._buffer = Counted(self._buffer)
        self._buffer.tally = self.tally

    def end_recording(self):
        text = super().end_recording()
        self.tally.copied += len(text)
        return text


class Silent:
    """An Emit that ignores all events."""

    def text(self, text): ...
    def reasoning(self, text): ...
    def tool_start(self, name, id=""): ...
    def tool_args(self, json): ...
    def tool_end(self): ...
    def incomplete_call(self, text): ...
    def note_dropped(self, what): ...
    def thought_end(self, tag): ...
    def note_unread(self, format): ...


def parse_whole(format, text):
    run = FORMATS[format].parse
    if run:
        read = TextReader()
        parse = FormatParser(read, run(read, Silent(), OFFERED))
        parse.feed(text)
        parse.close()


def work(format, text, delta):
    """Count the work of parsing a text in deltas of this size."""
    tally, profile = SimpleNamespace(copied=0), Profile(subcalls=False)
    deltas = [text[begin : begin + delta] for begin in range(0, len(text), delta)]
    read = Watched(tally)
    gc.disable()  # callbacks of the collector would be counted
    try:
        with profile:  # counts in C, several times faster than a function of sys.setprofile
            parse = FormatParser(read, FORMATS[format].parse(read, Silent(), OFFERED))
            for piece in deltas:
                parse.feed(piece)
            parse.close()
    finally:
        gc.enable()
    return tally.copied + sum(function.callcount for function in profile.getstats())


def works(format, small, large, delta):
    """Count the work of parsing each of two texts; a first parse, which compiles the patterns, does not count."""
    work(format, small, delta)
    return work(format, small, delta), work(format, large, delta)


def places(encoder):
    """Map each kind of string (text, reasoning, argument, untyped argument) to the texts before and after it."""
    parts = {"text": Text(WHERE)}
    if encoder.thought:
        parts["thought"] = Thought(WHERE)
    if encoder.calls:
        parts["argument"] = Calls((Call("f", {"a": WHERE}),))
        parts["untyped"] = Calls((Call("f", {"o": WHERE}),))
    return {where: encoder.encode([part]).split(WHERE) for where, part in parts.items()}


def some_tags(format):
    """Return some tags of the format, without those that end a turn: these wait, up to a bound, for more text."""
    own = [tag for tag in tags(format) if tag not in END_TOKENS]
    return own[:: len(own) // TAGS + 1]


def fill(around, piece, size):
    before, after = around
    return before + piece * (size // len(piece)) + after


@pytest.mark.parametrize("format", some(ENCODERS, always=ONE_OF_EACH_GRAMMAR))
@untraced
def test_format_work_per_character_does_not_grow_with_the_text(format):
    for where, around in places(ENCODERS[format]).items():
        for piece in (*PIECES, *some_tags(format)):
            small, large = fill(around, piece, SMALL), fill(around, piece, LARGE)
            for delta in (DELTA, LARGE):
                least, most = works(format, small, large, delta)
                assert most < least * (LARGE // SMALL * FACTOR), (where, piece, delta)


@untraced
def test_format_work_for_end_tokens_is_bounded():
    small, large = ("<|im_end|>" * (size // 10) for size in (LARGE, 8 * LARGE))
    least, most = works("hermes_json", small, large, DELTA)
    assert most < least * 8 * FACTOR


@pytest.mark.parametrize("format", some(ONE_OF_EACH_GRAMMAR, share=3))
@pytest.mark.parametrize(("where", "piece"), [("argument", "a[i] = x;\n"), ("untyped", "[")], ids=["code", "brackets"])
@untraced
def test_format_work_per_character_is_flat_up_to_a_megabyte(format, where, piece):
    around = places(ENCODERS[format])[where]
    least, most = works(format, fill(around, piece, MANY), fill(around, piece, HUGE), 16 * DELTA)
    assert most < least * (HUGE // MANY * FACTOR)


DEEP = 1200  # more than Python's recursion limit
NESTING = (
    '{"function": ',
    '{"function": {"name": "f", "arguments": ',
    '{"a": ',
    "{a:",
    "[",
    "(",
    "f(",
    "f(a=",
    "{'a': [",
    '"\\ud83d',
    "\\ud83d",
)


@pytest.mark.parametrize("format", some(FORMATS, always=(*ONE_OF_EACH_GRAMMAR, "auto")))
@untraced
def test_format_takes_any_depth_of_nesting(format):
    """Nesting that never closes raises no exception."""
    around = places(ENCODERS[format]).values() if format in ENCODERS else []
    for before in ("", *some_tags(format), *(before for before, _ in around)):
        for piece in NESTING:
            parse_whole(format, before + piece * DEEP)
    for tag in some(tags(format)) if format == "auto" else tags(format):  # it has those of all formats
        parse_whole(format, tag * DEEP)
