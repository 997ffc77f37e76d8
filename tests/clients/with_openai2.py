"""openai-python 2.x, which some frameworks still ask for: sync and async, whole, streamed, and by the stream helper."""

import json
from collections.abc import Iterable
from typing import Any

import openai
from checks import BASE_URL, STREAMED, WHOLE, Answer, Turn, run
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

OPTIONS: dict[str, Any] = {"base_url": BASE_URL, "api_key": "none", "max_retries": 0}
USAGE = {"stream_options": {"include_usage": True}}


def told(completion: ChatCompletion) -> Answer:
    (choice,) = completion.choices
    message, usage = choice.message, completion.usage
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]
    assert len({call.id for call in message.tool_calls or ()}) == len(calls)
    thought = getattr(message, "reasoning_content", None) or ""
    return Answer(message.content, calls, choice.finish_reason, (usage.prompt_tokens, usage.completion_tokens), thought)


def folded(chunks: Iterable[ChatCompletionChunk]) -> Answer:
    """As an application does that knows only what the API promises."""
    content, thought, calls, finish, usage = "", "", [], [], []
    for chunk in chunks:
        usage += [(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)] if chunk.usage else []
        for choice in chunk.choices:
            content += choice.delta.content or ""
            thought += getattr(choice.delta, "reasoning_content", None) or ""
            finish += [choice.finish_reason] if choice.finish_reason else []
            for part in choice.delta.tool_calls or ():
                if part.id:
                    assert part.index == len(calls) and part.type == "function"
                    calls.append([part.function.name, ""])
                calls[part.index][1] += part.function.arguments or ""
    assert len(finish) == len(usage) == 1
    return Answer(content, [(name, json.loads(text)) for name, text in calls], finish[0], usage[0], thought)


def create(model: str, turn: Turn) -> Answer:
    with OpenAI(**OPTIONS) as client:
        return told(client.chat.completions.create(**turn.body(model)))


def create_streamed(model: str, turn: Turn) -> Answer:
    with (
        OpenAI(**OPTIONS) as client,
        client.chat.completions.create(**turn.body(model, stream=True, **USAGE)) as chunks,
    ):
        return folded(chunks)


def stream_helper(model: str, turn: Turn) -> Answer:
    with OpenAI(**OPTIONS) as client, client.chat.completions.stream(**turn.body(model), **USAGE) as stream:
        events = [event.type for event in stream]
        assert events.count("tool_calls.function.arguments.done") == len(turn.calls)
        assert events.count("content.done") == (1 if turn.content else 0)
        return told(stream.get_final_completion())


async def async_create(model: str, turn: Turn) -> Answer:
    async with AsyncOpenAI(**OPTIONS) as client:
        return told(await client.chat.completions.create(**turn.body(model)))


async def async_streamed(model: str, turn: Turn) -> Answer:
    async with AsyncOpenAI(**OPTIONS) as client:
        stream = await client.chat.completions.create(**turn.body(model, stream=True, **USAGE))
        return folded([chunk async for chunk in stream])


if __name__ == "__main__":
    assert openai.__version__.startswith("2."), openai.__version__
    run(
        f"openai-python {openai.__version__}",
        {
            create: (*WHOLE, "follow_up"),
            create_streamed: STREAMED,
            stream_helper: ("think", "parallel"),
            async_create: ("think_then_call",),
            async_streamed: ("think",),
        },
    )
