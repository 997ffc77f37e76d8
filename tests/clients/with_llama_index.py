"""LlamaIndex with both its models, which are OpenAI's with another address: chats, whole and streamed, and an agent.

It tells thoughts, and sends none back: not over chat completions, and over responses only where they are stored.
"""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Literal

from checks import BASE_URL, EXTRA, STREAMED, TURNS, WEATHER, WHOLE, Answer, Call, Message, Turn, run
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai_like import OpenAILike

OPTIONS: dict[str, Any] = {
    "api_base": BASE_URL, "api_key": "none", "temperature": 0, "max_retries": 0, "context_window": 2048
}  # fmt: skip


def chat(model: str) -> OpenAILike:
    return OpenAILike(
        model=model,
        is_chat_model=True,
        is_function_calling_model=True,
        max_tokens=120,
        additional_kwargs={"extra_body": EXTRA, "stream_options": {"include_usage": True}},
        **OPTIONS,
    )


def responses(model: str, **more: Any) -> OpenAIResponses:
    return OpenAIResponses(
        model=model, max_output_tokens=120, additional_kwargs={"extra_body": EXTRA}, **OPTIONS, **more
    )


def history(messages: list[Message]) -> list[ChatMessage]:
    return [
        ChatMessage(
            role=message["role"],
            blocks=[*blocks(message)],
            additional_kwargs={key: message[key] for key in message if key == "tool_call_id"},
        )
        for message in messages
    ]


def blocks(message: Message) -> Iterator[TextBlock | ToolCallBlock]:
    if message["content"]:
        yield TextBlock(text=message["content"])
    for call in message.get("tool_calls", ()):
        function = call["function"]
        yield ToolCallBlock(tool_call_id=call["id"], tool_name=function["name"], tool_kwargs=function["arguments"])


def thought(response: ChatResponse) -> str:
    return "".join(block.content or "" for block in response.message.blocks if isinstance(block, ThinkingBlock))


def calls(llm: FunctionCallingLLM, response: ChatResponse) -> list[Call]:
    selections = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
    assert len({each.tool_id for each in selections}) == len(selections)
    return [(each.tool_name, each.tool_kwargs) for each in selections]


def answer_of(response: ChatResponse) -> Answer:
    counts = response.additional_kwargs
    (choice,) = response.raw.choices
    return Answer(
        response.message.content,
        calls(chat(""), response),
        choice.finish_reason,
        (counts["prompt_tokens"], counts["completion_tokens"]),
        thought(response),
    )


def answer_of_response(response: ChatResponse) -> Answer:
    """The same of a response; it has no finish reason, this is what its blocks make of it."""
    made = calls(responses(""), response)
    usage = response.additional_kwargs["usage"]
    finish = "tool_calls" if made else "stop"
    return Answer(response.message.content, made, finish, (usage.input_tokens, usage.output_tokens), thought(response))


def offered(turn: Turn, called: list[Call]) -> list[FunctionTool]:
    def get_weather(city: str, unit: Literal["celsius", "fahrenheit"]) -> str:
        called.append(("get_weather", {"city": city, "unit": unit}))
        return WEATHER

    def get_time(timezone: str) -> str:
        called.append(("get_time", {"timezone": timezone}))
        return ""

    functions = {"get_weather": get_weather, "get_time": get_time}
    tools = [tool["function"] for tool in turn.tools]
    return [FunctionTool.from_defaults(functions[each["name"]], description=each["description"]) for each in tools]


def arguments(turn: Turn, messages: list[Message]) -> dict[str, Any]:
    return {"tools": offered(turn, []), "chat_history": history(messages), "allow_parallel_tool_calls": True}


def chat_with_tools(model: str, turn: Turn) -> Answer:
    return answer_of(chat(model).chat_with_tools(**arguments(turn, turn.tagged)))


def stream_chat_with_tools(model: str, turn: Turn) -> Answer:
    """Each chunk has all that came before it, and the last one the usage only besides."""
    *chunks, finish, usage = chat(model).stream_chat_with_tools(**arguments(turn, turn.tagged))
    assert len(chunks) > 3 and "".join(chunk.delta for chunk in chunks) == (finish.message.content or "")
    return answer_of(usage.model_copy(update={"raw": finish.raw}))


async def achat(model: str, turn: Turn) -> Answer:
    return answer_of(await chat(model).achat(history(turn.tagged)))


def chat_by_responses(model: str, turn: Turn) -> Answer:
    return answer_of_response(responses(model).chat_with_tools(**arguments(turn, turn.tagged)))


def stream_chat_by_responses(model: str, turn: Turn) -> Answer:
    *chunks, last = responses(model).stream_chat_with_tools(**arguments(turn, turn.tagged))
    assert "".join(chunk.delta for chunk in chunks) == (last.message.content or "")
    return answer_of_response(last)


async def an_agent_calls_a_tool(model: str) -> None:
    await loop(chat(model))


async def an_agent_calls_a_tool_by_responses(model: str) -> None:
    await loop(responses(model))


async def loop(llm: FunctionCallingLLM) -> None:
    turn, called = TURNS["single"], []
    *before, question = history(turn.tagged)
    agent = FunctionAgent(llm=llm, tools=offered(turn, called))
    result = await agent.run(question, chat_history=before)
    assert called == turn.calls and result.response.content == TURNS["follow_up"].content, (called, result)


def a_response_goes_on_from_the_one_before(model: str) -> None:
    """Only the tool's result is sent."""
    turn = TURNS["single"]
    llm = responses(model, track_previous_responses=True)
    called = llm.chat_with_tools(**arguments(turn, turn.tagged))
    (call,) = llm.get_tool_calls_from_response(called)
    result = ChatMessage(role="tool", content=WEATHER, additional_kwargs={"tool_call_id": call.tool_id})
    after = llm.chat_with_tools(tools=offered(turn, []), chat_history=[result])
    assert after.message.content == TURNS["follow_up"].content, after
    assert after.raw.previous_response_id == called.raw.id


if __name__ == "__main__":
    run(
        f"LlamaIndex (openai-like {version('llama-index-llms-openai-like')}, openai {version('llama-index-llms-openai')})",
        {
            chat_with_tools: WHOLE,
            stream_chat_with_tools: STREAMED,
            achat: ("think",),
            chat_by_responses: ("think",),
            stream_chat_by_responses: ("think", "parallel"),  # its schemas differ there, so its counts do
        },
        [an_agent_calls_a_tool, an_agent_calls_a_tool_by_responses, a_response_goes_on_from_the_one_before],
    )
