"""Test unreadable upstream data: it is a named failure, except where the connection was lost."""

import pytest

from gateway.errors import Problem
from gateway.events import Failure, Finish, Text, Usage
from support.pipeline import DONE, chunk, events_of, setting, sse, upstream

LATE = Problem(504, "The backend was silent for too long.", "upstream_timeout")
NESTED = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("payload", [b'{"choices": [], "error": %b}' % NESTED, NESTED, b'{"choices": [{]}', b"<html>"])
def test_payload_that_is_unreadable_is_a_failure(payload):
    (failure,) = events_of([b"data: %b\n\n" % payload, DONE])
    assert type(failure) is Failure and failure.problem.status == 502


def test_content_of_parts_with_one_that_is_unreadable_is_a_failure():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": 5}]
    text, failure, *_ = events_of([chunk(content=parts), DONE], setting("native"))
    assert text == Text(0, "a") and type(failure) is Failure and failure.problem.status == 502


def test_error_with_nan_keeps_its_message():
    (failure,) = events_of([b'data: {"object": "error", "message": "overheated", "code": 500, "load": NaN}\n\n'])
    assert failure == Failure(Problem(502, "overheated", "upstream_error"))


@pytest.mark.parametrize("half", [b'data: {"choices": [{"del', b"data: [DO", b"da", b"data: " + NESTED[:200_000]])
def test_failure_after_half_an_event_keeps_its_cause(half):
    up = upstream(setting("native"))
    events = [*up.feed(chunk(content="hi")), *up.feed(half), *up.fail(LATE)]
    assert events == [Text(0, "hi"), Failure(LATE)]


def test_event_that_is_cut_after_the_finish_is_ignored():
    up = upstream(setting("native"))
    events = [*up.feed(chunk("stop", content="hi")), *up.feed(b'data: {"choices": [], "usa'), *up.fail(LATE)]
    assert events == [Text(0, "hi"), Finish(0, "stop"), Usage(10, 1)]


def test_event_without_its_empty_line_counts_at_the_end():
    error = sse({"error": {"message": "no memory", "code": 500}}).rstrip()
    assert events_of([chunk(content="hi"), error], setting("native"))[-1] == Failure(
        Problem(502, "no memory", "upstream_error")
    )
