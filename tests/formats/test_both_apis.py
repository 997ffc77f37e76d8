"""Test what the text of a model becomes in both APIs, streamed and whole, by the model's usual name."""

import json

import pytest

from support.app import gateway
from support.upstream import chunk, completion_body, stream, whole

TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}},
}
CALL = '<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>'
XML = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"
TOOL_CODE = '```tool_code\nprint(default_api.f(a="x"))\n```\n'
X = [("f", {"a": "x"})]

CASES = [
    ("text on both sides of a call", "qwen3-8b", f"Rain.{CALL}Take a coat.", "Rain.\nTake a coat.", X),
    ("text on both sides of a call in XML", "qwen3-coder-30b", f"Rain. {XML} Go.", "Rain.\nGo.", X),
    ("text before a call alone", "mistral-small-3.2", 'Rain.[TOOL_CALLS]f[ARGS]{"a": "x"}', "Rain.", X),
    ("text on both sides of a call of an unknown family", "m", f"Rain.{XML}Go.", "Rain.\nGo.", X),
    ("a block of tool_code", "gemini-2.5-flash", f"Now.\n{TOOL_CODE}", "Now.", X),
    ("a block of tool_code", "gemma-3-27b-it", TOOL_CODE, "", X),
    ("a call without special tokens", "kimi-k2-instruct", 'Now.\nfunctions.f:0{"a": "x"}', "Now.", X),
    ("tags without their blanks", "minicpm5-1b", '<functionname="f"><paramname="a">x</param></function>', "", X),
    ("a parameter twice", "qwen3-coder-30b", XML.replace("<par", "<parameter=a>y</parameter><par"), "", X),
    (
        "a parameter twice",
        "minimax-m2",
        '<invoke name="f"><parameter name="a">y</parameter><parameter name="a">x</parameter></invoke>',
        "",
        X,
    ),
    (
        "a parameter twice",
        "glm-4.7",
        "<tool_call>f<arg_key>a</arg_key><arg_value>y</arg_value><arg_key>a</arg_key><arg_value>x</arg_value></tool_call>",
        "",
        X,
    ),
]


def script_of(text, *, streamed):
    """Return the script of a backend that sends the text, character by character or as a whole."""
    return stream(*(chunk(piece) for piece in text), chunk(finish="stop")) if streamed else whole(completion_body(text))


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("model", "text", "content", "calls"), [pytest.param(*row, id=f"{what}, {row[0]}") for what, *row in CASES]
)
async def test_text_means_the_same_in_both_apis(model, text, content, calls, streamed):
    script = script_of(text, streamed=streamed)
    async with gateway(script, backend={"kind": "vllm"}, model={"upstream_model": model}) as site:
        message = (await site.chat(stream=False, tools=[TOOL])).json()["choices"][0]["message"]
        assert (message["content"] or "") == content
        found = [call["function"] for call in message.get("tool_calls", ())]
        assert [(call["name"], json.loads(call["arguments"])) for call in found] == calls
        response = (await site.respond(stream=False, tools=[{"type": "function", **TOOL["function"]}])).json()
        items = response["output"]
        texts = [part["text"] for item in items if item["type"] == "message" for part in item["content"]]
        assert "".join(texts) == content
        found = [item for item in items if item["type"] == "function_call"]
        assert [(item["name"], json.loads(item["arguments"])) for item in found] == calls
