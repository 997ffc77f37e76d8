"""Test streams of events that a backend sends under another Content-Type, or under none."""

import pytest

from gateway.events import Failure, TextDelta, Usage
from support.format_events import strings, written
from support.pipeline import DONE, chunk, events_of, parser_settings, singly

STREAM = chunk(content="Hel") + chunk(content="lo") + chunk("stop") + DONE
TYPES = ["", "text/plain; charset=utf-8", "application/json", "application/octet-stream"]
BODY = b'{"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}'


@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize(
    "start", [b"", b"\n" * 7, b": ping\n\n", b"event: message\n", b"id: 1\nretry: 3\n", b"retry: 3\n"]
)
def test_stream_is_read_by_its_beginning(content_type, start):
    data = start + STREAM
    for pieces in ([data], singly(data), [data[:3], data[3:]]):
        assert (
            strings(written(events_of(pieces, parser_settings("native"), content_type=content_type)), "text") == "Hello"
        )


def test_stream_without_its_type_arrives_in_pieces():
    found = [
        type(one) for one in events_of([chunk(content="a"), chunk("stop")], parser_settings("native"), content_type="")
    ]
    assert found[0] is TextDelta


@pytest.mark.parametrize("start", [b"", b" \r\n\t"])
def test_body_is_no_stream(start):
    data = start + BODY
    for pieces in ([data], singly(data)):
        found = events_of(pieces, parser_settings("native"), content_type="text/plain")
        assert strings(written(found), "text") == "Hello" and Usage(3, 0) in [
            one for one in found if type(one) is Usage
        ]


@pytest.mark.parametrize("body", [b"", b"d", b"data", b"<html>", b"Error: no", b"database: down"])
def test_body_that_is_neither_is_a_failure(body):
    for pieces in ([body], singly(body)):
        (failure,) = events_of(pieces, parser_settings("native"), content_type="text/plain")
        assert type(failure) is Failure and failure.problem.status == 502
