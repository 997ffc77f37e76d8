"""openai-agents: both its models, whole and streamed, and the agent's loop in both ways."""

import json
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    HostedMCPTool,
    Model,
    ModelSettings,
    ModelTracing,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    WebSearchTool,
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
NEW = ["function_call", "function_call_output", "message"]  # what a run of `single` adds to its question
OFFLINE = RunConfig(tracing_disabled=True)  # else it would send what happened to its maker


def chat(model: str) -> tuple[Model, ModelSettings]:
    return OpenAIChatCompletionsModel(model, CLIENT, should_replay_reasoning_content=lambda _: True), SETTINGS


def responses(model: str) -> tuple[Model, ModelSettings]:
    return OpenAIResponsesModel(model, CLIENT), STATELESS


def stored(model: str) -> tuple[Model, ModelSettings]:
    return OpenAIResponsesModel(model, CLIENT), SETTINGS


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


def arguments(turn: Turn, settings: ModelSettings) -> dict[str, Any]:
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


def answer_of(output: list[TResponseOutputItem], usage: Any) -> Answer:
    """It has no finish reason: this is what its items make of it."""
    calls = [(item.name, json.loads(item.arguments)) for item in output if item.type == "function_call"]
    content = "".join(part.text for item in output if item.type == "message" for part in item.content)
    thought = "".join(part.text for item in output if item.type == "reasoning" for part in item.summary)
    finish = "tool_calls" if calls else "stop"
    return Answer(content, calls, finish, (usage.input_tokens, usage.output_tokens), thought)


async def whole(model: tuple[Model, ModelSettings], turn: Turn) -> Answer:
    agents_model, settings = model
    response = await agents_model.get_response(**arguments(turn, settings))
    return answer_of(response.output, response.usage)


async def streamed(model: tuple[Model, ModelSettings], turn: Turn) -> Answer:
    agents_model, settings = model
    events = [event async for event in agents_model.stream_response(**arguments(turn, settings))]
    assert events[-1].type == "response.completed" and len(events) > 5
    return answer_of(events[-1].response.output, events[-1].response.usage)


async def get_response(model: str, turn: Turn) -> Answer:
    return await whole(chat(model), turn)


async def stream_response(model: str, turn: Turn) -> Answer:
    return await streamed(chat(model), turn)


async def get_response_by_responses(model: str, turn: Turn) -> Answer:
    return await whole(responses(model), turn)


async def stream_response_by_responses(model: str, turn: Turn) -> Answer:
    return await streamed(responses(model), turn)


def agent(model: tuple[Model, ModelSettings], called: list[Call]) -> Agent[None]:
    agents_model, settings = model
    return Agent("weather", model=agents_model, model_settings=settings, tools=offered(TURNS["single"], called))


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


async def a_session_is_kept(model: str) -> None:
    """All that is in it is sent again, each time."""
    *before, question = items(TURNS["single"].messages)
    session = OpenAIConversationsSession(openai_client=CLIENT)
    await session.add_items(before)
    called: list[Call] = []
    weather_agent = agent(stored(model), called)
    finished(await Runner.run(weather_agent, [question], session=session, run_config=OFFLINE), called)
    await Runner.run(replace(weather_agent, tools=[]), "Thanks.", session=session, run_config=OFFLINE)
    kept = await session.get_items()
    assert [item["type"] for item in kept[len(before) + 1 :]] == [*NEW, "message", "message"], kept
    assert await session.get_items(limit=2) == kept[-2:]
    assert await session.pop_item() == kept[-1] and await session.get_items() == kept[:-1]
    cleared = session.session_id
    await session.clear_session()
    assert await session.get_items() == [] and session.session_id != cleared


async def a_conversation_goes_on(model: str) -> None:
    *before, question = items(TURNS["single"].messages)
    conversation = (await CLIENT.conversations.create(items=before)).id
    called: list[Call] = []
    weather_agent = agent(stored(model), called)
    finished(await Runner.run(weather_agent, [question], conversation_id=conversation, run_config=OFFLINE), called)
    kept = [item async for item in CLIENT.conversations.items.list(conversation, order="asc", limit=5)]
    assert [item.type for item in kept[len(before) + 1 :]] == NEW, kept


async def a_response_goes_on_from_the_one_before(model: str) -> None:
    """Twice: by itself, and from the last response of another run."""
    called: list[Call] = []
    weather_agent = agent(stored(model), called)
    result = Runner.run_streamed(
        weather_agent, items(TURNS["single"].messages), auto_previous_response_id=True, run_config=OFFLINE
    )
    async for _ in result.stream_events():
        pass
    finished(result, called)
    ids = [response.response_id for response in result.raw_responses]
    assert (await CLIENT.responses.retrieve(ids[1])).previous_response_id == ids[0]
    more = await Runner.run(
        replace(weather_agent, tools=[]), "Thanks.", previous_response_id=result.last_response_id, run_config=OFFLINE
    )
    assert (await CLIENT.responses.retrieve(more.last_response_id)).previous_response_id == ids[1]


async def a_hosted_server_is_called(model: str) -> None:
    toys: Any = {"type": "mcp", "server_label": "toys", "require_approval": "never", "allowed_tools": ["echo"]}
    types = await hosted(model, HostedMCPTool(tool_config=toys), "Echo the word banana.")
    assert types[:2] == ["mcp_list_tools", "mcp_call"] and types[-1] == "message", types


async def the_web_is_searched(_: str) -> None:
    """By the one of the two that comes to an end with it."""
    types = await hosted("hermes", WebSearchTool(), "What is the capital of Norway?")
    assert types[0] == "web_search_call" and types[-1] == "message", types


async def hosted(model: str, tool: HostedMCPTool | WebSearchTool, question: str) -> list[str]:
    """The types of what comes of a call that is forced, and of one sentence: this client wants answers that end."""
    agents_model, settings = stored(model)
    forced = replace(settings, tool_choice="required", extra_body=EXTRA | {"stop": ["."]})
    options = {**arguments(TURNS["think"], forced), "input": question, "tools": [tool]}
    output = [event async for event in agents_model.stream_response(**options)][-1].response.output
    calls = [item for item in output if item.type in ("mcp_call", "web_search_call")]
    assert calls and all(call.status == "completed" for call in calls), output
    return [item.type for item in output]


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
            a_session_is_kept,
            a_conversation_goes_on,
            a_response_goes_on_from_the_one_before,
            a_hosted_server_is_called,
            the_web_is_searched,
        ],
    )
