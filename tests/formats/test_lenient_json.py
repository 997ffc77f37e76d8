"""Test values in the notation of other languages: prefixes, depth, and text that ends inside a value."""

import json

import pytest

from gateway.formats import lenient_json
from gateway.formats.parser import FormatParser
from gateway.formats.reader import TextReader
from gateway.formats.text_buffer import Malformed

DEPTH = 100


def json_of(text):
    """Return what is passed on of a value, as JSON."""
    pieces, read = [], TextReader()
    parse = FormatParser(read, lenient_json.read_value(read, pieces.append))
    for character in text:
        parse.feed(character)
    parse.close(cut=True)
    return "".join(pieces)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{a: r"\\d", b: u"x"},', {"a": "\\d", "b": "x"}),
        ("[f'a', b'b', (1, 2)],", ["a", "b", [1, 2]]),
        ("{}", {}),
    ],
)
def test_dialect_value_is_json(text, value):
    assert json.loads(json_of(text)) == value


@pytest.mark.parametrize(
    ("text", "passed_on"),
    [
        ("{a: ", '{"a": '),
        ("{a: {b: ", '{"a": {"b": '),
        ("{a: 1, ", '{"a": 1'),
        ("[", ""),
        ("[1, ", "[1"),
        ("[1, [", "[1, "),
    ],
)
def test_dialect_value_that_ends_early_gets_no_end(text, passed_on):
    assert json_of(text) == passed_on


@pytest.mark.parametrize(("opening", "passed_on"), [("[", "[" * (DEPTH - 1)), ("{a:", '{"a": ' * DEPTH)])
def test_dialect_value_deeper_than_the_limit_is_malformed(opening, passed_on):
    assert json_of(opening * DEPTH) == passed_on
    with pytest.raises(Malformed):
        json_of(opening * (DEPTH + 1))
