"""Test unreadable upstream data: it is a named failure, except where the connection was lost."""

import pytest

from gateway.errors import Problem
from gateway.events import ExtraField, Failure, Finish, TextDelta, Usage
from support.pipeline import DONE, chunk, events_of, parser_settings, sse, upstream

LATE = Problem(504, "The backend was silent for too long.", "upstream_timeout")
NESTED = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("payload", [b'{"choices": [], "error": %b}' % NESTED, NESTED, b'{"choices": [{]}', b"<html>"])
def test_payload_that_is_unreadable_is_a_failure(payload):
    (failure,) = events_of([b"data: %b\n\n" % payload, DONE])
    assert type(failure) is Failure and failure.problem.status == 502


def test_content_of_parts_with_one_that_is_unreadable_is_a_failure():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": 5}]
    text, failure, *_ = events_of([chunk(content=parts), DONE], parser_settings("native"))
    assert text == TextDelta(0, "a") and type(failure) is Failure and failure.problem.status == 502


def test_error_with_nan_keeps_its_message():
    (failure,) = events_of([b'data: {"object": "error", "message": "overheated", "code": 500, "load": NaN}\n\n'])
    assert failure == Failure(Problem(502, "overheated", "upstream_error"))


@pytest.mark.parametrize("half", [b'data: {"choices": [{"del', b"data: [DO", b"da", b"data: " + NESTED[:200_000]])
def test_failure_after_half_an_event_keeps_its_cause(half):
    up = upstream(parser_settings("native"))
    events = [*up.feed(chunk(content="hi")), *up.feed(half), *up.fail(LATE)]
    assert events == [TextDelta(0, "hi"), Failure(LATE)]


@pytest.mark.parametrize("more", [{}, {"code": 500, "type": "server_error"}])
def test_event_that_is_a_bare_error_keeps_its_message(more):
    found = events_of([b"event: error\n" + sse({"message": "out of memory", **more}), DONE])
    assert found == [Failure(Problem(502, "out of memory", "upstream_error"))]


@pytest.mark.parametrize("payload", [{"message": {"a": 1}}, {"message": "loading", "choices": []}, {"progress": 1}])
def test_event_that_only_looks_like_an_error_is_none(payload):
    found = events_of([sse(payload), chunk(content="hi"), chunk("stop"), DONE], parser_settings("native"))
    assert [event for event in found if isinstance(event, TextDelta | Finish)] == [
        TextDelta(0, "hi"),
        Finish(0, "stop"),
    ]


@pytest.mark.parametrize("huge", [2**63, 2**70, 10**40, 1e30, "9" * 30])
def test_usage_that_is_no_count_is_left_out(huge):
    usage = {"choices": [], "usage": {"prompt_tokens": huge, "completion_tokens": 3}}
    found = events_of([chunk("stop", content="hi"), sse(usage), DONE], parser_settings("native"))
    assert [event for event in found if isinstance(event, Usage)] == [Usage(0, 3)]


def test_payload_of_large_numbers_alone_is_no_answer():
    large = b'{"pad": "' + b"a" * (513 << 10) + b'", "a": 1e309}'
    for payload in (
        large,
        b'{"a": 1e309, "message": "m"}',
        b'{"a": {"usage": ' + b"1" * 5000 + b"}}",
        b"[" * 2000 + b"]" * 2000,
    ):
        found = events_of([b"data: " + payload + b"\n\n"], parser_settings("native"))
        assert [type(event) for event in found if type(event) is not ExtraField] == [Failure]


def test_large_payload_that_is_unreadable_is_not_mended():
    """Mending one of 8 MB would take a second and a gigabyte."""
    text = b"a" * (513 << 10)
    for broken in (b"\\q", b"NaN"):
        found = events_of([b'data: {"choices": [{"delta": {"content": "%b%b' % (text, broken), b"\n\n"])
        assert [event.problem.code for event in found if type(event) is Failure] == ["upstream_error"]
    small = b'data: {"choices": [{"delta": {"content": "a\xff"}, "x": NaN}]}\n\n'
    assert TextDelta(0, "a\ufffd") in events_of([small, chunk("stop"), DONE])
    large = b'data: {"choices": [{"delta": {"content": "%b\xff"}}]}\n\n' % text
    assert events_of([large, chunk("stop"), DONE])[0] == TextDelta(0, text.decode() + "\ufffd")


def test_event_that_is_cut_after_the_finish_is_ignored():
    up = upstream(parser_settings("native"))
    events = [*up.feed(chunk("stop", content="hi")), *up.feed(b'data: {"choices": [], "usa'), *up.fail(LATE)]
    assert events == [TextDelta(0, "hi"), Finish(0, "stop"), Usage(10, 1)]


def test_event_without_its_empty_line_counts_at_the_end():
    error = sse({"error": {"message": "no memory", "code": 500}}).rstrip()
    assert events_of([chunk(content="hi"), error], parser_settings("native"))[-1] == Failure(
        Problem(502, "no memory", "upstream_error")
    )
