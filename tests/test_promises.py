"""What an answer was to be, and whether it is told where it is not."""

import json

import pytest

from gateway.events import Event, Finish, Reasoning, Text, ToolArgs, ToolEnd, ToolStart
from gateway.ledger import Ledger
from gateway.request import Named, Request, Tool
from gateway.translate import close, feed, translate

TOOLS = (Tool("f", {"name": "f"}),)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OBJECT = {"response_format": {"type": "json_object"}}
NUMBER = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}
LIST = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array"}}}}
WITHOUT_SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}
CALL: list[Event] = [ToolStart(0, 0, "call_1", "f"), ToolArgs(0, 0, "{}"), ToolEnd(0, 0), Finish(0, "tool_calls")]
NO_CALL, NO_FORM = ["unenforced:tool_choice"], ["unenforced:response_format"]


def said(*pieces, reason="stop", choice=0):
    return [*(Text(choice, piece) for piece in pieces), Finish(choice, reason)]


def listed(events, **fields):
    """What is in the ledger of a request with these fields after these events, all of which are passed on."""
    ledger = Ledger()
    asked = {"model": "m", "messages": ({"role": "user", "content": "Hi"},), **fields}
    _, filters = translate(Request(**asked), ledger)
    assert [*feed(filters, events), *close(filters)] == events
    return ledger.entries()


FORCED = {"tools": TOOLS, "tool_choice": "required"}


@pytest.mark.parametrize(
    ("fields", "events", "entries"),
    [
        (FORCED, CALL, []),
        (FORCED, said("I", " shall"), NO_CALL),
        (FORCED, [Reasoning(0, "Hm"), Finish(0, "stop")], NO_CALL),
        (FORCED, said("I", reason="length"), []),  # it may have come to that
        (FORCED, [*CALL, *said("I", choice=1)], NO_CALL),
        ({**FORCED, "tool_choice": Named("f")}, said("I"), NO_CALL),
        ({**FORCED, "tool_choice": "auto"}, said("I"), []),
        ({**FORCED, "allowed": frozenset()}, said("I"), []),
        ({"rest": OBJECT}, said('{"n":', " 3}"), []),
        ({"rest": OBJECT}, said("[3]"), NO_FORM),
        ({"rest": OBJECT}, said("Three"), NO_FORM),
        ({"rest": OBJECT}, said('{"n":', reason="length"), []),
        ({"rest": OBJECT}, said(reason="length"), []),
        ({"rest": OBJECT}, said("Three is", reason="length"), NO_FORM),
        ({"rest": OBJECT}, said("Three", reason="content_filter"), []),
        ({"rest": LIST}, said("[3", reason="length"), []),
        ({"rest": OBJECT}, [*said("{}"), *said("Three", choice=1)], NO_FORM),
        ({"rest": OBJECT, "tools": TOOLS}, CALL, []),
        ({"rest": OBJECT, **FORCED}, said("I"), NO_CALL + NO_FORM),
        ({"rest": OBJECT, "generates": False}, [Finish(0, "stop")], []),
        ({"rest": OBJECT, "messages": ({"role": "assistant", "content": "{"},)}, said('"n": 3}'), []),
        ({"rest": NUMBER}, said(' {"n": 3}\n'), []),
        ({"rest": NUMBER}, said('{"m": 3}'), NO_FORM),
        ({"rest": NUMBER}, said("[" * 100_000), NO_FORM),
        ({"rest": LIST}, said("[3]"), []),
        ({"rest": LIST}, said("Three"), NO_FORM),
        ({"rest": WITHOUT_SCHEMA}, said("3"), []),
        ({"rest": {"guided_json": SCHEMA}}, said('{"m": 3}'), NO_FORM),
        ({"rest": {"guided_json": json.dumps(SCHEMA)}}, said('{"n": 3}'), []),
        ({"rest": {"format": "json"}}, said("Three"), NO_FORM),
        ({"rest": {"guided_json": 7, "think": True, "stop": "."}}, said("Three"), []),
        ({"rest": {"response_format": {"type": "text"}}}, said("Three"), []),
    ],
)
def test_what_was_to_be_and_is_not_is_listed(fields, events, entries):
    assert listed(events, **fields) == entries
