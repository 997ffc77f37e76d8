"""Test Anthropic's official SDK against a running gateway: messages, streams, tools, errors, counts and models."""

import typing
from contextlib import asynccontextmanager

import anthropic
import pytest
from pydantic import BaseModel
from typing_extensions import is_typeddict

from gateway.api.messages.block_members import report_unknown_members
from gateway.warnings import Warnings
from support.app import HELLO_MESSAGES, listening
from support.upstream import CLOSE, COUNTS, DONE, END, HELLO, call, chunk, frame, head, stream, whole

UNREAD = {"compaction": ["dropped:compaction.tool_changes"]}  # members that the gateway does not read
REQUEST = {"model": "m", "max_tokens": 100, "messages": HELLO_MESSAGES}
TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
THINKS = [
    head(),
    chunk(reasoning_content="Hm."),
    chunk("Hi"),
    chunk(finish="stop"),
    frame(choices=[], usage=COUNTS),
    DONE,
    END,
]
CALLS = [
    head(),
    chunk("I look."),
    chunk(tool_calls=call("weather", '{"city":', id="call_1")),
    chunk(tool_calls=call(arguments=' "Oslo"}')),
    chunk(tool_calls=call("weather", '{"city": "Rome"}', id="call_2", place=1)),
    chunk(finish="tool_calls"),
    DONE,
    END,
]  # fmt: skip


@asynccontextmanager
async def connected(*scripts, **sections):
    """Yield the SDK's client of a gateway, and the backend."""
    async with (
        listening(*scripts, **sections) as site,
        anthropic.AsyncAnthropic(base_url=str(site.client.base_url), api_key="x", max_retries=0) as client,
    ):
        yield client, site.upstream


@asynccontextmanager
async def sdk(*scripts, **sections):
    """Yield the SDK's client of a gateway."""
    async with connected(*scripts, **sections) as (client, _):
        yield client


@pytest.mark.parametrize("script", [HELLO, THINKS, CALLS], ids=["text", "thinking", "calls"])
async def test_messages_sdk_accumulates_a_stream_to_the_whole_message(script):
    async with sdk(script) as client:
        async with client.messages.stream(**REQUEST, tools=[TOOL]) as stream:
            streamed = await stream.get_final_message()
        at_once = await client.messages.create(**REQUEST, tools=[TOOL])
    assert isinstance(at_once, anthropic.types.Message) and at_once.id != streamed.id
    assert shown(streamed) == shown(at_once) and at_once.content


def shown(message):
    """Return a message without what is new in each response."""
    fields = message.to_dict()
    fields["content"] = [{**block, "signature": ""} for block in fields["content"]]
    return {**fields, "id": "", "stop_details": fields.get("stop_details")}


async def test_messages_sdk_reads_parallel_tool_calls():
    async with sdk(CALLS) as client:
        message = await client.messages.create(**REQUEST, tools=[TOOL])
    assert message.stop_reason == "tool_use"
    assert [block.input for block in message.content if block.type == "tool_use"] == [
        {"city": "Oslo"},
        {"city": "Rome"},
    ]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (whole({"error": {"message": "no such model"}}, 404), anthropic.NotFoundError),
        (whole({"error": "loading"}, 503), anthropic.InternalServerError),
        ([CLOSE], anthropic.InternalServerError),
        (whole({"error": "too many"}, 429), anthropic.RateLimitError),
    ],
    ids=["404", "503", "closed", "429"],
)
async def test_messages_sdk_raises_its_errors(script, expected):
    async with sdk(script) as client:
        with pytest.raises(expected) as caught:
            await client.messages.create(**REQUEST)
    assert caught.value.request_id.startswith("req_")


async def test_messages_sdk_raises_an_error_amid_a_stream():
    async with sdk([head(), chunk("Hi"), CLOSE]) as client, client.messages.stream(**REQUEST) as stream:
        with pytest.raises(anthropic.APIStatusError, match="Backend 'up' closed"):
            await stream.get_final_message()


async def test_messages_sdk_counts_tokens_and_lists_models():
    async with sdk(HELLO) as client:
        counted = await client.messages.count_tokens(model="m", messages=HELLO_MESSAGES)
        models = [model.id async for model in client.models.list()]
        model = await client.models.retrieve("m")
    assert counted.input_tokens > 0 and models == ["m"] and model.type == "model"


async def test_messages_sdk_goes_on_without_threads():
    async with sdk(HELLO) as client:
        with pytest.raises(anthropic.BadRequestError) as caught:
            await client.messages.create(**REQUEST, extra_body={"thread": {"type": "create"}})
    assert caught.value.body["error"]["details"]["error_code"] == "thread_unsupported_request"


BLOCKS = [*filter(is_typeddict, typing.get_args(anthropic.types.beta.BetaContentBlockParam))]


@pytest.mark.parametrize("type", BLOCKS, ids=lambda type: type.__name__)
def test_messages_sdk_knows_no_further_member_of_a_block(type):
    members = typing.get_type_hints(type)
    (name,) = typing.get_args(members["type"])[:1] or [""]
    ledger = Warnings()
    report_unknown_members({**dict.fromkeys(members, 1), "type": name}, ledger)
    assert ledger.entries() == UNREAD.get(name, [])


@anthropic.beta_async_tool
async def weather(city: str) -> str:
    """Get the weather of a city."""
    return f"warm in {city}"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_messages_sdk_runs_tools(streamed):
    """The runner asks for a thread first, and then sends the whole conversation."""
    async with connected(CALLS, HELLO) as (client, upstream):
        runner = client.beta.messages.tool_runner(**REQUEST, tools=[weather], stream=streamed)
        last = await runner.until_done()
    assert [block.text for block in last.content] == ["Hi"]
    _, second = [post.json["messages"] for post in upstream.posts]
    assert [message["role"] for message in second] == ["user", "assistant", "tool", "tool"]
    assert [message["content"] for message in second[2:]] == ["warm in Oslo", "warm in Rome"]


class City(BaseModel):
    """A city."""

    name: str


async def test_messages_sdk_parses_the_output():
    script = stream(chunk('{"name": "Oslo"}'), chunk(finish="stop"), frame(choices=[], usage=COUNTS))
    async with connected(script) as (client, upstream):
        message = await client.messages.parse(**REQUEST, output_format=City)
    assert message.parsed_output == City(name="Oslo")
    (post,) = upstream.posts
    assert post.json["response_format"]["json_schema"]["schema"]["required"] == ["name"]


async def test_messages_sdk_sends_thinking_back():
    """The thinking block is reasoning again, by its signature alone."""
    omitted = {**REQUEST, "thinking": {"type": "adaptive", "display": "omitted"}}
    async with connected(THINKS, HELLO) as (client, upstream):
        first = await client.messages.create(**omitted)
        history = [*HELLO_MESSAGES, {"role": "assistant", "content": first.content}, *HELLO_MESSAGES]
        await client.messages.create(**{**omitted, "messages": history})
    assert first.content[0].thinking == ""
    assert upstream.posts[-1].json["messages"][1]["reasoning_content"] == "Hm."


@pytest.mark.parametrize("script", [HELLO, THINKS, CALLS], ids=["text", "thinking", "calls"])
async def test_messages_sdk_accepts_each_member_in_its_strict_mode(script):
    async with (
        listening(script) as site,
        anthropic.AsyncAnthropic(
            base_url=str(site.client.base_url), api_key="x", max_retries=0, _strict_response_validation=True
        ) as client,
    ):
        message = await client.messages.create(**REQUEST, tools=[TOOL])
        async with client.messages.stream(**REQUEST, tools=[TOOL]) as stream:
            events = [event.type async for event in stream]
        models = await client.models.list()
    assert message.usage.output_tokens >= 0 and models.data[0].id == "m"
    assert (events[0], events[-1]) == ("message_start", "message_stop")
