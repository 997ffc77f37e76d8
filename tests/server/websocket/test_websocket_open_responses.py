"""Test the compliance cases of Open Responses over a WebSocket, in front of a model that thinks first.

The types of https://www.openresponses.org validate messages and events; its set of events is closed.
"""

import json

import openresponses_types as types
import pytest

from support.app import listening
from support.open_responses import CALL, EVENTS, WEATHER, response, script, user
from support.upstream import COUNTS, completion_body, whole
from support.websocket import connected, is_end, upstream_messages

MODEL = {"format": "hermes_json"}
NOT_FOUND = "previous_response_not_found"


class Client:
    """A client that sends and accepts only messages that are valid in Open Responses."""

    def __init__(self, socket):
        self._socket = socket

    async def respond(self, *input, **fields):
        """Return the response to these items, or the error, and the types of the response's events."""
        event = {"type": "response.create", "model": "m", "input": [*input], **fields}
        types.WebSocketResponseCreateEvent.model_validate_json(json.dumps(event), strict=True)
        await self._socket.say(**event)
        return await self._ended()

    async def _ended(self):
        events = []
        while not events or not is_end(events[-1]):
            events.append(await self._socket.event())
            self._check(events[-1], len(events) - 1)
        if events[-1]["type"] == "error":
            return events[-1], []
        return response(events[-1]["response"]), [event["type"] for event in events]

    def _check(self, event, number):
        if "status" in event:
            if event["error"]["code"] is None:  # many errors of OpenAI's API have no code
                return
            types.WebSocketErrorEvent.model_validate_json(json.dumps(event), strict=True)
        else:
            assert event["sequence_number"] == number
            EVENTS[event["type"]].model_validate_json(json.dumps(event), strict=True)


async def assert_refused(client, *input, code=NOT_FOUND, **fields):
    event, _ = await client.respond(*input, **fields)
    assert (event["type"], event["status"], event["error"]["code"]) == ("error", 400, code)


def texts(answer):
    return [part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]]


async def test_websocket_response():
    async with listening(script("Hello.", True), model=MODEL) as site, connected(site) as socket:
        answer, events = await Client(socket).respond(user("Say hello."))
    assert texts(answer) == ["Hello."]
    assert (events[0], events[-1]) == ("response.created", "response.completed")
    assert {"response.output_text.delta", "response.output_item.done"} < {*events}


async def test_websocket_sequential_responses():
    scripts = script("One.", True), script("Two.", True)
    async with listening(*scripts, model=MODEL) as site, connected(site) as socket:
        client = Client(socket)
        first, _ = await client.respond(user("Say one."))
        second, _ = await client.respond(user("Say two."))
        assert upstream_messages(site) == [("user", "Say two.")]
    assert (texts(first), texts(second)) == (["One."], ["Two."]) and first["id"] != second["id"]


@pytest.mark.parametrize("store", [False, True])
async def test_websocket_continuation(store):
    scripts = script(CALL, True), script("It is cold.", True)
    async with listening(*scripts, model=MODEL) as site, connected(site) as socket:
        client = Client(socket)
        first, _ = await client.respond(user("Weather in Oslo?"), tools=[WEATHER], store=store)
        (call,) = [item for item in first["output"] if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": '{"degrees": -3}'}
        second, _ = await client.respond(result, previous_response_id=first["id"], store=store)
        assert texts(second) == ["It is cold."] and second["previous_response_id"] == first["id"]
        assert [role for role, _ in upstream_messages(site)] == ["user", "assistant", "tool"]


async def test_websocket_reconnect_store_false_recovery():
    scripts = script("One.", True), script("Two.", True)
    async with listening(*scripts, model=MODEL) as site:
        async with connected(site) as socket:
            first, _ = await Client(socket).respond(user("I am Ann."), store=False)
        async with connected(site) as socket:
            client = Client(socket)
            await assert_refused(client, user("Who am I?"), previous_response_id=first["id"], store=False)
            whole = [user("I am Ann."), *first["output"], user("Who am I?")]
            second, _ = await client.respond(*whole, store=False)
        assert texts(second) == ["Two."] and len(site.upstream.posts) == 2
        assert upstream_messages(site) == [("user", "I am Ann."), ("assistant", "One."), ("user", "Who am I?")]


async def test_websocket_previous_response_not_found():
    async with listening(script("Hello.", True), model=MODEL) as site, connected(site) as socket:
        client = Client(socket)
        await assert_refused(client, user("Hello?"), previous_response_id="resp_that_is_not_there")
        answer, _ = await client.respond(user("Hello?"))
        assert texts(answer) == ["Hello."]


async def test_websocket_failed_continuation_evicts_cache():
    async with listening(script("Hello.", True), model=MODEL) as site, connected(site) as socket:
        client = Client(socket)
        first, _ = await client.respond(user("Hello?"), store=False)
        stray = {"type": "function_call_output", "call_id": "call_that_is_not_there", "output": "{}"}
        await assert_refused(client, stray, previous_response_id=first["id"], store=False, code=None)
        await assert_refused(client, user("And now?"), previous_response_id=first["id"], store=False)


async def test_websocket_compact_new_chain():
    summary, answer = whole(completion_body("They spoke of Oslo.")), script("It is cold.", True)
    async with listening(summary, answer, model=MODEL) as site, connected(site) as socket:
        talk = [user("Where?"), {"type": "message", "role": "assistant", "content": "In Oslo."}]
        compacted = (await site.client.post("/v1/responses/compact", json={"model": "m", "input": talk})).json()
        assert compacted["object"] == "response.compaction"
        second, _ = await Client(socket).respond(*compacted["output"], user("Weather?"), tools=[], store=False)
        assert texts(second) == ["It is cold."] and second["tools"] == []
        assert "They spoke of Oslo." in upstream_messages(site)[-2][1]


async def test_websocket_generate_false():
    scripts = script("Ready.", True), script("Hello.", True)
    async with listening(*scripts, model=MODEL) as site, connected(site) as socket:
        await socket.say(type="response.create", model="m", input=[user("I am Ann.")], generate=False, store=False)
        events = await socket.events()
        first = events[-1]["response"]
        for event in events:
            EVENTS[event["type"]].model_validate_json(json.dumps(event), strict=True)
        assert (first["status"], first["output"], first["usage"]["input_tokens"]) == (
            "completed", [], COUNTS["prompt_tokens"],
        )  # fmt: skip
        second, _ = await Client(socket).respond(user("Hello."), previous_response_id=first["id"], store=False)
        assert texts(second) == ["Hello."] and upstream_messages(site) == [("user", "I am Ann."), ("user", "Hello.")]
