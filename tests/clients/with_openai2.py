"""openai-python 2.x, which some frameworks still ask for: sync and async, whole, streamed, and by the stream helpers."""

import json
from collections.abc import Iterable
from typing import Any

import openai
from checks import BASE_URL, EXTRA, STREAMED, TURNS, WEATHER, WHOLE, Answer, Turn, items, run
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

OPTIONS: dict[str, Any] = {"base_url": BASE_URL, "api_key": "none", "max_retries": 0}
USAGE = {"stream_options": {"include_usage": True}}


def answer_of(completion: ChatCompletion) -> Answer:
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
        return answer_of(client.chat.completions.create(**turn.body(model)))


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
        return answer_of(stream.get_final_completion())


async def async_create(model: str, turn: Turn) -> Answer:
    async with AsyncOpenAI(**OPTIONS) as client:
        return answer_of(await client.chat.completions.create(**turn.body(model)))


async def async_streamed(model: str, turn: Turn) -> Answer:
    async with AsyncOpenAI(**OPTIONS) as client:
        stream = await client.chat.completions.create(**turn.body(model, stream=True, **USAGE))
        return folded([chunk async for chunk in stream])


def answer_of_response(response: Response) -> Answer:
    """It has no finish reason: this is what its items make of it."""
    calls = [(item.name, json.loads(item.arguments)) for item in response.output if item.type == "function_call"]
    thought = "".join(part.text for item in response.output if item.type == "reasoning" for part in item.summary)
    assert response.status == "completed" and len({item.id for item in response.output}) == len(response.output)
    usage = (response.usage.input_tokens, response.usage.output_tokens)
    return Answer(response.output_text, calls, "tool_calls" if calls else "stop", usage, thought)


def gathered(events: Iterable[ResponseStreamEvent]) -> Answer:
    """What the pieces make up, which is what the response at the end says."""
    pieces = {"output_text": "", "reasoning_summary_text": "", "function_call_arguments": ""}
    for number, event in enumerate(events):
        assert event.sequence_number == number
        kind = event.type.removeprefix("response.").removesuffix(".delta")
        if kind in pieces:
            pieces[kind] += event.delta
    answer = answer_of_response(event.response)
    arguments = "".join(item.arguments for item in event.response.output if item.type == "function_call")
    assert [*pieces.values()] == [answer.content, answer.thought, arguments]
    return answer


def respond(model: str, turn: Turn) -> Answer:
    with OpenAI(**OPTIONS) as client:
        return answer_of_response(client.responses.create(**turn.response(model)))


def respond_streamed(model: str, turn: Turn) -> Answer:
    with OpenAI(**OPTIONS) as client, client.responses.create(**turn.response(model, stream=True)) as events:
        return gathered(events)


def respond_helper(model: str, turn: Turn) -> Answer:
    with OpenAI(**OPTIONS) as client, client.responses.stream(**turn.response(model)) as stream:
        events = [event.type for event in stream]
        assert events.count("response.function_call_arguments.done") == len(turn.calls)
        assert events.count("response.output_text.done") == (1 if turn.content else 0)
        return answer_of_response(stream.get_final_response())


async def async_respond(model: str, turn: Turn) -> Answer:
    async with AsyncOpenAI(**OPTIONS) as client:
        return answer_of_response(await client.responses.create(**turn.response(model)))


async def async_respond_streamed(model: str, turn: Turn) -> Answer:
    async with AsyncOpenAI(**OPTIONS) as client:
        return gathered([event async for event in await client.responses.create(**turn.response(model, stream=True))])


def a_response_goes_on_with_its_own_items(model: str) -> None:
    """With the thought that led to the call, of which the client sends back what it cannot read."""
    turn = TURNS["think_then_call"]
    with OpenAI(**OPTIONS) as client:
        first = client.responses.create(**turn.response(model))
        thought, call = first.output
        assert thought.encrypted_content and (call.name, json.loads(call.arguments)) == turn.calls[0]
        sealed = thought.model_copy(update={"summary": []})
        result = {"type": "function_call_output", "call_id": call.call_id, "output": WEATHER}
        after = client.responses.create(**turn.response(model, input=[*items(turn.messages), sealed, call, result]))
        assert after.output_text == TURNS["follow_up"].content, after.output


def a_response_goes_on_from_what_is_stored(model: str) -> None:
    """In a chain and in its conversation, of which the chain is no part."""
    turn = TURNS["think_then_call"]
    with OpenAI(**OPTIONS) as client:
        *before, question = items(turn.messages)
        conversation = client.conversations.create(items=before).id
        request = turn.response(model, store=True, input=[question], conversation=conversation)
        first = client.responses.create(**request)
        call = first.output[-1]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": WEATHER}
        for state in ({"previous_response_id": first.id}, {"conversation": conversation}):
            with client.responses.stream(**turn.response(model, store=True, input=[result], **state)) as stream:
                assert stream.get_final_response().output_text == TURNS["follow_up"].content
        kinds = [item.type for item in client.conversations.items.list(conversation, order="asc", limit=5)]
        called = ["message", "reasoning", "function_call", "function_call_output", "reasoning", "message"]
        assert kinds == called * 3, "as in the two lessons before"


def a_response_in_the_background_is_polled(model: str) -> None:
    turn = TURNS["follow_up"]
    with OpenAI(**OPTIONS) as client:
        response = client.responses.create(**turn.response(model, store=True), background=True)
        assert response.status == "queued", response.status
        while response.status in ("queued", "in_progress"):
            response = client.responses.retrieve(response.id)
        assert response.output_text == turn.content
        assert client.responses.cancel(response.id).status == "completed", "it is over"


def a_stream_in_the_background_is_left_and_taken_up_again(model: str) -> None:
    turn = TURNS["think"]
    with OpenAI(**OPTIONS) as client:
        with client.responses.create(**turn.response(model, store=True), background=True, stream=True) as stream:
            events = [next(stream) for _ in range(6)]
        for event in client.responses.retrieve(events[0].response.id, stream=True, starting_after=5):
            events.append(event)
        assert [event.sequence_number for event in events] == [*range(len(events))]
        answer = gathered(events)
        assert (answer.content, answer.thought.strip()) == (turn.content, turn.thought)


def turns_follow_each_other_on_a_websocket(model: str) -> None:
    """With what was said before neither stored nor sent again."""
    turn = TURNS["think_then_call"]
    with OpenAI(**OPTIONS) as client, client.responses.connect() as connection:
        request = {name: value for name, value in turn.response(model).items() if name != "extra_body"}
        first = over_a_websocket(connection, request)
        call = first.output[-1]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": WEATHER}
        after = over_a_websocket(connection, request | {"input": [result], "previous_response_id": first.id})
        assert after.output_text == TURNS["follow_up"].content, after.output


def over_a_websocket(connection: Any, request: dict[str, Any]) -> Response:
    connection.send({"type": "response.create", **request, **EXTRA})
    events = []
    for event in connection:
        events.append(event)
        if event.type in ("response.completed", "error", "response.failed"):
            break
    gathered(events)
    return events[-1].response


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
            respond: ("think", "follow_up"),
            respond_streamed: ("think_then_calls",),
            respond_helper: ("think", "parallel"),
            async_respond: ("single",),
            async_respond_streamed: ("think",),
        },
        [
            a_response_goes_on_with_its_own_items,
            a_response_goes_on_from_what_is_stored,
            a_response_in_the_background_is_polled,
            a_stream_in_the_background_is_left_and_taken_up_again,
            turns_follow_each_other_on_a_websocket,
        ],
    )
