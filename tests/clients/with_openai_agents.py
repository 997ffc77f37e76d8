"""openai-agents over chat completions: its model, whole and streamed, and the agent's loop in both ways."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from agents import Agent, FunctionTool, ModelSettings, ModelTracing, OpenAIChatCompletionsModel, RunConfig, Runner
from agents.items import TResponseOutputItem
from agents.result import RunResultBase
from agents.tool_context import ToolContext
from agents.usage import Usage
from checks import BASE_URL, EXTRA, STREAMED, TURNS, WEATHER, WHOLE, Answer, Call, Message, Turn, run
from openai import AsyncOpenAI

SETTINGS = ModelSettings(temperature=0, max_tokens=120, extra_body=EXTRA, include_usage=True)
CLIENT = AsyncOpenAI(base_url=BASE_URL, api_key="none", max_retries=0)
OFFLINE = RunConfig(tracing_disabled=True)  # else it would send what happened to its maker


def chat(model: str) -> OpenAIChatCompletionsModel:
    return OpenAIChatCompletionsModel(model, CLIENT, should_replay_reasoning_content=lambda _: True)


def items(messages: list[Message]) -> list[dict[str, Any]]:
    return [item for message in messages for item in split(message)]


def split(message: Message) -> Iterator[dict[str, Any]]:
    """A chat message as the items that this SDK keeps."""
    if thought := message.get("reasoning_content"):
        yield {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": thought}]}
    if message["role"] == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
    elif message["role"] == "user":
        yield {"role": "user", "content": message["content"]}
    elif message["content"]:
        text = {"type": "output_text", "text": message["content"], "annotations": []}
        yield {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}
    for call in message.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


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


def asked(turn: Turn) -> dict[str, Any]:
    return {
        "system_instructions": None,
        "input": items(turn.messages),
        "model_settings": SETTINGS,
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


async def get_response(model: str, turn: Turn) -> Answer:
    response = await chat(model).get_response(**asked(turn))
    return told(response.output, response.usage)


async def stream_response(model: str, turn: Turn) -> Answer:
    events = [event async for event in chat(model).stream_response(**asked(turn))]
    assert events[-1].type == "response.completed" and len(events) > 5
    return told(events[-1].response.output, events[-1].response.usage)


def agent(model: str, called: list[Call]) -> Agent[None]:
    return Agent("weather", model=chat(model), model_settings=SETTINGS, tools=offered(TURNS["single"], called))


def finished(result: RunResultBase, called: list[Call]) -> None:
    usage: Usage = result.context_wrapper.usage
    assert called == TURNS["single"].calls and result.final_output == TURNS["follow_up"].content, result.new_items
    assert usage.requests == 2 and usage.output_tokens > 10, usage


async def an_agent_calls_a_tool(model: str) -> None:
    called: list[Call] = []
    finished(await Runner.run(agent(model, called), items(TURNS["single"].messages), run_config=OFFLINE), called)


async def a_streamed_agent_calls_a_tool(model: str) -> None:
    called: list[Call] = []
    result = Runner.run_streamed(agent(model, called), items(TURNS["single"].messages), run_config=OFFLINE)
    async for _ in result.stream_events():
        pass
    finished(result, called)


if __name__ == "__main__":
    run(
        f"openai-agents {version('openai-agents')}",
        {get_response: WHOLE, stream_response: STREAMED},
        [an_agent_calls_a_tool, a_streamed_agent_calls_a_tool],
    )
