"""Test tool calls that wait for the end of their turn: what is sent, what is asked again, and the warnings."""

import pytest

from gateway.errors import CANCELLED, Problem
from gateway.events import (
    ExtraField,
    Failure,
    Finish,
    Raw,
    ReasoningDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolInputDelta,
    Usage,
)
from gateway.request import Request, Tool
from gateway.transforms.invalid_calls import SUBJECT, HeldCalls
from gateway.warnings import Warnings

REQUEST = Request(model="m", messages=({"role": "user", "content": "q"},), tools=(Tool("f", {"name": "f"}),))
LOST = Failure(Problem(502, "Lost.", "upstream_lost"))
INVALID, HELPED = f"invalid:{SUBJECT}", f"emulated:{SUBJECT}"
USED = Usage(3, 4)


def made(number=0, json="{}", *, complete=True):
    return [
        ToolCallStart(0, number, f"c{number}", "f"),
        ToolArgsDelta(0, number, json),
        ToolCallEnd(0, number, complete),
    ]


BROKEN, END = made(json='{"a', complete=False), Finish(0, "tool_calls")
CONTENT = [ReasoningDelta(0, "Hm"), TextDelta(0, "I call.")]


class Attempts:
    """Feed attempts to filters; a call whose arguments are broken is noted as the pipeline does."""

    def __init__(self, limit=1000):
        self.ledger, self._limit, self.before = Warnings(), limit, None

    def feed(self, events):
        filter, passed = HeldCalls(REQUEST, self.ledger, self._limit, self.before), []
        for event in events:
            if isinstance(event, ToolCallEnd) and not event.complete and END in events:
                self.ledger.add("invalid", SUBJECT)
            passed += filter.feed(event)
        assert [*filter.close()] == [] and filter.retry_request() == REQUEST
        self.before = filter.failed
        return passed


@pytest.mark.parametrize(
    "events",
    [
        [*CONTENT, *made(), USED, END],
        [*made(), TextDelta(0, "So."), *made(1), END],
        [*CONTENT, Finish(0, "stop")],
        [*made(), *BROKEN[:2], ToolCallEnd(0, 1, complete=False), Finish(0, "length")],
        [*CONTENT, *BROKEN, LOST],
    ],
)
def test_calls_are_passed_on_when_their_turn_ends(events):
    site = Attempts()
    passed = site.feed(events)
    assert [event for event in passed if event != USED] == [event for event in events if event != USED]
    assert site.before is None and not site.ledger.entries()


def test_calls_wait_and_text_before_them_does_not():
    filter = HeldCalls(REQUEST, Warnings(), 1000, None)
    extra = ExtraField(None, "timings", Raw(b"{}"))
    passed = [[*filter.feed(event)] for event in [*CONTENT, USED, *made(), extra, TextDelta(0, "So."), END]]
    assert passed[:3] == [[CONTENT[0]], [CONTENT[1]], [USED]] and passed[3:8] == [[], [], [], [extra], []]
    assert passed[8] == [*made(), TextDelta(0, "So."), END]


@pytest.mark.parametrize("first", [BROKEN, [*made(), *BROKEN], [*BROKEN, *made(1)], [*BROKEN, TextDelta(0, "So.")]])
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_invalid_arguments_are_asked_for_once_more(first, finish):
    site = Attempts()
    assert site.feed([*CONTENT, *first, Finish(0, finish), USED]) == [*CONTENT, USED] and site.before
    assert site.feed([*CONTENT, *made(), END]) == [*CONTENT, *made(), END]
    assert site.before is None
    assert site.ledger.entries() == [HELPED]


def test_second_call_with_invalid_arguments_leaves_as_it_came():
    site = Attempts()
    site.feed([*BROKEN, END])
    assert site.feed([*BROKEN, END]) == [*BROKEN, END]
    assert site.before is None and site.ledger.entries() == [INVALID]


def test_retry_that_fails_leaves_the_first_calls():
    site = Attempts()
    site.feed([*CONTENT, *BROKEN, END])
    assert site.ledger.entries() == []
    assert site.feed([TextDelta(0, "I"), *made()[:2], LOST]) == [TextDelta(0, "I"), *BROKEN, END]
    assert site.ledger.entries() == [INVALID]


def test_cancellation_of_the_retry_is_a_failure():
    site = Attempts()
    site.feed([*BROKEN, END])
    assert site.feed([*made()[:2], Failure(CANCELLED)]) == [*made()[:2], Failure(CANCELLED)]


def test_warnings_of_earlier_rounds_and_of_text_stay():
    site = Attempts()
    site.ledger.add("repaired", "tool_calls.function.name")
    filter = HeldCalls(REQUEST, site.ledger, 1000, None)
    for code, subject in (("repaired", "content"), ("repaired", "tool_calls.id"), ("invalid", SUBJECT)):
        site.ledger.add(code, subject)
    for event in [*BROKEN, END]:
        assert [*filter.feed(event)] == []
    assert site.ledger.entries() == ["repaired:tool_calls.function.name", "repaired:content"]


def test_warnings_that_are_taken_back_are_sent_once_they_are_final():
    ledger = Warnings()
    for code in ("repaired", "invalid"):
        ledger.add(code, "a")
    assert ledger.header_value() == "repaired:a, invalid:a"
    taken = ledger.take(0, "invalid:")
    assert taken == ("invalid:a",) and ledger.take_unsent() == ""
    ledger.put(taken)
    assert ledger.take_unsent() == "invalid:a" and ledger.take(0, "dropped:") == ()


@pytest.mark.parametrize("more", [TextDelta(0, "x" * 9), ReasoningDelta(0, "x" * 9), ToolInputDelta(0, 1, "x" * 9)])
def test_calls_beyond_the_limit_are_passed_on_and_not_asked_for_again(more):
    site = Attempts(limit=10)
    assert site.feed([*BROKEN, more, *made(1), END]) == [*BROKEN, more, *made(1), END]
    assert site.before is None and site.ledger.entries() == [INVALID]


def test_retry_beyond_the_limit_that_fails_is_a_failure():
    site = Attempts(limit=4)
    site.feed([*BROKEN, END])
    events = [ToolCallStart(0, 0, "c", "f"), ToolArgsDelta(0, 0, '{"a": 1'), LOST]
    assert site.feed(events) == events
