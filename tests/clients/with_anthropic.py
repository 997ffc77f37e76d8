"""anthropic: create, stream and its accumulator, parse, the tool runner, counts and models, sync and async."""

import json
from typing import Any

import anthropic
from anthropic import Anthropic, AsyncAnthropic, beta_tool
from anthropic.types import Message
from checks import MESSAGE_EXTRA, ROOT_URL, SIGNATURE, TURNS, WEATHER, WHOLE, Answer, Turn, run, to_messages_api
from pydantic import BaseModel

OPTIONS: dict[str, Any] = {"base_url": ROOT_URL, "api_key": "none", "max_retries": 0}
PIECES = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
FINISHES = {"end_turn": "stop", "tool_use": "tool_calls"}


class Sum(BaseModel):
    """A sum."""

    result: int


def answer_of(message: Message) -> Answer:
    blocks = message.content
    assert all(block.signature for block in blocks if block.type == "thinking"), blocks
    calls = [(block.name, block.input) for block in blocks if block.type == "tool_use"]
    assert len({block.id for block in blocks if block.type == "tool_use"}) == len(calls)
    text = "".join(block.text for block in blocks if block.type == "text")
    thought = "".join(block.thinking for block in blocks if block.type == "thinking")
    usage = message.usage
    prompt = usage.input_tokens + usage.cache_read_input_tokens
    return Answer(text, calls, FINISHES[message.stop_reason], (prompt, usage.output_tokens), thought)


def create(model: str, turn: Turn) -> Answer:
    with Anthropic(**OPTIONS) as client:
        return answer_of(client.messages.create(**turn.message(model)))


def create_streamed(model: str, turn: Turn) -> Answer:
    """Join the deltas to blocks, as an application does that knows only what the API promises."""
    blocks: list[Any] = []
    with Anthropic(**OPTIONS) as client, client.messages.create(**turn.message(model, stream=True)) as events:
        for event in events:
            if event.type == "content_block_start":
                assert event.index == len(blocks)
                blocks.append([event.content_block, ""])
            elif event.type == "content_block_delta" and event.delta.type in PIECES:
                blocks[event.index][1] += getattr(event.delta, PIECES[event.delta.type])
            elif event.type == "message_delta":
                reason, usage = event.delta.stop_reason, event.usage
    texts = {kind: "".join(text for block, text in blocks if block.type == kind) for kind in ("text", "thinking")}
    calls = [(block.name, json.loads(text)) for block, text in blocks if block.type == "tool_use"]
    counts = (usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens)
    return Answer(texts["text"], calls, FINISHES[reason], counts, texts["thinking"])


def stream_helper(model: str, turn: Turn) -> Answer:
    with Anthropic(**OPTIONS) as client, client.messages.stream(**turn.message(model)) as stream:
        events = [event.type for event in stream]
        assert events.count("content_block_stop") == len(stream.get_final_message().content)
        assert ("thinking" in events) == bool(turn.thought)
        return answer_of(stream.get_final_message())


async def async_stream_helper(model: str, turn: Turn) -> Answer:
    async with AsyncAnthropic(**OPTIONS) as client, client.messages.stream(**turn.message(model)) as stream:
        return answer_of(await stream.get_final_message())


def a_message_goes_on_with_its_own_blocks(model: str) -> None:
    """With the thought that led to the call, by its signature alone."""
    turn = TURNS["think_then_call"]
    request = turn.message(model, thinking={"type": "adaptive", "display": "omitted"})
    with Anthropic(**OPTIONS) as client:
        first = client.messages.create(**request)
        thought, call = first.content
        assert thought.thinking == "" and thought.signature.startswith(SIGNATURE), first
        result = {"type": "tool_result", "tool_use_id": call.id, "content": WEATHER}
        messages = [
            *request["messages"],
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        after = client.messages.create(**request | {"messages": messages})
        assert answer_of(after).content == TURNS["follow_up"].content, after


def the_runner_calls_a_tool(model: str) -> None:
    """It asks for a thread first, and goes on without one."""
    called = []

    @beta_tool
    def get_weather(city: str, unit: str) -> str:
        """Get the current weather for a city."""
        called.append(("get_weather", {"city": city, "unit": unit}))
        return WEATHER

    turn = TURNS["single"]
    request = turn.message(model)
    del request["tools"]
    with Anthropic(**OPTIONS) as client:
        last = client.beta.messages.tool_runner(**request, tools=[get_weather]).until_done()
    assert called == turn.calls and last.stop_reason == "end_turn", (called, last)


def a_message_is_parsed(model: str) -> None:
    question = [{"role": "user", "content": "What is 2 + 3? Respond with the result."}]
    request = {"model": model, "max_tokens": 60, "messages": question, "extra_body": MESSAGE_EXTRA}
    with Anthropic(**OPTIONS) as client:
        parsed = client.messages.parse(**request, output_format=Sum)
        assert isinstance(parsed.parsed_output, Sum), parsed


def tokens_are_counted(model: str) -> None:
    turn = TURNS["single"]
    request = {"model": model, "messages": to_messages_api(turn.messages), "tools": turn.message(model)["tools"]}
    with Anthropic(**OPTIONS) as client:
        counted = client.messages.count_tokens(**request).input_tokens
        used = client.messages.create(**turn.message(model)).usage
        assert counted == used.input_tokens + used.cache_read_input_tokens, (counted, used)


def models_are_listed(model: str) -> None:
    with Anthropic(**OPTIONS) as client:
        assert model in [each.id for each in client.models.list(limit=1)], "on any of its pages"
        assert client.models.retrieve(model).type == "model"


if __name__ == "__main__":
    run(
        f"anthropic {anthropic.__version__}",
        {
            create: WHOLE,
            create_streamed: ("think_then_calls",),
            stream_helper: ("parallel",),
            async_stream_helper: ("think",),
        },
        [
            a_message_goes_on_with_its_own_blocks,
            the_runner_calls_a_tool,
            a_message_is_parsed,
            tokens_are_counted,
            models_are_listed,
        ],
    )
