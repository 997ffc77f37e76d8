"""Test the parsing of a client's WebSocket messages, one by one."""

import json

import pytest

from gateway.api.body import Counts
from gateway.server.websocket.messages import CreateMessage, InvalidMessage, SteerMessage, parse_message
from support.jobs import BAD

DEEP = '{"type": "response.create", "input": ' + "[" * 100_000 + "]" * 100_000 + "}"


def encoded(**members):
    return json.dumps(members)


@pytest.mark.parametrize("form", [str, str.encode])
def test_websocket_create_has_the_body_of_a_posted_request(form):
    message = encoded(type="response.create", model="m", input=[{"role": "user", "content": "grüß"}], n=1.50)
    create = parse_message(form(message))
    assert (create.stream_id, create.previous) == (None, None)
    assert json.loads(create.body) == {
        "model": "m", "input": [{"role": "user", "content": "grüß"}], "n": 1.5, "stream": True,
    }  # fmt: skip


def test_websocket_create_keeps_the_input_byte_for_byte():
    create = parse_message(
        '{"type":"response.create","input":[ 1.50, "\\u00fc\\ud83d\\ude00", 123456789012345678901 ]}'
    )
    assert create.body == b'{"input":[ 1.50, "\\u00fc\\ud83d\\ude00", 123456789012345678901 ],"stream":true}'


def test_websocket_create_reads_the_lane_and_the_previous_response():
    create = parse_message(encoded(type="response.create", stream_id="a.B_c-1", previous_response_id="resp_1"))
    assert (create.stream_id, create.previous) == ("a.B_c-1", "resp_1")
    assert json.loads(create.body) == {"previous_response_id": "resp_1", "stream": True}
    assert parse_message(encoded(type="response.create", previous_response_id=1)).previous is None


@pytest.mark.parametrize(
    "more",
    [{"stream": True}, {"stream": None}, {"background": None}, {"background": False}, {"stream_id": None},
     {"stream": True, "stream_options": {"include_obfuscation": True}}],
)  # fmt: skip
def test_websocket_create_accepts_fields_that_state_the_default(more):
    create = parse_message(encoded(type="response.create", **more))
    assert isinstance(create, CreateMessage) and create.stream_id is None
    kept = {name: value for name, value in more.items() if name != "stream_id"}
    assert json.loads(create.body) == {**kept, "stream": True}


@pytest.mark.parametrize(("name", "value"), [("stream", False), ("stream", 1), ("background", True), ("background", 0)])
def test_websocket_create_refuses_stream_false_and_background_true(name, value):
    refused = parse_message(encoded(type="response.create", stream_id="a", **{name: value}))
    assert (refused.stream_id, refused.body) == ("a", b"")
    assert (refused.problem.status, refused.problem.type, refused.problem.param) == (400, BAD, name)


@pytest.mark.parametrize("name", ["", "a b", "ü", "a\n", "x" * 257, 1, ["a"]])
@pytest.mark.parametrize("type", ["response.create", "response.steer", "other"])
def test_websocket_lane_with_a_bad_name_is_refused(name, type):
    refused = parse_message(encoded(type=type, stream_id=name))
    assert (refused.stream_id, refused.problem.status) == (None, 400)
    assert (refused.problem.code, refused.problem.param) == ("invalid_stream_id", "stream_id")


@pytest.mark.parametrize(
    "data",
    ["", "{", "[1]", '"x"', "1", b"\xff", b'{"type": "\xff"}', b'{"type": "response.create", "stream": "\xff"}', DEEP,
     '{"type": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"type": "\\ud800"}'],
)  # fmt: skip
def test_websocket_message_that_is_not_a_json_object_is_refused(data):
    refused = parse_message(data)
    assert isinstance(refused, InvalidMessage)
    assert (refused.stream_id, refused.problem.status, refused.problem.type) == (None, 400, BAD)
    assert refused.problem.message.startswith("We could not parse the JSON object of your message.")


@pytest.mark.parametrize(
    ("members", "code"),
    [({}, "missing_required_parameter"), ({"type": None}, "missing_required_parameter"), ({"type": 1}, "invalid_type"),
     ({"type": "response.delete"}, "invalid_value")],
)  # fmt: skip
def test_websocket_message_of_unknown_type_is_refused(members, code):
    refused = parse_message(encoded(stream_id="a", **members))
    assert (refused.stream_id, refused.problem.status) == ("a", 400)
    assert (refused.problem.code, refused.problem.param) == (code, "type")


def test_websocket_steer_keeps_the_whole_event():
    event = {"type": "response.steer", "previous_response_id": "resp_1", "input": "Stop."}
    assert parse_message(encoded(**event)) == SteerMessage(None, event)
    assert parse_message(encoded(stream_id="a", **event)).stream_id == "a"


def test_websocket_processed_event_is_ignored():
    assert parse_message(encoded(type="response.processed", response_id="resp_1")) is None


@pytest.mark.parametrize("data", [str, str.encode])
def test_websocket_message_of_too_many_values_is_refused(data):
    message = '{"type":"response.create","input":[' + ",".join(['"a"'] * 30) + "]}"
    assert isinstance(parse_message(data(message)), CreateMessage)
    refused = parse_message(data(message), Counts(items=2))
    assert isinstance(refused, InvalidMessage) and refused.problem.status == 413
