"""Test backends that send a tool call both as markup in the text and as a call, as mlx-vlm does."""

import json

import pytest
from msgspec.structs import replace

from gateway.warnings import Warnings
from support.format_events import calls, strings, written
from support.pipeline import DONE, call, chunk, events_of, parser_settings, singly

TOOLS = {
    "get_weather": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    "ping": {},
}
WEATHER, PING = ("get_weather", '{"city": "Oslo", "days": 3}'), ("ping", "{}")
QWEN = """<tool_call>
<function=get_weather>
<parameter=city>
Oslo
</parameter>
<parameter=days>
3
</parameter>
</function>
</tool_call>"""
HERMES = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
ONE = call(0, "a", *WEATHER)


def made(*all_calls):
    return {"tool_calls": [*all_calls]}


# What arrives, the deltas, the calls of the client, its text, and whether one is repeated.
CASES = [
    ("the call whole", [{"content": QWEN}, made(ONE)], [WEATHER], "", True),
    ("the markup in pieces, after text", [{"content": "Hi " + QWEN[:30]}, {"content": QWEN[30:]}, made(ONE)], [WEATHER], "Hi", True),
    ("the call in pieces", [{"content": QWEN}, made(call(0, "a", "get_weather", "")), made(call(0, None, None, '{"city": "Oslo", ')),
                            made(call(0, None, None, '"days": "3"}'))], [WEATHER], "", True),
    ("a name that means the tool", [{"content": QWEN}, made(call(0, "a", "functions.get_weather", WEATHER[1]))], [WEATHER], "", True),
    ("two calls", [{"content": QWEN + "\n" + HERMES}, made(ONE, call(1, "b", *PING))], [WEATHER, PING], "", True),
    ("two equal calls", [{"content": HERMES + HERMES}, made(call(0, "a", *PING), call(1, "b", *PING))], [PING, PING], "", True),
    ("no arguments", [{"content": HERMES}, made(call(0, "a", "ping", ""))], [PING], "", True),
    ("text after both", [{"content": HERMES}, made(call(0, "a", *PING)), {"content": "Done."}], [PING], "Done.", True),
    ("one more call", [{"content": HERMES}, made(call(0, "a", *PING), call(1, "b", *PING))], [PING, PING], "", True),
    ("other arguments", [{"content": QWEN}, made(call(0, "a", "get_weather", '{"city": "Rome"}'))],
     [WEATHER, ("get_weather", '{"city": "Rome"}')], "", False),
    ("other arguments than none", [{"content": HERMES}, made(call(0, "a", "ping", '{"n": 1}')), {"content": "Done."}],
     [PING, ("ping", '{"n": 1}')], "Done.", False),
    ("another tool", [{"content": QWEN}, made(call(0, "a", *PING))], [WEATHER, PING], "", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("deltas", "wanted", "text", "repeated"), [pytest.param(*row, id=what) for what, *row in CASES]
)
@pytest.mark.parametrize("format", ["auto", "qwen_xml"])
def test_call_in_the_text_and_as_a_call_is_one(deltas, wanted, text, repeated, format):
    data = b"".join(chunk(**delta) for delta in deltas) + chunk("tool_calls") + DONE
    for pieces in ([data], singly(data)):
        ledger = Warnings()
        found = written(events_of(pieces, parser_settings(format, tools=TOOLS, ledger=ledger)))
        assert (calls(found), strings(found, "text")) == (wanted, text)
        assert ("repaired:tool_calls" in ledger.entries()) is repeated


@pytest.mark.parametrize("format", ["auto", "qwen_xml"])
def test_call_in_a_whole_answer_and_in_its_text_is_one(format):
    message = {"role": "assistant", "content": "Hi\n" + QWEN, "tool_calls": [ONE]}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}).encode()
    found = written(events_of([body], parser_settings(format, tools=TOOLS), content_type="application/json"))
    assert (calls(found), strings(found, "text")) == ([WEATHER], "Hi")


@pytest.mark.parametrize(("limit", "count"), [(1000, 1), (100, 2)])
def test_calls_in_a_text_are_kept_up_to_the_limit(limit, count):
    one = ("get_weather", json.dumps({"city": "O" * 300}))
    markup = f'<tool_call>\n{{"name": "{one[0]}", "arguments": {one[1]}}}\n</tool_call>'
    data = chunk(content=markup) + chunk(tool_calls=[call(0, "a", *one)]) + chunk("tool_calls") + DONE
    found = events_of([data], replace(parser_settings("qwen_xml", tools=TOOLS), limit=limit))
    assert calls(written(found)) == [one] * count


def test_markup_that_no_format_reads_stays_text_beside_its_call():
    data = chunk(content=HERMES) + chunk(tool_calls=[call(0, "a", *PING)]) + chunk("tool_calls") + DONE
    found = written(events_of([data], parser_settings("native", tools=TOOLS)))
    assert (calls(found), strings(found, "text")) == ([PING], HERMES)
