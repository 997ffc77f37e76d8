"""Test how a request changes the reading of a response: forced tool calls, prefills, and policies on reasoning."""

import pytest

from gateway.formats.parser import ParseContext
from gateway.warnings import Warnings
from support.format_events import text_events, written
from support.pipeline import TOOLS, singly

CALL = ["call", "f", '{"a": "x"}']
TAGGED = '<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>'

FORCED = [
    ("any tool", "hermes_json", "", '{"name": "f", "arguments": {"a": "x"}}', [CALL]),
    ("a list of calls", "hermes_json", "", '[{"name": "f", "parameters": {"a": "x"}}, {"name": "g", "parameters": {}}]',
     [CALL, ["call", "g", "{}"]]),
    ("the arguments of the one tool alone", "hermes_json", "f", '{"a": "x"}', [CALL]),
    ("the one tool by its name", "hermes_json", "f", '{"name": "f", "arguments": {"a": "x"}}', [CALL]),
    ("white space before it", "hermes_json", "f", '\n {"a": "x"}', [CALL]),
    ("text after it", "hermes_json", "f", '{"a": "x"}\nSo.', [CALL, ["text", "So."]]),
    ("arguments with a name among them", "hermes_json", "f", '{"name": "Bob", "a": 1}', [["call", "f", '{"name": "Bob", "a": 1}']]),
    ("arguments in which a string has brackets", "hermes_json", "f", '{"a": "}]"}So.', [["call", "f", '{"a": "}]"}'], ["text", "So."]]),
    ("arguments in which the API's words are others'", "hermes_json", "f", '{"arguments": {"a": 1}, "a": "x"}So.',
     [["call", "f", '{"arguments": {"a": 1}, "a": "x"}'], ["text", "So."]]),
    ("arguments with an object among them", "hermes_json", "f", '{"function": {"a": 1}}', [["call", "f", '{"function": {"a": 1}}']]),
    ("after a thought", "hermes_json", "f", '<think>hm</think>\n{"a": "x"}', [["reasoning", "hm"], CALL]),
    ("in the family's own tags", "hermes_json", "f", TAGGED, [CALL]),
    ("JSON after its call is text", "hermes_json", "f", f'{TAGGED}{{"a": "x"}}', [CALL, ["text", '{"a": "x"}']]),
    ("text before JSON", "hermes_json", "f", 'So: {"a": "x"}', [["text", 'So: {"a": "x"}']]),
    ("white space before text", "hermes_json", "f", " So.", [["text", " So."]]),
    ("JSON that names no tool", "hermes_json", "", '{"x": 1}', [["text", '{"x": 1}']]),
    ("the one tool in a list inside an object", "hermes_json", "f", '{"tool_calls": [{"name": "f", "arguments": {"a": "x"}}]}', [CALL]),
    ("a tool that may have such a list as an argument", "hermes_json", "g", '{"tool_calls": [{"name": "f"}]}', [["call", "g", '{"tool_calls": [{"name": "f"}]}']]),
    ("a block of JSON", "hermes_json", "", '```json\n{"name": "f", "arguments": {"a": "x"}}\n```\nSo.', [CALL, ["text", "So."]]),
    ("a block with the arguments alone", "hermes_json", "f", '<think>hm</think>\n```\n{"a": "x"}\n```', [["reasoning", "hm"], CALL]),
    ("a block with a list of calls", "auto", "f", '\n```json\n[{"name": "f", "arguments": {"a": "x"}}]\n```', [CALL]),
    ("a block of JSON that names no tool", "hermes_json", "", '```json\n{"a": "x"}\n```', [["text", '```json\n{"a": "x"}\n```']]),
    ("a block of code", "hermes_json", "f", "```python\nf(1)\n```", [["text", "```python\nf(1)\n```"]]),
    ("a family without tags in its text", "harmony", "f", '{"a": "x"}', [CALL]),
    ("a family whose text has headers", "harmony", "f", "<|channel|>final<|message|>So.", [["text", "So."]]),
]  # fmt: skip

IN_THOUGHT = [
    ("ends it", "end", f"<think>hm\n{TAGGED} so", [["reasoning", "hm\n"], CALL, ["text", "so"]]),
    ("is part of it", "text", f"<think>hm {TAGGED}</think>So.", [["reasoning", f"hm {TAGGED}"], ["text", "So."]]),
    ("is part of it where an answer follows", "last", f"<think>hm {TAGGED}</think>So.", [["reasoning", f"hm {TAGGED}"], ["text", "So."]]),
    ("is a call where nothing follows", "last", f"<think>hm {TAGGED}</think>", [["reasoning", f"hm {TAGGED}"], CALL]),
    ("is a call where the thought has no end", "last", f"<think>hm {TAGGED} so", [["reasoning", f"hm {TAGGED} so"], CALL]),
    ("is part of it where a call follows", "last", f'<think>hm {TAGGED}</think>{TAGGED}', [["reasoning", f"hm {TAGGED}"], CALL]),
]  # fmt: skip

PREFILLED = [
    ("text", "Hel", "lo", [["text", "lo"]]),
    ("a tag begun in it", "So. <too", 'l_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>', [CALL]),
    ("a tag begun in it that is none", "a <too", "l> b", [["text", "l> b"]]),
    ("a thought", "<think>\nhm", " so</think>\n\nSo.", [["reasoning", " so"], ["text", "So."]]),
    ("a call that it leaves open is told whole", f"So. {TAGGED[:45]}", TAGGED[45:], [CALL]),
    ("a call that it ended is not told", TAGGED, "\nSo.", [["text", "So."]]),
    ("one call ended, one open", f"{TAGGED}\n{TAGGED[:40]}", TAGGED[40:], [CALL]),
    ("a call with a stranger's key, ended", '<tool_call>{"name": "f", "why": 1, "arguments": {}}</tool_call>', "So.", [["text", "So."]]),
    ("a stranger's key after it", '<tool_call>{"name": "f", ', '"why": 1, "arguments": {"a": "x"}}</tool_call>', [CALL]),
    ("a call that its thought quotes", f"<think>hm {TAGGED}", "</think>So.", [["text", "So."]]),
    ("a call that its thought quotes in part", f"<think>hm {TAGGED[:40]}", f"{TAGGED[40:]}</think>So.", [["reasoning", TAGGED[40:]], ["text", "So."]]),
    ("what looked like a call", '<tool_call>{"na', "me me.", [["text", "me me."]]),
    ("what looked like a call, and ends there", '<tool_call>{"na', "<|im_end|>", []),
]  # fmt: skip


def rows(*tables):
    return [pytest.param(*row, id=what) for table in tables for what, *row in table]


@pytest.mark.parametrize(("format", "forced", "text", "events"), rows(FORCED))
def test_forced_tool_call_may_be_bare_json(format, forced, text, events):
    context = ParseContext(TOOLS, forced=forced)
    for pieces in ([text], singly(text)):
        assert written(text_events(pieces, format, context)) == events


def test_forced_tool_call_that_is_too_short_is_dropped():
    for text in ("{", '{"na', '{"name": "f'):
        ledger = Warnings()
        assert (
            written(text_events([text], context=ParseContext(TOOLS, forced="f"), finish="length", ledger=ledger)) == []
        )
        assert "truncated:tool_calls" in ledger.entries()


def test_forced_tool_call_that_is_cut_is_incomplete():
    context = ParseContext(TOOLS, forced="f")
    assert written(text_events(['{"a": "x'], context=context, finish="length")) == [
        ["call", "f", '{"a": "x', "incomplete"]
    ]


@pytest.mark.parametrize(("policy", "text", "events"), rows(IN_THOUGHT))
def test_tool_call_in_reasoning_follows_the_policy(policy, text, events):
    context = ParseContext(TOOLS, in_thought=policy)
    for pieces in ([text], singly(text)):
        assert written(text_events(pieces, context=context)) == events


def test_reasoning_that_is_too_long_gives_no_tool_call():
    text = f"<think>{TAGGED}{'x' * 200}"
    context = ParseContext(TOOLS, in_thought="last")
    for pieces in ([text], singly(text)):
        assert written(text_events(pieces, context=context, limit=100)) == [["reasoning", text.removeprefix("<think>")]]


@pytest.mark.parametrize(
    ("prefill", "text", "warnings"),
    [("[f(a='x' + y)]", " So.", []), ("[f(a='x'", " + y)]", ["unread:tool_calls=pythonic"])],
)
def test_prefill_with_a_call_that_cannot_be_read_is_not_reported(prefill, text, warnings):
    ledger = Warnings()
    text_events([text], "pythonic", ParseContext(TOOLS, prefill=prefill), ledger=ledger)
    assert ledger.entries() == warnings


@pytest.mark.parametrize(("prefill", "text", "events"), rows(PREFILLED))
def test_prefill_is_not_sent_again(prefill, text, events):
    context = ParseContext(TOOLS, prefill=prefill)
    for pieces in ([text], singly(text)):
        assert written(text_events(pieces, context=context)) == events


def test_block_of_json_that_is_too_long_is_text():
    text = '```json\n{"name": "f", "arguments": {"a": "' + "x" * 66_000 + '"}}\n```\n<tool_call>'
    for size in (len(text), 1000, 7):
        assert written(text_events([text[begin : begin + size] for begin in range(0, len(text), size)])) == [
            ["text", text]
        ]


@pytest.mark.parametrize(
    "format", ["hermes_json", "qwen_xml", "glm47_xml", "mistral", "kimi_k2", "minimax_m2", "think"]
)
def test_json_alone_is_a_call_in_formats_that_read_no_brackets(format):
    text = '{"name": "f", "arguments": {"a": "x"}}'
    for pieces in ([text], singly(text)):
        assert written(text_events(pieces, format, ParseContext(TOOLS))) == [CALL]
        assert written(text_events(pieces, format, ParseContext(TOOLS, called=True))) == [["text", text]]


def test_json_alone_that_is_too_long_to_be_held_is_text():
    text = '{"name": "f", "arguments": {"a": "' + "x" * 66_000 + '"}}'
    pieces = [text[place : place + 999] for place in range(0, len(text), 999)]
    assert written(text_events(pieces, "hermes_json", ParseContext(TOOLS))) == [["text", text]]
