"""Test promises on a response: the warning if one is not kept, and the events that are held back until then."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Problem
from gateway.events import (
    Event,
    ExtraField,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from gateway.request import Request, Tool, ToolName
from gateway.transforms.output_validation import EnforcementTerms, output_validation
from gateway.warnings import Warnings

TOOLS = (Tool("f", {"name": "f"}),)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OBJECT = {"response_format": {"type": "json_object"}}


def schema_format(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}


NUMBER, LIST = schema_format(SCHEMA), schema_format({"type": "array"})
WITHOUT_SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}
CALL: list[Event] = [
    ToolCallStart(0, 0, "call_1", "f"),
    ToolArgsDelta(0, 0, "{}"),
    ToolCallEnd(0, 0),
    Finish(0, "tool_calls"),
]
NO_CALL, NO_FORM = ["unenforced:tool_choice"], ["unenforced:response_format"]
CHOICE, NO_TEXT = {"structured_outputs": {"choice": ["yes", "no "]}}, ["unenforced:structured_outputs"]
LOST = Failure(Problem(502, "Lost.", "upstream_lost"))
FORCED = {"tools": TOOLS, "tool_choice": "required"}


TWO = (*TOOLS, Tool("g", {"name": "g"}))
NAMED = {"tools": TWO, "tool_choice": ToolName("f")}
OTHER = [ToolCallStart(0, 0, "call_1", "g"), *CALL[1:]]  # a call of the tool that the request does not name


def text_events(*pieces, reason="stop", choice=0):
    return [*(TextDelta(choice, piece) for piece in pieces), Finish(choice, reason)]


def request_with(**fields):
    return Request(**{"model": "m", "messages": ({"role": "user", "content": "Hi"},), **fields})


def promise_with(terms, before=None, **fields):
    ledger = Warnings()
    return output_validation(request_with(**fields), lambda: terms, ledger, before), ledger


def events_after(promise, events):
    return [*(after for event in events for after in promise.feed(event)), *promise.close()]


@pytest.mark.parametrize(
    ("fields", "events", "entries"),
    [
        (FORCED, CALL, []),
        (FORCED, text_events("I", " shall"), NO_CALL),
        (FORCED, [ReasoningDelta(0, "Hm"), Finish(0, "stop")], NO_CALL),
        (FORCED, [ReasoningDelta(0, "Hm"), Finish(0, "length")], []),  # the call may have been cut off
        (FORCED, text_events("\n", reason="length"), []),
        (FORCED, text_events("I", reason="length"), NO_CALL),
        (FORCED, text_events("I", reason="content_filter"), []),
        (FORCED, [RefusalDelta(0, "No."), Finish(0, "stop")], []),
        (FORCED, [*CALL, *text_events("I", choice=1)], NO_CALL),
        ({**FORCED, "tool_choice": ToolName("f")}, text_events("I"), NO_CALL),
        (NAMED, CALL, []),
        (NAMED, OTHER, NO_CALL),
        (NAMED, [*OTHER[:-1], *CALL], []),
        (NAMED, [*OTHER[:-1], Finish(0, "content_filter")], []),
        ({**FORCED, "tools": TWO}, OTHER, []),
        ({**NAMED, "tool_choice": ToolName("g", "other")}, OTHER, NO_CALL),
        ({**NAMED, "tool_choice": ToolName("s")}, [ToolCallStart(0, 0, "call_1", "", "shell"), *CALL[2:]], []),
        ({"rest": OBJECT}, text_events('{"n":', " 3}"), []),
        ({"rest": OBJECT}, text_events("[3]"), NO_FORM),
        ({"rest": OBJECT}, text_events("Three"), NO_FORM),
        ({"rest": OBJECT}, text_events('{"n":', reason="length"), []),
        ({"rest": OBJECT}, text_events(reason="length"), []),
        ({"rest": OBJECT}, text_events("Three is", reason="length"), NO_FORM),
        ({"rest": OBJECT}, text_events("Three", reason="content_filter"), []),
        ({"rest": LIST}, text_events("[3", reason="length"), []),
        ({"rest": OBJECT}, [*text_events("{}"), *text_events("Three", choice=1)], NO_FORM),
        ({"rest": OBJECT, "tools": TOOLS}, CALL, []),
        ({"rest": OBJECT, **FORCED}, text_events("I"), NO_CALL + NO_FORM),
        ({"rest": NUMBER}, text_events(' {"n": 3}\n'), []),
        ({"rest": NUMBER}, text_events('{"m": 3}'), NO_FORM),
        ({"rest": NUMBER}, text_events('{"n": "3"}'), NO_FORM),
        ({"rest": NUMBER}, text_events("[" * 100_000), NO_FORM),
        ({"rest": LIST}, text_events("[3]"), []),
        ({"rest": LIST}, text_events("Three"), NO_FORM),
        ({"rest": WITHOUT_SCHEMA}, text_events("3"), []),
        (
            {"rest": schema_format({"type": 7})},
            text_events("3"),
            NO_FORM,
        ),  # no text fits an invalid schema
        ({"rest": schema_format({"$ref": "file:///etc/hostname"})}, text_events("3"), NO_FORM),
        ({"rest": schema_format({"$ref": "#/nowhere"})}, CALL, NO_FORM),
        (
            {"rest": schema_format({"type": "string", "pattern": "^(a+)+$"})},
            text_events(json.dumps("a" * 40 + "b")),
            NO_FORM,
        ),
        ({"rest": schema_format({"$defs": {"n": SCHEMA}, "$ref": "#/$defs/n"})}, text_events("{}"), NO_FORM),
        ({"rest": {"guided_json": SCHEMA}}, text_events('{"m": 3}'), NO_FORM),
        ({"rest": {"guided_json": json.dumps(SCHEMA)}}, text_events('{"n": 3}'), []),
        ({"rest": {"format": "json"}}, text_events("Three"), NO_FORM),
        ({"rest": {"structured_outputs": {"json": SCHEMA}}}, text_events('{"m": 3}'), NO_FORM),
        ({"rest": CHOICE}, text_events("yes", "\n"), []),
        ({"rest": CHOICE}, text_events("Yes, it is."), NO_TEXT),
        ({"rest": CHOICE}, text_events("ye", reason="length"), []),
        ({"rest": {"structured_outputs": {"regex": "[0-9]+"}}}, text_events("17"), []),
        ({"rest": {"structured_outputs": {"regex": "[0-9]+|none"}}}, text_events("17 of them"), NO_TEXT),
        ({"rest": {"structured_outputs": {"regex": "("}}}, text_events("17"), NO_TEXT),
        ({"rest": {"guided_choice": ["a", 1]}}, text_events("b"), ["unenforced:guided_choice"]),
        ({"rest": {"guided_regex": "a+"}}, text_events("aab"), ["unenforced:guided_regex"]),
        ({"rest": {"regex": "a+"}}, text_events("aa"), []),
    ],
)
def test_promise_that_is_not_kept_is_a_warning(fields, events, entries):
    promise, ledger = promise_with(EnforcementTerms(), **fields)
    assert events_after(promise, events) == events
    assert ledger.entries() == entries


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {**FORCED, "tool_choice": "auto"},
        {**FORCED, "tool_choice": "none"},
        {**FORCED, "allowed": frozenset()},
        {"rest": OBJECT, "generates": False},
        {"rest": OBJECT, "messages": ({"role": "assistant", "content": "{"},)},  # the response is the rest of an object
        {"rest": {"guided_json": 7, "think": True, "stop": "."}},
        {"rest": {"response_format": {"type": "text"}}},
    ],
)
def test_promise_is_absent_for_most_requests(fields):
    assert output_validation(request_with(**fields), EnforcementTerms, Warnings()) is None


RETRY = EnforcementTerms(call="retry", form="retry")
THOUGHT, USED = ReasoningDelta(0, "Hm"), Usage(3, 4)


def both_attempts(terms, first, second, **fields):
    """Return the events sent of two attempts, the messages added for the second, and the warnings."""
    promise, ledger = promise_with(terms, **fields)
    passed = events_after(promise, first)
    assert promise.failed
    again = promise.retry_request()
    later = output_validation(again, lambda: terms, ledger, promise.failed)
    return passed + events_after(later, second), again.messages[1:], ledger.entries()


JSON_THOUGHT = [ReasoningDelta(0, '{"n"'), ReasoningDelta(0, ": 1}\n")]


@pytest.mark.parametrize("policy", ["warn", "retry", "refuse"])
@pytest.mark.parametrize("fields", [{"rest": NUMBER}, {"rest": OBJECT}, {"rest": NUMBER, "tools": TOOLS}])
def test_json_that_a_server_sends_as_reasoning_alone_is_the_text(policy, fields):
    for beside in ([], [TextDelta(0, "\n\n")]):
        promise, ledger = promise_with(EnforcementTerms(form=policy), **fields)
        events = events_after(promise, [*JSON_THOUGHT, *beside, Finish(0, "stop")])
        assert events == [*JSON_THOUGHT, *beside, TextDelta(0, '{"n": 1}'), Finish(0, "stop")]
        assert ledger.entries() == ["repaired:content"] and not promise.failed


@pytest.mark.parametrize(
    ("fields", "events", "entries"),
    [
        ({"rest": NUMBER}, [*JSON_THOUGHT, *text_events('{"n": 2}')], []),
        ({"rest": NUMBER}, [*JSON_THOUGHT, *text_events("two")], NO_FORM),
        ({"rest": NUMBER}, [*JSON_THOUGHT, Finish(0, "length")], []),
        ({"rest": NUMBER}, [ReasoningDelta(0, '{"n": "1"}'), Finish(0, "stop")], NO_FORM),
        ({"rest": NUMBER}, [ReasoningDelta(0, 'So {"n": 1}'), Finish(0, "stop")], NO_FORM),
        ({"rest": schema_format({})}, [ReasoningDelta(0, "17"), Finish(0, "stop")], NO_FORM),
        ({"rest": CHOICE}, [ReasoningDelta(0, "yes"), Finish(0, "stop")], NO_TEXT),
        ({**FORCED, "rest": NUMBER}, [*JSON_THOUGHT, Finish(0, "stop")], [*NO_CALL, *NO_FORM]),
        ({"rest": NUMBER, "tools": TOOLS}, [*JSON_THOUGHT, *CALL[:3], Finish(0, "stop")], []),
        ({"rest": NUMBER}, [*JSON_THOUGHT, RefusalDelta(0, "No."), Finish(0, "stop")], []),
    ],
)
def test_json_in_reasoning_beside_more_or_that_does_not_fit_stays_there(fields, events, entries):
    promise, ledger = promise_with(EnforcementTerms(), **fields)
    assert events_after(promise, events) == events
    assert ledger.entries() == entries


def test_promise_holds_back_a_response_without_its_call_for_a_retry():
    late = ExtraField(None, "timings", b"{}")
    passed, messages, entries = both_attempts(
        RETRY, [*text_events("I", " shall."), USED, late], [THOUGHT, *CALL, USED], **FORCED
    )
    assert passed == [USED, THOUGHT, *CALL, USED] and entries == []
    demand = "Answer with a call of one of the tools, and with nothing else."
    assert messages == (
        {"role": "assistant", "content": "I shall."},
        {"role": "user", "content": f"That was no call. {demand}"},
    )


def test_promise_holds_back_a_call_of_another_tool_than_the_named_one():
    passed, messages, entries = both_attempts(RETRY, [THOUGHT, *OTHER], CALL, **NAMED)
    assert passed == CALL and entries == []
    demand = "Answer with a call of the tool 'f', and with nothing else."
    assert messages == ({"role": "user", "content": f"That was no call. {demand}"},)
    passed, _, entries = both_attempts(RETRY, OTHER, OTHER, **NAMED)
    assert (passed, entries) == (OTHER, NO_CALL)


def test_promise_of_a_named_tool_that_is_not_kept_is_refused():
    passed, _, _ = both_attempts(EnforcementTerms(call="refuse"), OTHER, OTHER, **NAMED)
    message = "The model did not call the tool 'f', which 'tool_choice' requires."
    assert passed == [Failure(Problem(400, message, "unsupported_value", "tool_choice"))]


def test_promise_retry_does_not_repeat_an_empty_response():
    _, messages, _ = both_attempts(RETRY, text_events("\n"), CALL, **{**FORCED, "tool_choice": ToolName("f")})
    (word,) = messages
    assert word["role"] == "user" and "the tool 'f'" in word["content"]


def test_promise_retry_says_why_the_response_did_not_fit():
    passed, messages, entries = both_attempts(
        RETRY, text_events('{"n": "three"}'), text_events('{"n": 3}'), rest=NUMBER
    )
    assert passed == text_events('{"n": 3}') and entries == []
    answer, word = messages
    assert answer["content"] == '{"n": "three"}' and '"three" is not of type "integer"' in word["content"]


def test_promise_retry_demands_only_the_call_where_a_format_is_demanded_too():
    passed, messages, entries = both_attempts(RETRY, text_events("One"), CALL, **FORCED, rest=NUMBER)
    assert passed == CALL and entries == []
    demand = "Answer with a call of one of the tools, and with nothing else."
    assert messages[-1]["content"] == f"That was no call. {demand}"


@pytest.mark.parametrize(
    ("fields", "entries"),
    [(FORCED, NO_CALL), ({"rest": NUMBER}, NO_FORM), ({**FORCED, "rest": OBJECT}, NO_CALL + NO_FORM)],
)
def test_promise_is_retried_only_once(fields, entries):
    passed, _, listed = both_attempts(RETRY, text_events("One"), text_events("Two"), **fields)
    assert passed == text_events("Two") and listed == entries


def test_promise_that_is_not_kept_twice_is_refused():
    for terms in (EnforcementTerms(call="refuse"), EnforcementTerms(call="retry", strict=True)):
        passed, _, entries = both_attempts(terms, text_events("One"), [*text_events("Two"), USED], **FORCED)
        failure, used = passed
        assert (failure.problem.status, failure.problem.code) == (400, "unsupported_value")
        assert failure.problem.param == "tool_choice" and used == USED and entries == []


def test_strict_mode_refuses_a_whole_response_that_does_not_fit():
    strict = EnforcementTerms(strict=True)
    promise, _ = promise_with(strict, rest=NUMBER)
    (failure,) = events_after(promise, text_events("Three"))
    assert failure.problem.param == "response_format" and "it is not JSON" in failure.problem.message
    streamed, ledger = promise_with(strict, rest=NUMBER, stream=True)
    assert events_after(streamed, text_events("Three")) == text_events("Three") and ledger.entries() == NO_FORM


def test_retry_that_fails_gives_way_to_the_first_response():
    passed, _, entries = both_attempts(RETRY, text_events("One"), [LOST], **FORCED)
    assert passed == text_events("One") and entries == NO_CALL
    passed, _, entries = both_attempts(RETRY, text_events("One"), [TextDelta(0, "Tw"), LOST], **FORCED)
    assert passed == text_events("One") and entries == NO_CALL


def test_retry_that_fails_is_sent_if_the_first_would_be_refused():
    passed, _, _ = both_attempts(EnforcementTerms(call="refuse"), text_events("One"), [LOST], **FORCED)
    assert passed == [LOST]


def test_failure_is_sent_after_the_events_before_it():
    promise, _ = promise_with(RETRY, **FORCED)
    assert events_after(promise, [TextDelta(0, "I"), LOST]) == [TextDelta(0, "I"), LOST]
    assert promise.failed is None


def test_tool_call_releases_the_events_that_were_held_back():
    promise, _ = promise_with(RETRY, **FORCED)
    extra = ExtraField(None, "timings", b"{}")
    assert events_after(promise, [extra, TextDelta(0, "I see.")]) == []
    assert events_after(promise, CALL[:1]) == [extra, TextDelta(0, "I see."), CALL[0]]
    assert events_after(promise, CALL[1:]) == CALL[1:]


@pytest.mark.parametrize(
    ("terms", "fields", "waits"),
    [
        (EnforcementTerms(call="retry", how="own"), FORCED, False),
        (EnforcementTerms(call="retry", how="schema"), FORCED, False),
        (EnforcementTerms(call="retry", how="words"), FORCED, True),
        (EnforcementTerms(call="refuse", how="own"), FORCED, True),
        (EnforcementTerms(call="retry", strict=True), FORCED, True),
        (EnforcementTerms(form="retry"), {"rest": NUMBER}, True),
        (EnforcementTerms(form="warn"), {"rest": NUMBER}, False),
        (EnforcementTerms(call="retry", how="words"), {**FORCED, "n": 2}, False),
    ],
)
def test_reasoning_of_a_stream_is_held_back_only_if_the_terms_need_it(terms, fields, waits):
    promise, ledger = promise_with(terms, stream=True, **fields)
    assert events_after(promise, [THOUGHT]) == ([] if waits else [THOUGHT])
    if not waits:  # then a retry is impossible
        assert events_after(promise, text_events("I")) == text_events("I")
        assert promise.failed is None and ledger.entries()


def test_whole_response_is_held_back_entirely():
    promise, _ = promise_with(EnforcementTerms(call="retry", how="own"), **FORCED)
    assert events_after(promise, [THOUGHT, *text_events("I")]) == []
    assert promise.failed


def test_promise_holds_back_no_more_than_its_limit():
    promise, ledger = promise_with(EnforcementTerms(call="retry", form="retry", limit=10), rest=OBJECT, **FORCED)
    events = [
        ReasoningDelta(0, "Hmmmm"),
        TextDelta(0, "12345"),
        TextDelta(0, "6"),
        TextDelta(0, "7"),
        Finish(0, "stop"),
    ]
    assert events_after(promise, events[:2]) == []
    assert events_after(promise, events[2:3]) == events[:3]
    assert events_after(promise, events[3:]) == events[3:]
    assert promise.failed is None and ledger.entries() == NO_CALL + NO_FORM


def test_promise_does_not_check_a_text_that_is_too_long():
    promise, ledger = promise_with(EnforcementTerms(limit=3), rest=OBJECT)
    assert (
        events_after(promise, text_events("{", "   ", "}")) == text_events("{", "   ", "}")
        and ledger.entries() == NO_FORM
    )


EVENTS = st.sampled_from(
    [
        THOUGHT,
        TextDelta(0, "I"),
        TextDelta(0, "{}"),
        TextDelta(0, ""),
        USED,
        ExtraField(None, "x", b"1"),
        RefusalDelta(0, "No"),
    ]
)
TERMS = st.builds(
    EnforcementTerms,
    st.sampled_from(["warn", "retry", "refuse"]),
    st.sampled_from(["warn", "retry", "refuse"]),
    st.sampled_from(["own", "schema", "words"]),
    st.booleans(),
)


@given(
    st.lists(EVENTS),
    st.sampled_from([[], CALL, text_events(), text_events(reason="length"), [LOST]]),
    TERMS,
    st.booleans(),
)
def test_promise_passes_all_events_in_order_or_only_usage(before, end, terms, stream):
    events = [*before, *end]
    promise, _ = promise_with(terms, stream=stream, rest=OBJECT, **FORCED)
    passed = events_after(promise, events)
    costs = [event for event in passed if event == USED]
    content_events = [event for event in passed if event != USED]
    assert len(costs) == events.count(USED)
    if end and not promise.failed and not any(isinstance(event, Failure) for event in content_events if event != LOST):
        assert content_events == [event for event in events if event != USED]
    if promise.failed:
        assert content_events == [] and [*promise.failed.events] == [event for event in events if event != USED]


@pytest.mark.parametrize("value", [{"grammar": "root ::= x"}, {"choice": "yes"}, 7])
def test_structured_outputs_that_cannot_be_judged_promise_nothing(value):
    promise, ledger = promise_with(EnforcementTerms(), rest={"structured_outputs": value})
    assert promise is None and ledger.entries() == []
