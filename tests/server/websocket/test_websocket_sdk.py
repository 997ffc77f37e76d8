"""Test the official SDK over a WebSocket, sync and async, against a running gateway.

Each scenario is written once, for a `connection` whose calls may have to be awaited.
"""

import asyncio
from functools import partial

import openai
import pytest
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketError,
    ResponsesWebSocketLimits,
    ResponsesWebSocketSession,
)
from openai.types.responses import Response

from support.app import listening
from support.upstream import CLOSE, COUNTS, chunk, frame, head, stream
from support.wait import DEADLINE, settled

KEYS = {"keys": [{"name": "ann", "key": f"ann-{'k' * 20}"}]}
HELLO = stream(chunk("Hel"), chunk("lo"), chunk(finish="stop"), frame(choices=[], usage=COUNTS))

SYNC = {"websocket_connection_options": {"legacy": True}}  # the SDK has not followed its library yet
LIMITS = ResponsesWebSocketLimits(
    max_lanes=8, max_events_per_lane=100, max_events=500, max_bytes_per_lane=1 << 20, max_bytes=1 << 22,
    max_response_bytes=None,
)  # fmt: skip


async def events_of(connection):
    """Return the events up to the end of a response, or an error."""
    events = []
    while not events or events[-1].type not in ("response.completed", "response.failed", "error"):
        events.append(await settled(connection.recv()))
    return events


async def turns(connection):
    create = partial(connection.response.create, model="m", store=False)
    await settled(create(input="Hi"))
    *events, end = await events_of(connection)
    assert isinstance(end.response, Response) and end.response.output_text == "Hello"
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == ["Hel", "lo"]
    await settled(create(input="And?", previous_response_id=end.response.id))
    second = (await events_of(connection))[-1].response
    assert (second.output_text, second.previous_response_id) == ("Hello", end.response.id)
    await settled(create(input="And?", previous_response_id="resp_1"))
    (error,) = await events_of(connection)
    assert (error.status, error.error.code) == (400, "previous_response_not_found")
    await settled(create(input="Hi", stream=True, generate=False))
    warm = (await events_of(connection))[-1].response
    assert (warm.status, warm.output, warm.usage.input_tokens) == ("completed", [], 7)


async def lanes(connection):
    create = partial(connection.response.create, model="m", store=False)
    for lane in ("a", "b"):
        await settled(create(input=lane, stream_id=lane))
    events = await events_of(connection) + await events_of(connection)
    assert {event.stream_id for event in events} == {"a", "b"}
    first = next(event.response for event in events if event.type == "response.completed" and event.stream_id == "a")
    await settled(create(input="And?", previous_response_id=first.id, stream_id="c"))
    assert {event.stream_id for event in await events_of(connection)} == {"c"}


async def steering(connection):
    await settled(connection.response.steer(input="Stop.", previous_response_id="resp_1"))
    event = await settled(connection.recv())
    assert (event.type, event.error.code) == ("response.steer.failed", "steering_not_supported")
    assert (event.steer.input, event.steer.previous_response_id) == ("Stop.", "resp_1")


STORIES = {"turns": turns, "lanes": lanes, "steering": steering}


def options(site):
    return {"base_url": f"{site.client.base_url}/v1", "api_key": f"ann-{'k' * 20}"}


@pytest.mark.parametrize("story", STORIES)
async def test_websocket_sdk_async_client_gets_responses_lanes_and_errors(story):
    async with (
        listening(HELLO, auth=KEYS) as site,
        openai.AsyncOpenAI(**options(site)) as client,
        client.responses.connect() as connection,
    ):
        await STORIES[story](connection)


@pytest.mark.parametrize("story", STORIES)
async def test_websocket_sdk_sync_client_gets_responses_lanes_and_errors(story):
    async with listening(HELLO, auth=KEYS) as site:
        await asyncio.to_thread(_run, STORIES[story], options(site))


def _run(story, options):
    with openai.OpenAI(**options) as client, client.responses.connect(**SYNC) as connection:
        asyncio.run(story(connection))


CREATE = {"type": "response.create", "model": "m", "store": False, "input": "Hi"}


async def test_websocket_sdk_async_session_runs_lanes():
    broken = [head(), chunk("Hel"), CLOSE]
    async with (
        listening(HELLO, HELLO, broken, HELLO, auth=KEYS) as site,
        openai.AsyncOpenAI(**options(site)) as client,
        client.responses.connect() as connection,
        AsyncResponsesWebSocketSession(connection, limits=LIMITS) as session,
    ):
        one, two = session.lane("one"), session.lane("two")
        for lane in (one, two):
            await lane.send(CREATE)
        answers = [await lane.get_final_response() for lane in (one, two)]
        assert [answer.output_text for answer in answers] == ["Hello"] * 2
        await one.send({**CREATE, "previous_response_id": answers[1].id})
        assert (await one.get_final_response()).status == "failed"
        await one.send({**CREATE, "previous_response_id": "resp_none"})
        with pytest.raises(ResponsesWebSocketError):
            await one.get_final_response()
        await session.default.send({**CREATE, "previous_response_id": answers[1].id})
        assert (await session.default.get_final_response()).output_text == "Hello"


def _in_lanes(options):
    with (
        openai.OpenAI(**options) as client,
        client.responses.connect(**SYNC) as connection,
        ResponsesWebSocketSession(connection, limits=LIMITS) as session,
    ):
        lanes = session.lane("one"), session.lane("two")
        for lane in lanes:
            lane.send(CREATE)
        return [lane.get_final_response(timeout=DEADLINE).output_text for lane in lanes]


async def test_websocket_sdk_sync_session_runs_lanes():
    async with listening(HELLO, auth=KEYS) as site:
        assert await asyncio.to_thread(_in_lanes, options(site)) == ["Hello"] * 2


async def test_websocket_sdk_wrong_key_is_401_at_the_handshake():
    async with (
        listening(HELLO, auth=KEYS) as site,
        openai.AsyncOpenAI(**{**options(site), "api_key": "wrong"}) as client,
    ):
        with pytest.raises(Exception, match="401"):
            await client.responses.connect().enter()
