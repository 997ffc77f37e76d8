"""openai-agents: both its models, whole and streamed, and the agent's loop in both ways."""

import json
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelSettings,
    ModelTracing,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
)
from agents.items import TResponseOutputItem
from agents.result import RunResultBase
from agents.tool_context import ToolContext
from agents.usage import Usage
from checks import ALL_TURNS, BASE_URL, EXTRA, STREAMED, TURNS, WEATHER, WHOLE, Answer, Call, Turn, items, run
from openai import AsyncOpenAI

SETTINGS = ModelSettings(temperature=0, max_tokens=120, extra_body=EXTRA, include_usage=True)
STATELESS = replace(SETTINGS, store=False, extra_body=EXTRA | {"reasoning": ALL_TURNS})
CLIENT = AsyncOpenAI(base_url=BASE_URL, api_key="none", max_retries=0)
OFFLINE = RunConfig(tracing_disabled=True)  # else it would send what happened to its maker


def chat(model: str) -> tuple[Model, ModelSettings]:
    return OpenAIChatCompletionsModel(model, CLIENT, should_replay_reasoning_content=lambda _: True), SETTINGS


def responses(model: str) -> tuple[Model, ModelSettings]:
    return OpenAIResponsesModel(model, CLIENT), STATELESS


def offered(turn: Turn, called: list[Call]) -> list[FunctionTool]:
    async def weather(context: ToolContext[Any], arguments: str) -> str:
        called.append((context.tool_name, json.loads(arguments)))
        return WEATHER

    functions = [tool["function"] for tool in turn.tools]
    return [
        FunctionTool(
            function["name"], function["description"], function["parameters"], weather, strict_json_schema=False
        )
        for function in functions
    ]


def asked(turn: Turn, settings: ModelSettings) -> dict[str, Any]:
    return {
        "system_instructions": None,
        "input": items(turn.messages),
        "model_settings": settings,
        "tools": offered(turn, []),
        "output_schema": None,
        "handoffs": [],
        "tracing": ModelTracing.DISABLED,
        "previous_response_id": None,
        "conversation_id": None,
        "prompt": None,
    }


def told(output: list[TResponseOutputItem], usage: Any) -> Answer:
    """It has no finish reason: this is what its items make of it."""
    calls = [(item.name, json.loads(item.arguments)) for item in output if item.type == "function_call"]
    content = "".join(part.text for item in output if item.type == "message" for part in item.content)
    thought = "".join(part.text for item in output if item.type == "reasoning" for part in item.summary)
    finish = "tool_calls" if calls else "stop"
    return Answer(content, calls, finish, (usage.input_tokens, usage.output_tokens), thought)


async def whole(model: tuple[Model, ModelSettings], turn: Turn) -> Answer:
    asks, settings = model
    response = await asks.get_response(**asked(turn, settings))
    return told(response.output, response.usage)


async def streamed(model: tuple[Model, ModelSettings], turn: Turn) -> Answer:
    asks, settings = model
    events = [event async for event in asks.stream_response(**asked(turn, settings))]
    assert events[-1].type == "response.completed" and len(events) > 5
    return told(events[-1].response.output, events[-1].response.usage)


async def get_response(model: str, turn: Turn) -> Answer:
    return await whole(chat(model), turn)


async def stream_response(model: str, turn: Turn) -> Answer:
    return await streamed(chat(model), turn)


async def get_response_by_responses(model: str, turn: Turn) -> Answer:
    return await whole(responses(model), turn)


async def stream_response_by_responses(model: str, turn: Turn) -> Answer:
    return await streamed(responses(model), turn)


def agent(model: tuple[Model, ModelSettings], called: list[Call]) -> Agent[None]:
    asks, settings = model
    return Agent("weather", model=asks, model_settings=settings, tools=offered(TURNS["single"], called))


def finished(result: RunResultBase, called: list[Call]) -> None:
    usage: Usage = result.context_wrapper.usage
    assert called == TURNS["single"].calls and result.final_output == TURNS["follow_up"].content, result.new_items
    assert usage.requests == 2 and usage.output_tokens > 10, usage


async def loop(model: tuple[Model, ModelSettings]) -> None:
    called: list[Call] = []
    finished(await Runner.run(agent(model, called), items(TURNS["single"].messages), run_config=OFFLINE), called)


async def streamed_loop(model: tuple[Model, ModelSettings]) -> None:
    called: list[Call] = []
    result = Runner.run_streamed(agent(model, called), items(TURNS["single"].messages), run_config=OFFLINE)
    async for _ in result.stream_events():
        pass
    finished(result, called)


async def an_agent_calls_a_tool(model: str) -> None:
    await loop(chat(model))


async def a_streamed_agent_calls_a_tool(model: str) -> None:
    await streamed_loop(chat(model))


async def an_agent_calls_a_tool_by_responses(model: str) -> None:
    await loop(responses(model))


async def a_streamed_agent_calls_a_tool_by_responses(model: str) -> None:
    await streamed_loop(responses(model))


if __name__ == "__main__":
    run(
        f"openai-agents {version('openai-agents')}",
        {
            get_response: WHOLE,
            stream_response: STREAMED,
            get_response_by_responses: ("think",),
            stream_response_by_responses: ("think_then_calls",),
        },
        [
            an_agent_calls_a_tool,
            a_streamed_agent_calls_a_tool,
            an_agent_calls_a_tool_by_responses,
            a_streamed_agent_calls_a_tool_by_responses,
        ],
    )
