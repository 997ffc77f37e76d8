"""langchain-anthropic: ChatAnthropic invoked and streamed, with thoughts that go back, tools and schemas."""

from importlib.metadata import version
from typing import Any, Literal

from checks import MESSAGE_EXTRA, ROOT_URL, SIGNATURE, TURNS, WEATHER, WHOLE, Answer, Turn, run, to_messages_api
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable
from pydantic import BaseModel

FINISHES = {"end_turn": "stop", "tool_use": "tool_calls"}


class get_weather(BaseModel):  # the name of the tool
    """Get the current weather for a city"""

    city: str
    unit: Literal["celsius", "fahrenheit"]


class City(BaseModel):
    """The city of a question."""

    name: str


def model_of(model: str, **more: Any) -> ChatAnthropic:
    return ChatAnthropic(
        base_url=ROOT_URL,
        api_key="none",
        model=model,
        max_tokens=120,
        max_retries=0,
        model_kwargs={"extra_body": MESSAGE_EXTRA},
        **more,
    )


def chat(model: str, turn: Turn) -> Runnable[Any, AIMessage]:
    """Return a model that thinks: else the client joins the blocks of a stream to a list of blocks and strings."""
    llm = model_of(model, thinking={"type": "adaptive"})
    return llm.bind_tools(turn.tools) if turn.tools else llm


def history(turn: Turn) -> list[AnyMessage]:
    """Return the conversation with its thinking blocks, and each result in a message of its own."""
    history_messages: list[AnyMessage] = []
    for message in to_messages_api(turn.messages):
        content = message["content"]
        if message["role"] == "assistant":
            history_messages.append(AIMessage(content))
        elif isinstance(content, str):
            history_messages.append(HumanMessage(content))
        else:
            history_messages += [
                ToolMessage(result["content"], tool_call_id=result["tool_use_id"]) for result in content
            ]
    return history_messages


def answer_of(message: AIMessage) -> Answer:
    assert not message.invalid_tool_calls
    blocks = [] if isinstance(message.content, str) else message.content
    thoughts = [block for block in blocks if block["type"] == "thinking"]
    assert all(block["signature"].startswith(SIGNATURE) for block in thoughts), message
    calls = [(call["name"], call["args"]) for call in message.tool_calls]
    usage, finish = message.usage_metadata, FINISHES[message.response_metadata["stop_reason"]]
    thought = "".join(block["thinking"] for block in thoughts)
    return Answer(message.text, calls, finish, (usage["input_tokens"], usage["output_tokens"]), thought)


def invoke(model: str, turn: Turn) -> Answer:
    return answer_of(chat(model, turn).invoke(history(turn)))


def stream(model: str, turn: Turn) -> Answer:
    whole = None
    for chunk in chat(model, turn).stream(history(turn)):
        whole = whole + chunk if whole else chunk
    return answer_of(whole)


async def astream(model: str, turn: Turn) -> Answer:
    whole = None
    async for chunk in chat(model, turn).astream(history(turn)):
        whole = whole + chunk if whole else chunk
    return answer_of(whole)


def a_call_and_its_result(model: str) -> None:
    """The client's own message goes back with its thought and the tool's result."""
    turn = TURNS["think_then_call"]
    called = chat(model, turn).invoke(history(turn))
    (call,) = called.tool_calls
    assert (call["name"], call["args"]) == turn.calls[0], called
    after = chat(model, turn).invoke([*history(turn), called, ToolMessage(WEATHER, tool_call_id=call["id"])])
    assert after.text == TURNS["follow_up"].content, after


def a_schema_is_kept_to(model: str) -> None:
    """By a forced tool, which the model knows from the conversation, and by the schema of the response."""
    turn = TURNS["single"]
    called = model_of(model).with_structured_output(get_weather, method="function_calling").invoke(history(turn))
    assert [("get_weather", called.model_dump())] == turn.calls, called
    runnable = model_of(model).with_structured_output(City, method="json_schema")
    assert isinstance(runnable.invoke("Which city? The city is Paris."), City)


if __name__ == "__main__":
    run(
        f"langchain-anthropic {version('langchain-anthropic')}",
        {invoke: WHOLE, stream: ("think_then_calls",), astream: ("think",)},
        [a_call_and_its_result, a_schema_is_kept_to],
    )
