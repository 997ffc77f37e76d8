"""pydantic-ai with its models for the three APIs: single requests, whole and streamed, and an agent that calls a tool."""

from collections.abc import Iterator
from importlib.metadata import version
from itertools import groupby
from operator import itemgetter
from typing import Any

from checks import (
    ALL_TURNS,
    BASE_URL,
    EXTRA,
    ROOT_URL,
    SIGNATURE,
    STREAMED,
    TURNS,
    WEATHER,
    WHOLE,
    Answer,
    Message,
    Turn,
    run,
)
from pydantic_ai import Agent, AgentRunResult, ModelRequest, ModelResponse, ModelSettings, Tool
from pydantic_ai import messages as parts
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

SETTINGS = ModelSettings(temperature=0, max_tokens=120, extra_body=EXTRA)
FIELD = OpenAIModelProfile(openai_chat_thinking_field="reasoning_content", openai_chat_send_back_thinking_parts="field")


SEALED = OpenAIModelProfile(openai_supports_encrypted_reasoning_content=True)
STATELESS = OpenAIResponsesModelSettings(
    temperature=0, max_tokens=120, openai_store=False, extra_body=EXTRA | {"reasoning": ALL_TURNS}
)
STATEFUL = OpenAIResponsesModelSettings(
    temperature=0, max_tokens=120, openai_previous_response_id="auto", extra_body=EXTRA
)


def chat(model: str) -> OpenAIChatModel:
    return OpenAIChatModel(model, provider=provider(), profile=FIELD, settings=SETTINGS)


def responses(model: str) -> OpenAIResponsesModel:
    return OpenAIResponsesModel(model, provider=provider(), profile=SEALED, settings=STATELESS)


def messages(model: str) -> AnthropicModel:
    return AnthropicModel(model, provider=AnthropicProvider(base_url=ROOT_URL, api_key="none"), settings=SETTINGS)


def provider() -> OpenAIProvider:
    return OpenAIProvider(base_url=BASE_URL, api_key="none")


def history(model: Model, messages: list[Message]) -> list[ModelRequest | ModelResponse]:
    """Return the conversation, with the results of parallel calls in one request."""
    turns = [(role, [*group]) for role, group in groupby(messages, itemgetter("role"))]
    return [
        ModelResponse([part for message in turn for part in responded(model, message)])
        if role == "assistant"
        else ModelRequest([*map(requested, turn)])
        for role, turn in turns
    ]


def requested(message: Message) -> parts.UserPromptPart | parts.ToolReturnPart:
    if message["role"] == "user":
        return parts.UserPromptPart(message["content"])
    return parts.ToolReturnPart("get_weather", message["content"], message["tool_call_id"])


def responded(model: Model, message: Message) -> Iterator[parts.ModelResponsePart]:
    """Yield the parts; a thinking block goes back as one only with a signature."""
    if thought := message.get("reasoning_content"):
        signature = "of another service" if model.system == "anthropic" else None
        yield parts.ThinkingPart(thought, id="r", signature=signature, provider_name=model.system)
    if message["content"]:
        yield parts.TextPart(message["content"])
    for call in message.get("tool_calls", ()):
        yield parts.ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"])


def arguments(model: Model, turn: Turn) -> dict[str, Any]:
    functions = [tool["function"] for tool in turn.tools]
    tools = [
        ToolDefinition(name=each["name"], description=each["description"], parameters_json_schema=each["parameters"])
        for each in functions
    ]
    return {
        "messages": history(model, turn.messages),
        "model_request_parameters": ModelRequestParameters(function_tools=tools),
    }


def answer_of(response: ModelResponse) -> Answer:
    """Over responses nothing tells a call from an end, except that it is there."""
    calls = [(call.tool_name, call.args_as_dict()) for call in response.tool_calls]
    assert response.finish_reason in ("stop", "tool_call")
    finish = "tool_calls" if calls else "stop"
    usage = (response.usage.input_tokens, response.usage.output_tokens)
    return Answer(response.text, calls, finish, usage, response.thinking or "")


async def whole(model: Model, turn: Turn) -> Answer:
    return answer_of(await model_request(model, **arguments(model, turn)))


async def streamed(model: Model, turn: Turn) -> Answer:
    async with model_request_stream(model, **arguments(model, turn)) as stream:
        events = [event async for event in stream]
        assert len(events) > 3
        return answer_of(stream.get())


async def request(model: str, turn: Turn) -> Answer:
    return await whole(chat(model), turn)


async def request_stream(model: str, turn: Turn) -> Answer:
    return await streamed(chat(model), turn)


async def request_by_responses(model: str, turn: Turn) -> Answer:
    return await whole(responses(model), turn)


async def request_stream_by_responses(model: str, turn: Turn) -> Answer:
    return await streamed(responses(model), turn)


async def request_by_messages(model: str, turn: Turn) -> Answer:
    return await whole(messages(model), turn)


async def request_stream_by_messages(model: str, turn: Turn) -> Answer:
    return await streamed(messages(model), turn)


async def an_agent_calls_a_tool(model: str) -> None:
    await loop(chat(model))


async def an_agent_calls_a_tool_by_responses(model: str) -> None:
    await loop(responses(model))


async def an_agent_calls_a_tool_by_messages(model: str) -> None:
    result = await loop(messages(model), "think_then_call")
    assert result.all_messages()[-3].parts[0].signature.startswith(SIGNATURE), result.all_messages()[-3]


async def an_agent_goes_on_from_its_responses(model: str) -> None:
    result = await loop(OpenAIResponsesModel(model, provider=provider(), settings=STATEFUL))
    *_, first, _, last = result.all_messages()
    stored = await provider().client.responses.retrieve(last.provider_response_id)
    assert stored.previous_response_id == first.provider_response_id


async def loop(model: Model, name: str = "single") -> AgentRunResult[str]:
    called = []

    def weather(**arguments: str) -> str:
        called.append(("get_weather", arguments))
        return WEATHER

    turn = TURNS[name]
    *before, question = turn.messages
    functions = [tool["function"] for tool in turn.tools]
    tools = [Tool.from_schema(weather, each["name"], each["description"], each["parameters"]) for each in functions]
    agent = Agent(model, tools=tools)
    result = await agent.run(question["content"], message_history=history(model, before))
    assert called == turn.calls and result.output == TURNS["follow_up"].content, result.all_messages()[-3:]
    assert result.usage.requests == 2 and result.usage.output_tokens > 10, result.usage
    return result


if __name__ == "__main__":
    run(
        f"pydantic-ai {version('pydantic-ai-slim')}",
        {
            request: WHOLE,
            request_stream: STREAMED,
            request_by_responses: ("think",),
            request_stream_by_responses: ("think_then_calls",),
            request_by_messages: ("think",),
            request_stream_by_messages: ("think_then_calls",),
        },
        [
            an_agent_calls_a_tool,
            an_agent_calls_a_tool_by_responses,
            an_agent_calls_a_tool_by_messages,
            an_agent_goes_on_from_its_responses,
        ],
    )
