"""Test the messages of the WebSocket: events, errors, and requests to steer, which are refused."""

import json

import pytest
from openai.types.responses import ResponsesServerEvent, ResponseSteerFailedEvent
from pydantic import TypeAdapter

from gateway.errors import Problem
from gateway.events import ReasoningDelta, RefusalDelta, TextDelta
from gateway.server.websocket.messages import error_message, event_messages, steer_failed_message
from gateway.warnings import Warnings
from support.responses import BROKE, KEEP_ALIVE, NESTED, STOP, call, encoded
from support.responses_events import events_of

SERVER_EVENT = TypeAdapter(ResponsesServerEvent)
EVERYTHING = [
    ReasoningDelta(0, "hm"), TextDelta(0, "a } \n\n"), NESTED, KEEP_ALIVE, RefusalDelta(0, "no"), *call("{}"),
    *call("in", kind="custom", n=1, id="call_2"),
]  # fmt: skip


def stream(*events, **options):
    """Return a stream with a comment."""
    ledger = Warnings()
    ledger.add("dropped", "content")
    data = encoded([*events, STOP], ledger=ledger, **options)
    assert b": gateway-warnings" in data
    return data


def test_websocket_has_a_message_for_each_event_except_error():
    for data in (stream(*EVERYTHING), encoded([*EVERYTHING, BROKE]), stream(background=True)):
        expected = [event for event in events_of(data) if event["type"] != "error"]
        assert [json.loads(message) for message in event_messages(data)] == expected
        for message in event_messages(data):
            SERVER_EVENT.validate_json(message, strict=True)
    assert event_messages(b"") == event_messages(b": gateway-warnings dropped:content\n\n") == []


@pytest.mark.parametrize("lane", ["main", "", 'a"b\n'])
def test_websocket_message_names_its_lane(lane):
    data = stream(*EVERYTHING)
    decoded = [json.loads(message) for message in event_messages(data, lane)]
    assert decoded == [{**event, "stream_id": lane} for event in events_of(data)]
    for message in event_messages(data, lane):
        assert SERVER_EVENT.validate_json(message, strict=True).stream_id == lane


def test_websocket_messages_are_the_same_for_single_frames():
    data = stream(*EVERYTHING)
    frames = [frame + b"\n\n" for frame in data.split(b"\n\n")[:-1]]
    assert [message for frame in frames for message in event_messages(frame)] == event_messages(data)


@pytest.mark.parametrize("lane", [None, "main"])
@pytest.mark.parametrize("problem", [Problem(400, "No.", "invalid_value", "input"), Problem(503, "Later.")])
def test_websocket_error_is_a_message(problem, lane):
    message = error_message(problem, lane)
    named = {"stream_id": lane} if lane else {}
    assert json.loads(message) == {"type": "error", "status": problem.status, **named, "error": problem.error()}
    assert SERVER_EVENT.validate_json(message, strict=True).error.message == problem.message


@pytest.mark.parametrize("lane", [None, "main"])
@pytest.mark.parametrize("input", ["Stop.", [{"type": "message", "role": "user", "content": "Stop."}]])
def test_websocket_steer_event_is_returned_as_failed(input, lane):
    event = {"type": "response.steer", "previous_response_id": "resp_1", "input": input, "more": 1}
    failed = ResponseSteerFailedEvent.model_validate_json(steer_failed_message(event, lane), strict=True)
    assert (failed.error.code, failed.sequence_number, failed.stream_id) == ("steering_not_supported", 0, lane)
    assert json.loads(steer_failed_message(event, lane))["steer"] == {"input": input, "previous_response_id": "resp_1"}


def test_websocket_steer_event_without_input_is_returned_as_failed():
    failed = ResponseSteerFailedEvent.model_validate_json(steer_failed_message({"type": "response.steer"}), strict=True)
    assert (failed.steer.input, failed.steer.previous_response_id) == ("", "")
