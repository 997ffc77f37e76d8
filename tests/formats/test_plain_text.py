"""Test the shortcut past a waiting format: text that fits is passed without resuming the format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.formats import FORMATS
from gateway.formats.markers import EndTokens, Markers
from gateway.formats.markup import Markup
from gateway.formats.parser import FormatParser, ParseContext
from gateway.formats.plain_text import free_of
from gateway.formats.reader import TextReader

STOPS = frozenset("<]^-\\")
ENDS = frozenset(("[u", "[E", "~["))
WORDS = st.text(st.sampled_from("abuE <]^-\\[~\n\u00a0\u2028"), max_size=8)


@given(WORDS)
def test_passage_takes_a_text_without_stops_and_beginnings_of_ends(text):
    ends = any(f"{text}{end}"[place:].startswith(tuple(ENDS)) for end in "uE[" for place in range(len(text)))
    clear = bool(text) and STOPS.isdisjoint(text) and not ends
    assert bool(free_of(STOPS, ENDS)(text)) == clear
    assert bool(free_of(STOPS, ENDS, trimmed=True)(text)) == (clear and not text[-1].isspace())
    assert bool(free_of(frozenset(), frozenset())(text)) == bool(text)


class CountedSteps:
    """A format that counts how often it is resumed."""

    def __init__(self, verb, ends=None):
        self.read, self.count, self.texts = TextReader(), 0, []
        self.read.ends = ends
        self.parse = FormatParser(self.read, self._counted(verb(self.read, self.texts.append)))

    def _counted(self, run):
        for passage in run:
            yield passage
            self.count += 1

    def feed(self, *texts):
        """Return how often the texts resumed the format."""
        before = self.count
        for text in texts:
            self.parse.feed(text)
        return self.count - before


@pytest.mark.parametrize(
    ("verb", "passing", "stopping"),
    [
        (lambda read, put: read.until(Markers("<a>"), put), ["one", " two ", "\n"], ["<", "b"]),
        (lambda read, put: read.read_until_trimmed(Markers("<a>"), put), ["one", " two"], [" ", "three"]),
        (lambda read, put: read.rest(put), ["one", " <a>", " "], []),
        (lambda read, put: read.read_characters(put), ["one", "{<a>}"], ["\\", "n"]),
    ],
    ids=["until", "trimmed_until", "rest", "characters"],
)
def test_passage_does_not_resume_a_waiting_format(verb, passing, stopping):
    steps = CountedSteps(verb)
    assert steps.feed(*passing) == 0 and steps.texts == passing
    for text in stopping:  # both resume the format: the second while the first is held
        assert steps.feed(text) == 1
    assert steps.feed(*passing) == 0
    assert steps.read.offset == sum(map(len, [*passing, *stopping, *passing])) == steps.read.received_characters


def test_passage_of_a_json_string_stops_at_its_quote():
    steps = CountedSteps(lambda read, put: read.json(put))
    assert steps.feed('{"a') == 1
    assert steps.feed(": {}, [") == 0
    assert steps.feed('"') == 1
    assert steps.feed("{") == 1


def test_passage_stops_at_a_possible_end_token():
    steps = CountedSteps(lambda read, put: read.rest(put), EndTokens("<end>"))
    assert steps.feed("one", " two") == 0
    assert steps.feed("<en") == 1
    assert steps.feed("three") == 1, "something is held"
    assert steps.feed("four") == 0
    assert steps.texts == ["one", " two", "<enthree", "four"]


def test_passage_takes_a_bracket_that_begins_no_end_token():
    steps = CountedSteps(lambda read, put: read.rest(put), EndTokens("<end>", "[eos]"))
    assert steps.feed("a[0]", "b < c", "[1, <e", "d") == 2
    assert steps.texts == ["a[0]", "b < c", "[1, ", "<ed"]


def test_passage_is_off_while_the_reader_records():
    def verb(read, put):
        read.begin_recording()
        return read.rest(put)

    assert CountedSteps(verb).feed("one", "two") == 2


def test_parser_that_is_done_takes_no_more():
    read = TextReader()
    parse = FormatParser(read, read.read_string())
    parse.feed('"a"')
    assert parse.done
    parse.feed("b")
    assert parse.done


@pytest.mark.parametrize("format", ["think", "hermes_json", "harmony", "qwen_xml"])
def test_passage_takes_plain_text_in_real_formats(format):
    texts = []

    class Emit:
        text = reasoning = staticmethod(texts.append)

    def recorded(run):
        for passage in run:
            passed.append(passage)
            yield passage

    passed, read = [], TextReader()
    parse = FormatParser(read, recorded(FORMATS[format].parse(read, Emit(), ParseContext({"f": {}}))))
    begin = "<|channel|>final<|message|>" if format == "harmony" else "Well"
    parse.feed(begin)
    before = len(passed)
    for _ in range(9):
        parse.feed(" word")
    assert len(passed) == before and passed[-1]
    assert "".join(texts).endswith(" word" * 9)


def test_formats_with_the_same_end_tokens_share_them():
    ends = [row.parse.ends for row in FORMATS.values() if isinstance(row.parse, Markup)]
    assert len({*map(id, ends)}) == len({one._tokens for one in ends})
