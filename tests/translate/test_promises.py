"""What an answer has to be: whether it is told where it is not, and what is held back until that is known."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Problem
from gateway.events import (
    Event,
    Extra,
    Failure,
    Finish,
    Reasoning,
    Refusal,
    Text,
    ToolArgs,
    ToolEnd,
    ToolStart,
    Usage,
)
from gateway.ledger import Ledger
from gateway.request import Named, Request, Tool
from gateway.translate.promises import Terms, promised

TOOLS = (Tool("f", {"name": "f"}),)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OBJECT = {"response_format": {"type": "json_object"}}


def formed(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}


NUMBER, LIST = formed(SCHEMA), formed({"type": "array"})
WITHOUT_SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}
CALL: list[Event] = [ToolStart(0, 0, "call_1", "f"), ToolArgs(0, 0, "{}"), ToolEnd(0, 0), Finish(0, "tool_calls")]
NO_CALL, NO_FORM = ["unenforced:tool_choice"], ["unenforced:response_format"]
LOST = Failure(Problem(502, "Lost.", "upstream_lost"))
FORCED = {"tools": TOOLS, "tool_choice": "required"}


def said(*pieces, reason="stop", choice=0):
    return [*(Text(choice, piece) for piece in pieces), Finish(choice, reason)]


def asked(**fields):
    return Request(**{"model": "m", "messages": ({"role": "user", "content": "Hi"},), **fields})


def of(terms, before=None, **fields):
    ledger = Ledger()
    return promised(asked(**fields), lambda: terms, ledger, before), ledger


def fed(promise, events):
    return [*(after for event in events for after in promise.feed(event)), *promise.close()]


@pytest.mark.parametrize(
    ("fields", "events", "entries"),
    [
        (FORCED, CALL, []),
        (FORCED, said("I", " shall"), NO_CALL),
        (FORCED, [Reasoning(0, "Hm"), Finish(0, "stop")], NO_CALL),
        (FORCED, [Reasoning(0, "Hm"), Finish(0, "length")], []),  # it may have come to that
        (FORCED, said("\n", reason="length"), []),
        (FORCED, said("I", reason="length"), NO_CALL),
        (FORCED, said("I", reason="content_filter"), []),
        (FORCED, [Refusal(0, "No."), Finish(0, "stop")], []),
        (FORCED, [*CALL, *said("I", choice=1)], NO_CALL),
        ({**FORCED, "tool_choice": Named("f")}, said("I"), NO_CALL),
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
        ({"rest": NUMBER}, said(' {"n": 3}\n'), []),
        ({"rest": NUMBER}, said('{"m": 3}'), NO_FORM),
        ({"rest": NUMBER}, said('{"n": "3"}'), NO_FORM),
        ({"rest": NUMBER}, said("[" * 100_000), NO_FORM),
        ({"rest": LIST}, said("[3]"), []),
        ({"rest": LIST}, said("Three"), NO_FORM),
        ({"rest": WITHOUT_SCHEMA}, said("3"), []),
        ({"rest": formed({"type": 7})}, said("3"), NO_FORM),  # nothing fits, or does not, what is no schema
        ({"rest": formed({"$ref": "file:///etc/hostname"})}, said("3"), NO_FORM),
        ({"rest": formed({"$ref": "#/nowhere"})}, CALL, NO_FORM),
        ({"rest": formed({"type": "string", "pattern": "^(a+)+$"})}, said(json.dumps("a" * 40 + "b")), NO_FORM),
        ({"rest": formed({"$defs": {"n": SCHEMA}, "$ref": "#/$defs/n"})}, said("{}"), NO_FORM),
        ({"rest": {"guided_json": SCHEMA}}, said('{"m": 3}'), NO_FORM),
        ({"rest": {"guided_json": json.dumps(SCHEMA)}}, said('{"n": 3}'), []),
        ({"rest": {"format": "json"}}, said("Three"), NO_FORM),
    ],
)
def test_what_was_to_be_and_is_not_is_listed(fields, events, entries):
    promise, ledger = of(Terms(), **fields)
    assert fed(promise, events) == events
    assert ledger.entries() == entries


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {**FORCED, "tool_choice": "auto"},
        {**FORCED, "tool_choice": "none"},
        {**FORCED, "allowed": frozenset()},
        {"rest": OBJECT, "generates": False},
        {"rest": OBJECT, "messages": ({"role": "assistant", "content": "{"},)},  # the rest of one
        {"rest": {"guided_json": 7, "think": True, "stop": "."}},
        {"rest": {"response_format": {"type": "text"}}},
    ],
)
def test_most_requests_are_promised_nothing(fields):
    assert promised(asked(**fields), Terms, Ledger()) is None


RETRY = Terms(call="retry", form="retry")
THOUGHT, USED = Reasoning(0, "Hm"), Usage(3, 4)


def attempts(terms, first, second, **fields):
    """What is passed on of two answers, and what was asked for the second."""
    promise, ledger = of(terms, **fields)
    passed = fed(promise, first)
    assert promise.failed
    again = promise.asking()
    later = promised(again, lambda: terms, ledger, promise.failed)
    return passed + fed(later, second), again.messages[1:], ledger.entries()


def test_an_answer_without_its_call_is_held_back_and_asked_for_again():
    late = Extra(None, "timings", b"{}")
    passed, told, entries = attempts(RETRY, [*said("I", " shall."), USED, late], [THOUGHT, *CALL, USED], **FORCED)
    assert passed == [USED, THOUGHT, *CALL, USED] and entries == []
    demand = "Answer with a call of one of the tools, and with nothing else."
    assert told == (
        {"role": "assistant", "content": "I shall."},
        {"role": "user", "content": f"That was no call. {demand}"},
    )


def test_one_that_says_nothing_is_not_repeated():
    _, told, _ = attempts(RETRY, said("\n"), CALL, **{**FORCED, "tool_choice": Named("f")})
    (word,) = told
    assert word["role"] == "user" and "the tool 'f'" in word["content"]


def test_what_does_not_fit_is_told_why():
    passed, told, entries = attempts(RETRY, said('{"n": "three"}'), said('{"n": 3}'), rest=NUMBER)
    assert passed == said('{"n": 3}') and entries == []
    answer, word = told
    assert answer["content"] == '{"n": "three"}' and '"three" is not of type "integer"' in word["content"]


@pytest.mark.parametrize(
    ("fields", "entries"),
    [(FORCED, NO_CALL), ({"rest": NUMBER}, NO_FORM), ({**FORCED, "rest": OBJECT}, NO_CALL + NO_FORM)],
)
def test_the_second_is_the_last(fields, entries):
    passed, _, listed = attempts(RETRY, said("One"), said("Two"), **fields)
    assert passed == said("Two") and listed == entries


def test_or_is_refused():
    for terms in (Terms(call="refuse"), Terms(call="retry", strict=True)):
        passed, _, entries = attempts(terms, said("One"), [*said("Two"), USED], **FORCED)
        failure, used = passed
        assert (failure.problem.status, failure.problem.code) == (400, "unsupported_value")
        assert failure.problem.param == "tool_choice" and used == USED and entries == []


def test_strict_mode_refuses_a_whole_answer_of_another_form():
    strict = Terms(strict=True)
    promise, _ = of(strict, rest=NUMBER)
    (failure,) = fed(promise, said("Three"))
    assert failure.problem.param == "response_format" and "it is no JSON" in failure.problem.message
    streamed, ledger = of(strict, rest=NUMBER, stream=True)
    assert fed(streamed, said("Three")) == said("Three") and ledger.entries() == NO_FORM


def test_a_second_that_fails_makes_way_for_the_first():
    passed, _, entries = attempts(RETRY, said("One"), [LOST], **FORCED)
    assert passed == said("One") and entries == NO_CALL
    passed, _, entries = attempts(RETRY, said("One"), [Text(0, "Tw"), LOST], **FORCED)
    assert passed == said("One") and entries == NO_CALL


def test_but_not_for_one_that_would_be_refused():
    passed, _, _ = attempts(Terms(call="refuse"), said("One"), [LOST], **FORCED)
    assert passed == [LOST]


def test_what_had_come_before_a_failure_is_passed_on():
    promise, _ = of(RETRY, **FORCED)
    assert fed(promise, [Text(0, "I"), LOST]) == [Text(0, "I"), LOST]
    assert promise.failed is None


def test_a_call_lets_everything_through_that_waited():
    promise, _ = of(RETRY, **FORCED)
    extra = Extra(None, "timings", b"{}")
    assert fed(promise, [extra, Text(0, "I see.")]) == []
    assert fed(promise, CALL[:1]) == [extra, Text(0, "I see."), CALL[0]]
    assert fed(promise, CALL[1:]) == CALL[1:]


@pytest.mark.parametrize(
    ("terms", "fields", "waits"),
    [
        (Terms(call="retry", how="own"), FORCED, False),
        (Terms(call="retry", how="schema"), FORCED, False),
        (Terms(call="retry", how="words"), FORCED, True),
        (Terms(call="refuse", how="own"), FORCED, True),
        (Terms(call="retry", strict=True), FORCED, True),
        (Terms(form="retry"), {"rest": NUMBER}, True),
        (Terms(form="warn"), {"rest": NUMBER}, False),
        (Terms(call="retry", how="words"), {**FORCED, "n": 2}, False),
    ],
)
def test_who_waits_for_a_streamed_thought(terms, fields, waits):
    promise, ledger = of(terms, stream=True, **fields)
    assert fed(promise, [THOUGHT]) == ([] if waits else [THOUGHT])
    if not waits:  # and then it is too late to ask again
        assert fed(promise, said("I")) == said("I")
        assert promise.failed is None and ledger.entries()


def test_of_a_whole_answer_nobody_waits_for_a_part():
    promise, _ = of(Terms(call="retry", how="own"), **FORCED)
    assert fed(promise, [THOUGHT, *said("I")]) == []
    assert promise.failed


def test_no_more_is_held_back_than_there_is_room_for():
    promise, ledger = of(Terms(call="retry", form="retry", limit=10), rest=OBJECT, **FORCED)
    events = [Reasoning(0, "Hmmmm"), Text(0, "12345"), Text(0, "6"), Text(0, "7"), Finish(0, "stop")]
    assert fed(promise, events[:2]) == []
    assert fed(promise, events[2:3]) == events[:3]
    assert fed(promise, events[3:]) == events[3:]
    assert promise.failed is None and ledger.entries() == NO_CALL + NO_FORM


def test_a_text_that_is_too_long_is_not_judged():
    promise, ledger = of(Terms(limit=3), rest=OBJECT)
    assert fed(promise, said("{", "   ", "}")) == said("{", "   ", "}") and ledger.entries() == NO_FORM


EVENTS = st.sampled_from(
    [THOUGHT, Text(0, "I"), Text(0, "{}"), Text(0, ""), USED, Extra(None, "x", b"1"), Refusal(0, "No")]
)
TERMS = st.builds(
    Terms,
    st.sampled_from(["warn", "retry", "refuse"]),
    st.sampled_from(["warn", "retry", "refuse"]),
    st.sampled_from(["own", "schema", "words"]),
    st.booleans(),
)


@given(st.lists(EVENTS), st.sampled_from([[], CALL, said(), said(reason="length"), [LOST]]), TERMS, st.booleans())
def test_all_of_an_answer_is_passed_on_in_its_order_or_nothing_but_what_it_cost(before, end, terms, stream):
    events = [*before, *end]
    promise, _ = of(terms, stream=stream, rest=OBJECT, **FORCED)
    passed = fed(promise, events)
    costs = [event for event in passed if event == USED]
    told = [event for event in passed if event != USED]
    assert len(costs) == events.count(USED)
    if end and not promise.failed and not any(isinstance(event, Failure) for event in told if event != LOST):
        assert told == [event for event in events if event != USED]
    if promise.failed:
        assert told == [] and [*promise.failed.events] == [event for event in events if event != USED]
