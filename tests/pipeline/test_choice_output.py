"""Test that pieces of one text are joined, and what is no piece stays between them."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.events import Logprob, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallStart
from gateway.pipeline.choice_output import join_pieces
from support.pipeline import chunk, events_of, parser_settings

LIKELY = (Logprob("a", -1.0, None),)
APART = [TextDelta(0, "x", LIKELY), ReasoningDelta(0, "", "{}"), ToolCallStart(0, 0, "c", "f")]  # are no pieces
EVENTS = st.lists(
    st.sampled_from(
        [
            *APART, TextDelta(0, "a"), TextDelta(0, "b"), TextDelta(1, "c"), ReasoningDelta(0, "r"), ToolArgsDelta(0, 0, "{"), ToolArgsDelta(0, 1, "}"),
        ]
    )
)  # fmt: skip


@given(EVENTS)
def test_pieces_are_joined_to_what_they_say_together(events):
    found = events.copy()
    join_pieces(found)
    assert by_character(found) == by_character(events)
    again = found.copy()
    join_pieces(again)
    assert again == found
    assert [event for event in found if event in APART] == [event for event in events if event in APART]


@given(EVENTS)
def test_pieces_of_calls_are_joined_alone(events):
    found = events.copy()
    join_pieces(found, calls_only=True)
    assert by_character(found) == by_character(events)
    others = [event for event in events if not isinstance(event, ToolArgsDelta)]
    assert [event for event in found if not isinstance(event, ToolArgsDelta)] == others


def by_character(events):
    """Return what each event says character by character."""
    return [
        (type(event), getattr(event, "call", event.choice), letter)
        for event in events
        for letter in getattr(event, "text", "") or getattr(event, "json", "") or [event]
    ]


def test_chunk_of_many_brackets_leaves_as_one():
    tools = {"f": {"properties": {}}}
    for mark in "[{":
        found = events_of([chunk(content="Hm " + mark * 500)], parser_settings("auto", tools=tools))
        assert sum(type(event) is TextDelta for event in found) < 9
