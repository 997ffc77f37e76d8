"""Test tool calls inside reasoning that the backend passes in a field of its own."""

import json

import pytest
from msgspec.structs import replace

from gateway.events import Finish, ReasoningDelta, RefusalDelta, TextDelta, ToolArgsDelta, ToolCallEnd, ToolCallStart
from gateway.formats.parser import ParseContext
from gateway.pipeline.normalizer import Normalizer
from support.app import gateway
from support.format_events import written
from support.pipeline import TOOLS, grammatical, merge, parser_settings
from support.upstream import chunk, completion_body, stream, whole

CALL = ["call", "f", '{"a": "x"}']
HERMES = '<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>'
XML = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
    '{"a": "x"}<|tool_call_end|><|tool_calls_section_end|>'
)
LLAMA = '{"name": "f", "parameters": {"a": "x"}}'
STOP = Finish(0, "stop")
UNFINISHED = '<tool_call>{"name": "f", "arguments": {"a": "'

CASES = [
    ("alone is a call", "hermes_json", [ReasoningDelta(0, f"hm {HERMES}"), STOP], [["reasoning", "hm "], CALL]),
    ("alone is a call, in XML", "qwen_xml", [ReasoningDelta(0, f"hm\n{XML}"), STOP], [["reasoning", "hm\n"], CALL]),
    ("alone is a call, in sections", "kimi_k2", [ReasoningDelta(0, f"hm{KIMI}"), STOP], [["reasoning", "hm"], CALL]),
    ("alone is a call of an unknown family", "auto", [ReasoningDelta(0, f"hm {XML}"), STOP], [["reasoning", "hm "], CALL]),
    ("alone is a call and shown, where the family may quote", "llama3_json", [ReasoningDelta(0, f"hm {LLAMA}"), STOP],
     [["reasoning", f"hm {LLAMA}"], CALL]),
    ("of a family whose thoughts hold none is reasoning", "mistral", [ReasoningDelta(0, "[TOOL_CALLS]f[ARGS]{}"), STOP],
     [["reasoning", "[TOOL_CALLS]f[ARGS]{}"]]),
    ("of an unknown tool is reasoning", "hermes_json", [ReasoningDelta(0, HERMES.replace('"f"', '"h"')), STOP],
     [["reasoning", HERMES.replace('"f"', '"h"')]]),
    ("with reasoning after it", "hermes_json", [ReasoningDelta(0, f"{HERMES} so </think>"), STOP], [CALL, ["reasoning", "so </think>"]]),
    ("with text after it is a quotation", "hermes_json", [ReasoningDelta(0, f"hm {HERMES}"), TextDelta(0, "\n\nHi."), STOP],
     [["reasoning", f"hm {HERMES}"], ["text", "\n\nHi."]]),
    ("with white space after it", "hermes_json", [ReasoningDelta(0, HERMES), TextDelta(0, "\n"), STOP], [CALL]),
    ("unfinished, with white space after it", "hermes_json", [ReasoningDelta(0, UNFINISHED + 'x"}}'), TextDelta(0, "\n"), STOP], [CALL]),
    ("with white space and a refusal after it", "hermes_json", [ReasoningDelta(0, "hm"), TextDelta(0, "\n"), RefusalDelta(0, "No."), STOP],
     [["reasoning", "hm"], ["text", "\n"]]),
    ("none, with white space and a call in the text after it", "hermes_json", [ReasoningDelta(0, "hm"), TextDelta(0, f"\n\n{HERMES}"), STOP],
     [["reasoning", "hm"], CALL]),
    ("none, with white space, text and a call after it", "auto", [ReasoningDelta(0, "hm"), TextDelta(0, f"\n\nHi\n{HERMES}"), STOP],
     [["reasoning", "hm"], ["text", "\n\nHi"], CALL]),
    ("none, with white space after the reasoning", "hermes_json", [ReasoningDelta(0, "hm"), TextDelta(0, "\n"), STOP], [["reasoning", "hm"], ["text", "\n"]]),
    ("with a call after it is a quotation", "hermes_json", [ReasoningDelta(0, HERMES), ToolCallStart(0, 0, "c", "g"), ToolArgsDelta(0, 0, "{}"), STOP],
     [["reasoning", HERMES], ["call", "g", "{}"]]),
    ("with a call in the text after it is a quotation", "hermes_json", [ReasoningDelta(0, HERMES), TextDelta(0, HERMES), STOP],
     [["reasoning", HERMES], CALL]),
    ("with a refusal after it is a quotation", "hermes_json", [ReasoningDelta(0, HERMES), RefusalDelta(0, "No."), STOP], [["reasoning", HERMES]]),
    ("after text is reasoning", "hermes_json", [TextDelta(0, "Hi."), ReasoningDelta(0, HERMES), STOP], [["text", "Hi."], ["reasoning", HERMES]]),
    ("unfinished, with text after it", "hermes_json", [ReasoningDelta(0, UNFINISHED), TextDelta(0, "Hi."), STOP], [["reasoning", UNFINISHED], ["text", "Hi."]]),
    ("a tag alone, with text after it", "hermes_json", [ReasoningDelta(0, "a <tool_call>"), TextDelta(0, "Hi."), STOP],
     [["reasoning", "a <tool_call>"], ["text", "Hi."]]),
    ("cut by the limit", "hermes_json", [ReasoningDelta(0, UNFINISHED), Finish(0, "length")], [["call", "f", '{"a": "', "incomplete"]]),
    ("tags of thoughts are reasoning", "hermes_json", [ReasoningDelta(0, "\n<think> </think> so"), TextDelta(0, "Hi."), STOP],
     [["reasoning", "\n<think> </think> so"], ["text", "Hi."]]),
]  # fmt: skip


def pieces(events, size):
    for event in events:
        if type(event) in (TextDelta, ReasoningDelta):
            for begin in range(0, len(event.text), size):
                yield replace(event, text=event.text[begin : begin + size])
        else:
            yield event


@pytest.mark.parametrize(("format", "events", "wanted"), [pytest.param(*row, id=what) for what, *row in CASES])
def test_tool_call_in_the_reasoning_of_a_backend(format, events, wanted):
    for size in (*range(1, 60), 1000):
        normaliser = Normalizer(replace(parser_settings(format), context=ParseContext(TOOLS)))
        fed = [output for event in pieces(events, size) for output in normaliser.feed(event)]
        output = merge([*fed, *normaliser.close()])
        assert written(output) == wanted and grammatical(output), size


@pytest.mark.parametrize(
    "context", [ParseContext({}), ParseContext(TOOLS, in_thought="text"), ParseContext(TOOLS, prefill="So")]
)
def test_tool_call_in_the_reasoning_of_a_backend_stays_reasoning(context):
    normaliser = Normalizer(replace(parser_settings("hermes_json"), context=context))
    assert written([*normaliser.feed(ReasoningDelta(0, HERMES)), *normaliser.feed(STOP)]) == [["reasoning", HERMES]]


def test_tool_call_in_reasoning_that_is_longer_than_the_limit_streams():
    long = HERMES.replace('"x"', '"' + "x" * 300 + '"')
    normaliser = Normalizer(replace(parser_settings("hermes_json", limit=200), context=ParseContext(TOOLS)))
    output = [output for event in pieces([ReasoningDelta(0, long)], 1) for output in normaliser.feed(event)]
    assert any(isinstance(event, ToolCallEnd) for event in output)
    assert written([*normaliser.feed(TextDelta(0, "Hi.")), *normaliser.feed(STOP)]) == [["text", "Hi."]]


TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("model", "text"), [("qwen3-8b", HERMES), ("qwen3-coder-30b", XML), ("kimi-k2-thinking", KIMI), ("m", XML)]
)
async def test_tool_call_in_reasoning_is_a_tool_call_in_both_apis(model, text, streamed, field):
    script = (
        stream(*(chunk(**{field: piece}) for piece in text), chunk(finish="stop"))
        if streamed
        else whole(completion_body("", **{field: text}))
    )
    async with gateway(script, script, backend={"kind": "vllm"}, model={"upstream_model": model}) as site:
        answer = (await site.chat(stream=False, tools=[TOOL])).json()["choices"][0]
        (call,) = answer["message"]["tool_calls"]
        assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("f", {"a": "x"})
        assert answer["finish_reason"] == "tool_calls" and "tool_call" not in str(
            answer["message"].get("reasoning_content")
        )
        response = (await site.respond(stream=False, tools=[{"type": "function", **TOOL["function"]}])).json()
        (item,) = (item for item in response["output"] if item["type"] == "function_call")
        assert (item["name"], json.loads(item["arguments"])) == ("f", {"a": "x"})
