"""langchain-openai: ChatOpenAI invoked and streamed over both endpoints, with tools bound.

Over chat completions it neither tells nor sends back thoughts.
"""

from importlib.metadata import version
from typing import Any

from checks import BASE_URL, EXTRA, STREAMED, TURNS, WEATHER, WHOLE, Answer, Turn, run
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage, convert_to_messages
from langchain_core.runnables import Runnable
from langchain_openai import ChatOpenAI
from openai import OpenAI

RESPONSES: dict[str, Any] = {
    "use_responses_api": True,
    "output_version": "responses/v1",
    "store": False,
    "include": ["reasoning.encrypted_content"],
}


def chat(model: str, turn: Turn, **more: Any) -> Runnable[Any, AIMessage]:
    llm = ChatOpenAI(
        base_url=BASE_URL,
        api_key="none",
        model=model,
        temperature=0,
        max_tokens=120,
        max_retries=0,
        stream_usage=True,
        extra_body=EXTRA,
        **more,
    )
    return llm.bind_tools(turn.tools) if turn.tools else llm


def answer_of(message: AIMessage) -> Answer:
    assert isinstance(message.content, str) and not message.invalid_tool_calls
    assert len({call["id"] for call in message.tool_calls}) == len(message.tool_calls)
    calls = [(call["name"], call["args"]) for call in message.tool_calls]
    usage = message.usage_metadata
    finish = message.response_metadata["finish_reason"]
    return Answer(message.content, calls, finish, (usage["input_tokens"], usage["output_tokens"]))


def invoke(model: str, turn: Turn) -> Answer:
    return answer_of(chat(model, turn).invoke(convert_to_messages(turn.tagged)))


def stream(model: str, turn: Turn) -> Answer:
    chunks = list(chat(model, turn).stream(convert_to_messages(turn.tagged)))
    assert len(chunks) > 3
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert isinstance(whole, AIMessageChunk)
    return answer_of(whole)


async def astream(model: str, turn: Turn) -> Answer:
    whole = None
    async for chunk in chat(model, turn).astream(convert_to_messages(turn.tagged)):
        whole = whole + chunk if whole else chunk
    return answer_of(whole)


def a_call_and_its_result(model: str) -> None:
    """The message of the client's own goes back with the tool's result."""
    turn = TURNS["single"]
    messages = convert_to_messages(turn.tagged)
    called = chat(model, turn).invoke(messages)
    (call,) = called.tool_calls
    assert (call["name"], call["args"]) == turn.calls[0], called
    after = chat(model, turn).invoke([*messages, called, ToolMessage(WEATHER, tool_call_id=call["id"])])
    assert after.content == TURNS["follow_up"].content, after


def answer_of_response(message: AIMessage) -> Answer:
    """Its blocks, and the finish reason that they stand for."""
    assert message.response_metadata["status"] == "completed" and not message.invalid_tool_calls
    blocks = [block for block in message.content if block["type"] == "reasoning"]
    thought = "".join(part["text"] for block in blocks for part in block["summary"])
    calls = [(call["name"], call["args"]) for call in message.tool_calls]
    usage = message.usage_metadata
    finish = "tool_calls" if calls else "stop"
    return Answer(message.text, calls, finish, (usage["input_tokens"], usage["output_tokens"]), thought)


def invoke_responses(model: str, turn: Turn) -> Answer:
    return answer_of_response(chat(model, turn, **RESPONSES).invoke(convert_to_messages(turn.tagged)))


def stream_responses(model: str, turn: Turn) -> Answer:
    whole = None
    for chunk in chat(model, turn, **RESPONSES).stream(convert_to_messages(turn.tagged)):
        whole = whole + chunk if whole else chunk
    return answer_of_response(whole)


def a_response_and_its_result(model: str) -> None:
    turn = TURNS["think_then_call"]
    messages = convert_to_messages(turn.tagged)
    called = chat(model, turn, **RESPONSES).invoke(messages)
    (call,) = called.tool_calls
    assert (call["name"], call["args"]) == turn.calls[0], called
    assert any(block["type"] == "reasoning" and block["encrypted_content"] for block in called.content), called
    result = ToolMessage(WEATHER, tool_call_id=call["id"])
    after = chat(model, turn, **RESPONSES).invoke([*messages, called, result])
    assert after.text == TURNS["follow_up"].content, after


def a_response_goes_on_from_the_one_before(model: str) -> None:
    """The same messages, of which only the last one is sent."""
    turn = TURNS["single"]
    messages = convert_to_messages(turn.tagged)
    runnable = chat(model, turn, use_previous_response_id=True)
    called = runnable.invoke(messages)
    (call,) = called.tool_calls
    after = runnable.invoke([*messages, called, ToolMessage(WEATHER, tool_call_id=call["id"])])
    assert after.text == TURNS["follow_up"].content, after
    with OpenAI(base_url=BASE_URL, api_key="none") as client:
        stored = client.responses.retrieve(after.response_metadata["id"])
    assert stored.previous_response_id == called.response_metadata["id"]


def a_hosted_server_is_called(model: str) -> None:
    toys = {"type": "mcp", "server_label": "toys", "require_approval": "never", "allowed_tools": ["echo"]}
    hosted(model, toys, "Echo the word banana.", "mcp_call")


def the_web_is_searched(_: str) -> None:
    """By the one of the two that comes to an end with it."""
    hosted("hermes", {"type": "web_search"}, "What is the capital of Norway?", "web_search_call")


def hosted(model: str, tool: dict[str, Any], question: str, type: str) -> None:
    """Streamed and whole, with a call that is forced; what came goes back with the next question."""
    options = {**RESPONSES, "store": True, "use_previous_response_id": True}
    runnable = chat(model, TURNS["think"], **options).bind(tools=[tool], tool_choice="required")
    whole = None
    for chunk in runnable.stream(question):
        whole = whole + chunk if whole else chunk
    for message in (whole, runnable.invoke(question)):
        assert message.text, message
        made = [block for block in message.content if block["type"] == type]
        assert made and all(block["status"] == "completed" for block in made), message
    more = chat(model, TURNS["think"], **options).invoke(
        [*convert_to_messages([("user", question)]), whole, ("user", "Thanks.")]
    )
    assert more.text, more


if __name__ == "__main__":
    run(
        f"langchain-openai {version('langchain-openai')}",
        {
            invoke: WHOLE,
            stream: STREAMED,
            astream: ("think",),
            invoke_responses: ("think",),
            stream_responses: ("think_then_calls",),
        },
        [
            a_call_and_its_result,
            a_response_and_its_result,
            a_response_goes_on_from_the_one_before,
            a_hosted_server_is_called,
            the_web_is_searched,
        ],
    )
