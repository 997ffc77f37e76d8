"""Test stored objects with the official SDK, sync and async, against a running gateway.

Each scenario is written once, for a `client` whose calls may have to be awaited.
"""

import asyncio
from functools import partial

import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.conversations import Conversation, Message
from openai.types.responses import Response, ResponseFunctionToolCallItem

from support.app import listening
from support.upstream import completion_body, whole
from support.wait import DEADLINE, settled

USER = {"type": "message", "role": "user", "content": "Hi"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "fine"}


async def everything(pages):
    """Return all members of a list, read page by page."""
    pages = pages if hasattr(pages, "__aiter__") else await settled(pages)
    return [one async for one in pages] if hasattr(pages, "__aiter__") else [*pages]


async def final(helper):
    """Return the response that a stream helper of the SDK makes from its events."""
    if hasattr(helper, "__aenter__"):
        async with helper as events:
            return await events.get_final_response()
    with helper as events:
        return events.get_final_response()


async def missing(call):
    """Return the NotFoundError that a call raises."""
    with pytest.raises(openai.NotFoundError) as caught:
        await settled(call())
    return caught.value


async def responses(client):
    first = await settled(client.responses.create(model="m", input="Hi", metadata={"a": "b"}))
    second = await settled(client.responses.create(model="m", input=[USER], previous_response_id=first.id))
    found = await settled(client.responses.retrieve(first.id, include=["message.output_text.logprobs"]))
    assert isinstance(found, Response) and found == first and found.output_text == "Hello"
    listed = client.responses.input_items.list
    newest = await everything(listed(second.id, limit=1))
    assert [item.type for item in newest] == ["message"] * 3 and len({item.id for item in newest}) == 3
    assert [*reversed(newest)] == await everything(listed(second.id, order="asc", limit=2))
    assert await everything(listed(second.id, after=newest[0].id)) == newest[1:]
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        await settled(client.responses.cancel(first.id))
    with pytest.raises(openai.BadRequestError, match="not created with background=true"):
        await settled(client.responses.retrieve(first.id, stream=True))
    assert await settled(client.responses.delete(first.id)) is None
    error = await missing(lambda: client.responses.retrieve(first.id))
    assert first.id in error.message and error.request_id.startswith("req_")


async def conversations(client):
    made = await settled(client.conversations.create(items=[USER], metadata={"a": "b"}))
    assert isinstance(made, Conversation) and made.metadata == {"a": "b"}
    assert await settled(client.conversations.retrieve(made.id)) == made
    changed = await settled(client.conversations.update(made.id, metadata={"c": "d"}))
    assert changed.metadata == {"c": "d"} and (await settled(client.conversations.create())).metadata == {}
    items = client.conversations.items
    added = await settled(items.create(made.id, items=[CALL, OUTPUT], include=["reasoning.encrypted_content"]))
    response = await settled(client.responses.create(model="m", input="So?", conversation=made.id))
    assert response.conversation.id == made.id
    listed = await everything(items.list(made.id, order="asc", limit=2))
    assert [item.type for item in listed] == ["message", "function_call", "function_call_output", "message", "message"]
    assert isinstance(listed[0], Message) and isinstance(listed[1], ResponseFunctionToolCallItem)
    assert listed[1:3] == added.data and (added.first_id, added.last_id) == (listed[1].id, listed[2].id)
    assert listed[4].id == response.output[0].id and listed[4].content[0].text == "Hello"
    assert await settled(items.retrieve(listed[0].id, conversation_id=made.id)) == listed[0]
    assert await settled(items.delete(listed[0].id, conversation_id=made.id)) == changed
    assert [*reversed(listed[1:])] == await everything(items.list(made.id))
    await missing(lambda: items.retrieve(listed[0].id, conversation_id=made.id))
    assert (await settled(client.conversations.delete(made.id))).deleted
    await missing(lambda: client.conversations.retrieve(made.id))


async def streams(client):
    request = {"model": "m", "input": "So?"}
    first = (await everything(client.responses.create(**request, stream=True)))[-1].response
    second = await final(client.responses.stream(**request, previous_response_id=first.id))
    assert (second.previous_response_id, second.output_text) == (first.id, "Hello")
    assert await settled(client.responses.retrieve(first.id)) == first
    _, answer, _ = await everything(client.responses.input_items.list(second.id, order="asc", limit=1))
    assert (answer.id, answer.content[0].text) == (first.output[0].id, "Hello")
    made = await settled(client.conversations.create())
    third = (await everything(client.responses.create(**request, conversation=made.id, stream=True)))[-1].response
    fourth = await final(client.responses.stream(**request, conversation={"id": made.id}))
    listed = await everything(client.conversations.items.list(made.id, order="asc", limit=1))
    assert [item.role for item in listed] == ["user", "assistant"] * 2
    assert [listed[1].id, listed[3].id] == [third.output[0].id, fourth.output[0].id]


async def replays(client):
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    for api, fields in ((client.responses, {"input": "Hi"}), (client.chat.completions, chat)):
        for more, read in (({}, settled), ({"stream": True}, everything)):
            key = {"Idempotency-Key": f"{api} {more}"}
            ask = partial(api.with_raw_response.create, model="m", **fields, **more, extra_headers=key)
            first = await settled(ask())
            read_back = await read(await settled(first.parse()))
            again = await settled(ask())
            assert "idempotent-replayed" not in first.headers and again.headers["idempotent-replayed"] == "true"
            assert first.headers["x-request-id"] != again.headers["x-request-id"]
            assert read_back and read_back == await read(await settled(again.parse()))


async def completions(client):
    chat = client.chat.completions
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "store": True}
    made = [await settled(chat.create(**request, metadata={"n": n})) for n in ("1", "2", "3")]
    listed = await everything(chat.list(limit=2))
    assert {one.id for one in listed} == {one.id for one in made}
    assert [*reversed(listed)] == await everything(chat.list(order="desc", limit=1))
    assert [one.id for one in await everything(chat.list(metadata={"n": "2"}, model="m"))] == [made[1].id]
    found = await settled(chat.retrieve(made[0].id))
    assert isinstance(found, ChatCompletion) and found.choices == made[0].choices and found.metadata == {"n": "1"}
    assert (await settled(chat.update(made[0].id, metadata={"n": "9"}))).metadata == {"n": "9"}
    (message,) = await everything(chat.messages.list(made[0].id))
    assert (message.role, message.content, message.content_parts) == ("user", "Hi", None) and message.id
    assert (await settled(chat.delete(made[0].id))).deleted
    await missing(lambda: chat.retrieve(made[0].id))


def sdk(url):
    return openai.AsyncOpenAI(base_url=url, api_key="k", timeout=DEADLINE, max_retries=0)


STORIES = [responses, streams, conversations, completions, replays]


@pytest.mark.parametrize("story", STORIES)
async def test_sdk_async_client_reads_and_changes_stored_objects(story):
    async with listening(whole(completion_body("Hello"))) as site, sdk(f"{site.client.base_url}/v1") as client:
        await story(client)


@pytest.mark.parametrize("story", STORIES)
async def test_sdk_sync_client_reads_and_changes_stored_objects(story):
    def run(url):
        with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
            asyncio.run(story(client))

    async with listening(whole(completion_body("Hello"))) as site:
        await asyncio.to_thread(run, f"{site.client.base_url}/v1")
