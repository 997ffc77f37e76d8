"""Test how the schema of a tool tells what elements inside elements mean (MiniMax M3)."""

import pytest

from gateway.formats.parser import ParseContext
from support.format_events import text_events, written
from support.pipeline import singly

MARK = "]<]minimax[>["
INSIDE = {"k": {"type": "string"}, "many": {"type": "array", "items": {"type": "string"}}}
TOOLS = {"f": {"properties": {"o": {"type": "object", "properties": INSIDE}}}}

REPEATED = [
    ("a string, of which the last counts", "<k>1</k><k>2</k>", '{"k": "2"}'),
    ("a list, of which each is an item", "<many>a</many><k>x</k><many>b</many>", '{"many": ["a", "b"], "k": "x"}'),
    ("one that the schema does not have", "<z>1</z><z>b</z>", '{"z": [1, "b"]}'),
]


@pytest.mark.parametrize(("inside", "json"), [pytest.param(*row, id=what) for what, *row in REPEATED])
def test_repeated_elements_follow_the_schema(inside, json):
    text = f'<invoke name="f"><o>{inside}</o></invoke>'.replace("<", f"{MARK}<")
    for pieces in ([text], singly(text)):
        assert written(text_events(pieces, "minimax_m3", ParseContext(TOOLS))) == [["call", "f", f'{{"o": {json}}}']]
