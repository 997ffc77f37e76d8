"""Test tools that are described in the prompt (`tools: prompt`): the prompt, and the tool calls read from the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.request import Request, Tool
from gateway.transforms import prompted_tools
from gateway.warnings import Warnings
from support.app import gateway
from support.responses_events import checked
from support.upstream import HELLO, chunk, completion_body, stream, whole

WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CLOCK = {"name": "clock"}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": CLOCK}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city":"Oslo"}}\n</tool_call>'
USER = {"role": "user", "content": "Is it cold?"}
OFFER = """# Tools

You may call functions. Their signatures, one a line:
<tools>
{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
{"type": "function", "function": {"name": "clock"}}
</tools>

Write each call as a JSON object with its name and arguments, between tags:
<tool_call>
{"name": <function-name>, "arguments": <arguments-object>}
</tool_call>"""


def call(id, arguments='{"city":"Oslo"}', name="weather"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def output(id, content="rain"):
    return {"role": "tool", "tool_call_id": id, "content": content}


def messages_and_warnings(*messages, **fields):
    """Return the translated messages and the warnings."""
    ledger = Warnings()
    request = prompted_tools.tools_to_prompt(Request(model="m", messages=messages, **fields), ledger)
    return [*request.messages], ledger.entries()


def test_prompted_tools_change_nothing_without_tools():
    assert messages_and_warnings(USER) == ([USER], [])


@pytest.mark.parametrize("leading", [(), ({"role": "system", "content": "Be brief."},)])
def test_prompted_tools_are_listed_after_the_system_message(leading):
    tools = (Tool("weather", WEATHER), Tool("clock", CLOCK))
    assert messages_and_warnings(*leading, USER, tools=tools) == (
        [*leading, {"role": "system", "content": OFFER}, USER],
        ["emulated:tools"],
    )


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"content": None}, CALL),
        ({"content": ""}, CALL),
        ({"content": "I look."}, f"I look.\n{CALL}"),
        ({"content": [{"type": "text", "text": "I look."}]}, f"I look.\n{CALL}"),
        ({}, CALL),
    ],
)
def test_prompted_tool_calls_of_the_past_follow_the_content(message, content):
    past = {"role": "assistant", "reasoning_content": "Hm.", "tool_calls": [call("a")], **message}
    then = {"role": "assistant", "reasoning_content": "Hm.", "content": content}
    assert messages_and_warnings(USER, past, output("a")) == (
        [USER, then, {"role": "user", "content": "Result: rain"}],
        ["emulated:tools"],
    )


@pytest.mark.parametrize(
    ("arguments", "shown"), [("", "{}"), (" ", "{}"), ("{broken", "{broken"), ('{"a":1}', '{"a":1}')]
)
def test_prompted_tool_call_arguments_of_the_past_are_unchanged(arguments, shown):
    ((message,), _) = messages_and_warnings(
        {"role": "assistant", "content": None, "tool_calls": [call("a", arguments, 'say "é"')]}
    )
    assert message["content"] == f'<tool_call>\n{{"name": "say \\"é\\"", "arguments": {shown}}}\n</tool_call>'


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("", "Result: "),
        ([{"type": "text", "text": "rain"}, {"type": "text", "text": "wind"}], "Result: rain\nwind"),
        ([], "Result:"),
        ([IMAGE], [{"type": "text", "text": "Result:"}, IMAGE]),
        ([{"type": "text", "text": "See:"}, IMAGE], [{"type": "text", "text": "Result: See:"}, IMAGE]),
    ],
)
def test_prompted_tool_output_is_a_user_message(content, shown):
    assert messages_and_warnings(output("a", content))[0] == [{"role": "user", "content": shown}]


def test_prompted_tool_outputs_are_in_the_order_of_their_calls():
    """Outputs of two rounds stay in their own round."""
    calls = [{"role": "assistant", "content": None, "tool_calls": [call(a), call(b)]} for a, b in ("ab", "cd")]
    messages = messages_and_warnings(
        calls[0], output("b", "2"), output("a", "1"), calls[1], output("d", "4"), output("c", "3")
    )[0]
    assert [message["content"] for message in messages[1::2]] == ["Result: 1\nResult: 2", "Result: 3\nResult: 4"]


MARKUP = stream(*map(chunk, (CALL[:9], CALL[9:30], CALL[30:])), chunk(finish="stop"))
PROMPTED = {"backend": {"kind": "llamacpp"}, "model": {"tools": "prompt"}}


@pytest.mark.parametrize("kind", ["openai", "vllm", "llamacpp", "transformers"])
async def test_prompted_tool_call_in_the_text_is_a_tool_call_for_every_kind(kind):
    async with gateway(MARKUP, backend={"kind": kind}, model={"tools": "prompt"}) as site:
        answer = await site.chat(stream=True, tools=TOOLS)
        assert site.upstream_body["messages"][0] == {"role": "system", "content": OFFER}
        assert "tools" not in site.upstream_body and "tool_choice" not in site.upstream_body
    assert answer.headers["x-gateway-warnings"] == "emulated:tools"
    assert '"name":"weather"' in answer.text and "tool_call>" not in answer.text


async def test_prompted_tool_call_is_read_from_a_whole_response():
    async with gateway(whole(completion_body(f"I look.\n{CALL}")), **PROMPTED) as site:
        (choice,) = (await site.chat(tools=TOOLS)).json()["choices"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "I look."
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city":"Oslo"}'}


async def test_prompted_tool_call_is_read_in_responses():
    async with gateway(MARKUP, **PROMPTED) as site:
        tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
        response = checked((await site.respond(stream=True, tools=tools)).content)
    assert [(item["type"], item["name"]) for item in response["output"]] == [("function_call", "weather")]


async def test_prompted_tool_call_that_is_forced_has_a_schema():
    async with gateway(MARKUP, **PROMPTED) as site:
        answer = await site.chat(stream=True, tools=TOOLS, tool_choice="required")
        (system, _), form = site.upstream_body["messages"], site.upstream_body["response_format"]
    assert system["content"].startswith(OFFER) and "with a call of one of the tools" in system["content"]
    names = [one["properties"]["name"] for one in form["json_schema"]["schema"]["anyOf"]]
    assert names == [{"const": "weather"}, {"const": "clock"}]
    assert answer.headers["x-gateway-warnings"] == "emulated:tools, emulated:tool_choice"


async def test_prompted_tools_are_not_listed_with_tool_choice_none():
    async with gateway(HELLO, **PROMPTED) as site:
        await site.chat(stream=True, tools=TOOLS, tool_choice="none")
        assert [message["role"] for message in site.upstream_body["messages"]] == ["user"]


@given(st.lists(st.sampled_from(["user", "assistant", "calls", "tool"]), max_size=9))
def test_prompted_tools_lose_no_text(roles):
    messages = []
    for i, role in enumerate(roles):
        if role == "calls":
            messages.append(
                {"role": "assistant", "content": f"<{i}>", "tool_calls": [call(f"c{i}", f'{{"n":"<{i}!>"}}')]}
            )
        elif role == "tool":
            messages.append(output(f"c{i - 1}", f"<{i}>"))
        else:
            messages.append({"role": role, "content": f"<{i}>"})
    text = "".join(message["content"] for message in messages_and_warnings(*messages)[0])
    assert all(f"<{i}>" in text for i in range(len(roles)))
    assert all(f"<{i}!>" in text for i, role in enumerate(roles) if role == "calls")
