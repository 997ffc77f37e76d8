"""Test texts that parsers of vLLM or SGLang read wrongly, or differently when streamed."""

import pytest

from gateway.events import ToolCallStart
from support.format_events import text_events, written
from support.pipeline import singly

DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
MINIMAX = '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">x</parameter>\n</invoke>\n</minimax:tool_call>'
GLM = "<tool_call>f<arg_key>a</arg_key><arg_value>{}</arg_value></tool_call>"
QWEN = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"
HERMES = '<tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</tool_call>'
CALL = ["call", "f", '{"a": "x"}']

# What the engine does wrong, the format, the text, and its one meaning here.
VLLM = [
    ("loses the end of the arguments when a delta holds several tokens", "deepseek_v3",
     DEEPSEEK.format('function<｜tool▁sep｜>f\n```json\n{"a": "Tokyo", "n": 12}\n```'), [["call", "f", '{"a": "Tokyo", "n": 12}']]),
    ("loses the end of the arguments when a delta holds several tokens", "deepseek_v31",
     DEEPSEEK.format('f<｜tool▁sep｜>{"a": "Tokyo", "n": 12}'), [["call", "f", '{"a": "Tokyo", "n": 12}']]),
    ("does not stream", "phi4_functools", 'functools[{"name": "f", "arguments": {"a": "x"}}]', [CALL]),
    ("finds a call after text only when it does not stream", "llama3_json",
     'Let me see. {"name": "f", "parameters": {"a": "x"}}', [["text", "Let me see."], CALL]),
    ("takes text after the JSON into the arguments", "mistral",
     '[TOOL_CALLS]f[ARGS]{"a": "x"} There it is.', [CALL, ["text", "There it is."]]),
    ("drops text after a call when it does not stream", "hermes_json", f"{HERMES}\nThere it is.", [CALL, ["text", "There it is."]]),
    ("drops text after a call when it does not stream", "qwen_xml", f"{QWEN}\nThere it is.", [CALL, ["text", "There it is."]]),
    ("drops text after a call when it does not stream", "glm47_xml", f"{GLM.format('x')}There it is.", [CALL, ["text", "There it is."]]),
    ("drops text after a call when it does not stream", "minimax_m2", f"{MINIMAX}\nThere it is.", [CALL, ["text", "There it is."]]),
    ("drops text after a call when it does not stream", "granite_json",
     '<|tool_call|>[{"name": "f", "arguments": {"a": "x"}}] There it is.', [CALL, ["text", "There it is."]]),
    ("loses the last characters before a call", "functiongemma",
     "Wait, wait...!<start_function_call>call:f{a:<escape>x<escape>}<end_function_call>", [["text", "Wait, wait...!"], CALL]),
    ("makes one call of two", "functiongemma",
     "<start_function_call>call:f{a:<escape>x<escape>}<end_function_call><start_function_call>call:f{n:1}<end_function_call>",
     [CALL, ["call", "f", '{"n": 1}']]),
    ("shows a tag as text", "hunyuan_a13b",
     '<think>\nhm\n</think>\n<answer>\nSo.\n</answer>\n<tool_calls>\n[{"name": "f", "arguments": {"a": "x"}}]\n</tool_calls>',
     [["reasoning", "hm\n"], ["text", "So."], CALL]),
    ("shows the tag of a thought when it is not alone in its delta", "think", "<think>hm</think>So.", [["reasoning", "hm"], ["text", "So."]]),
    ("depends on the cut", "jamba", '<tool_calls>[\n  {"name": "f", "arguments": {"a": "x"}},\n  {"name": "g", "arguments": {}}\n]</tool_calls>',
     [CALL, ["call", "g", "{}"]]),
    ("depends on the cut", "olmo3_pythonic", '<function_calls>\nf(a="x")\ng(n=1, o=null)\n</function_calls>',
     [CALL, ["call", "g", '{"n": 1, "o": null}']]),
]  # fmt: skip

SGLANG = [
    ("gives a name without arguments when a delta holds the call", "hermes_json", HERMES, [CALL]),
    ("leaks the end of a value that ends in <", "glm47_xml", GLM.format("if x <"), [["call", "f", '{"a": "if x <"}']]),
    ("writes Python's words into the JSON", "glm47_xml",
     "<tool_call>f<arg_key>o</arg_key><arg_value>True</arg_value></tool_call><tool_call>f<arg_key>o</arg_key><arg_value>None</arg_value></tool_call>",
     [["call", "f", '{"o": true}'], ["call", "f", '{"o": null}']]),
    ("makes one call of two", "gemma4", '<|tool_call>call:f{a:<|"|>x<|"|>}<tool_call|><|tool_call>call:f{n:1}<tool_call|>',
     [CALL, ["call", "f", '{"n": 1}']]),
    ("leaks the section's end into arguments whose own end is missing", "kimi_k2", KIMI + '{"a": "x"}<|tool_calls_section_end|>', [CALL]),
    ("drops a bracket of text", "mistral", "See a[0] and [1].", [["text", "See a[0] and [1]."]]),
    ("drops a bracket of text", "mistral", '[THINK]a[0][/THINK]b[1] [TOOL_CALLS]f[ARGS]{"a": "x"}', [["reasoning", "a[0]"], ["text", "b[1]"], CALL]),
    ("keeps the tag of a thought in it", "cohere4",
     "<|START_THINKING|>hm<|END_THINKING|><|START_TEXT|>So.<|END_TEXT|>", [["reasoning", "hm"], ["text", "So."]]),
    ("gives a call without its end only when it streams", "hermes_json", '<tool_call>\n{"name": "f", "arguments": {"a": "x"}', [CALL]),
    ("gives a call without its end only when it streams", "qwen_xml", "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>", [CALL]),
    ("gives a call without its end only when it streams", "mistral", '[TOOL_CALLS]f[ARGS]{"a": "x"', [CALL]),
    ("gives a call without its end only when it streams", "deepseek_v31",
     '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "x"', [CALL]),
    ("gives a call without its end only when it streams", "minimax_m2", '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">x</parameter>', [CALL]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("format", "text", "events"),
    [
        pytest.param(*row, id=f"{engine}: {row[0]} {what}")
        for engine, rows in (("vLLM", VLLM), ("SGLang", SGLANG))
        for what, *row in rows
    ],
)
def test_format_reads_texts_that_engines_misread_the_same_under_every_cut(format, text, events):
    assert written(text_events([text], format)) == events
    for size in (1, 2, 3, 7):
        assert written(text_events([text[i : i + size] for i in range(0, len(text), size)], format)) == events
    for place in range(1, len(text)):
        assert written(text_events([text[:place], text[place:]], format)) == events


def test_tool_call_id_of_mistral_is_kept():
    text = '[TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS]{"a": "x"}'
    for pieces in ([text], singly(text)):
        events = text_events(pieces, "mistral")
        assert [event.id for event in events if isinstance(event, ToolCallStart)] == ["a1B2c3D4e"]
        assert written(events) == [CALL]
