"""Values in the notation of other languages: prefixes, depth, and text that ends inside of one."""

import json

import pytest

from gateway.formats import dialect
from gateway.formats.format import Parse
from gateway.formats.reader import Malformed, Reader

DEPTH = 100


def json_of(text):
    """Return a value as JSON, as far as it goes."""
    pieces, read = [], Reader()
    parse = Parse(read, dialect.value(read, pieces.append))
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


@pytest.mark.parametrize("text", ["{a: ", "{a: {b: ", "[", "[1, ", "[1, [", "{a: 1, "])
def test_dialect_value_that_ends_early_is_passed_on_without_its_end(text):
    assert not json_of(text).endswith(("]", "}"))


@pytest.mark.parametrize("opening", ["[", "{a:"])
def test_dialect_value_deeper_than_the_limit_is_malformed(opening):
    json_of(opening * DEPTH)
    with pytest.raises(Malformed):
        json_of(opening * (DEPTH + 1))
