"""Test tool calls that a backend has parsed, and sends in an order or a shape that accumulates to something else."""

import pytest

from gateway.events import ToolCallStart
from gateway.warnings import Warnings
from support.app import gateway
from support.format_events import calls, strings, written
from support.pipeline import DONE, call, chunk, events_of, grammatical, parser_settings, singly
from support.sse import events
from support.upstream import stream

ARGUMENTS, CALLS, INDEX, INVALID = (
    "repaired:tool_calls.function.arguments",
    "repaired:tool_calls",
    "repaired:tool_calls.index",
    "invalid:tool_calls.function.arguments",
)
NUMBERS = {"type": "array", "items": {"type": "number"}}
TOOLS = {
    "get_weather": {"properties": {"city": {"type": "string"}}},
    "get_": {"properties": {"a": {}}},
    "ping": {},
    "wait": {"properties": {"seconds": {"type": "integer"}, "at": NUMBERS}},
}
OSLO = '{"city": "Oslo"}'
WEATHER = [("get_weather", OSLO)]


def head(name, arguments=None, index=0, id="c"):
    return {"tool_calls": [call(index, id, name, arguments)]}


def more(arguments, index=0, id=None):
    return {"tool_calls": [call(index, id, None, arguments)]}


# What arrives, the deltas, the calls of the client, its text, its reasoning, and the warning.
CASES = [
    ("a line end between arguments", [head("get_weather", '{"city"'), {"content": "\n"}, more(': "Oslo"}')], WEATHER, "\n", "", None),
    ("text between the head and the arguments", [head("get_weather"), {"content": "One moment."}, more(OSLO)], WEATHER, "One moment.", "", None),
    ("reasoning between arguments", [head("get_weather", '{"city": "O'), {"reasoning_content": "Hm."}, more('slo"}')], WEATHER, "", "Hm.", None),
    ("text after an empty object", [head("get_weather", "{}"), {"content": "Hi"}, more(OSLO)], WEATHER, "Hi", "", ARGUMENTS),
    ("text after the empty object of a tool without parameters", [head("ping", "{}"), {"content": "Hi"}], [("ping", "{}")], "Hi", "", None),
    ("another call between arguments", [head("get_weather", '{"city": '), head("ping", "{}", 1, "d"), more('"Oslo"}')],
     [*WEATHER, ("ping", "{}")], "", "", None),
    ("arguments before the name", [more('{"city": '), head("get_weather", '"Oslo"}')], WEATHER, "", "", None),
    ("all arguments before the name", [more('{"city": '), more('"Oslo"}'), head("get_weather")], WEATHER, "", "", None),
    ("text between the arguments and their name", [more(OSLO), {"content": "Hi"}, head("get_weather")], WEATHER, "Hi", "", None),
    ("a name in two pieces", [head("get_"), head("weather", OSLO)], WEATHER, "", "", None),
    ("a name in three pieces", [head("get"), head("_wea", id=None), head("ther", id=None), more(OSLO)], WEATHER, "", "", None),
    ("an id before the name", [more("", id="c"), head("get_weather", OSLO, id=None)], WEATHER, "", "", None),
    ("an id in each delta", [head("get_weather"), more('{"city": ', id="c"), more('"Oslo"}', id="c"), more("", id="c")], WEATHER, "", "", None),
    ("an id again after the end", [head("get_weather", OSLO), {"content": "Hi"}, more("", id="c")], WEATHER, "Hi", "", None),
    ("an id alone", [more("", id="c")], [], "", "", None),
    ("another id in each further delta", [head("get_weather"), more('{"city": ', id="d"), more('"Oslo"}', id="e"), more("", id="f")], WEATHER, "", "", None),
    ("another id after the end", [head("get_weather", OSLO), {"content": "Hi"}, more("", id="d"), {"content": "!"}], WEATHER, "Hi!", "", None),
    ("a name again", [head("get_weather"), head("get_weather", '{"city": '), head("get_weather", '"Oslo"}')], WEATHER, "", "", None),
    ("two calls of one index", [head("get_", '{"a": 1}'), head("ping", "{}", id="d")], [("get_", '{"a": 1}'), ("ping", "{}")], "", "", INDEX),
    ("the same call twice", [head("get_weather", OSLO), head("get_weather", OSLO, 1)], WEATHER, "", "", CALLS),
    ("the same call twice, in pieces", [head("get_weather", OSLO), head("get_weather", '{"city"', 1), more(': "Oslo"}', 1)], WEATHER, "", "", CALLS),
    ("the same call in other white space", [head("get_weather", OSLO), head("get_weather", '{"city":"Oslo"}', 1)], WEATHER, "", "", CALLS),
    ("arguments that grow", [head("get_weather", '{"ci'), more('{"city": "Os'), more(OSLO)], WEATHER, "", "", ARGUMENTS),
    ("arguments again", [head("get_weather", '{"city": '), more('"Oslo"}'), more(OSLO)], WEATHER, "", "", ARGUMENTS),
    ("arguments again, in pieces", [head("get_weather", OSLO), more('{"city"'), more(': "Oslo"}')], WEATHER, "", "", ARGUMENTS),
    ("a brace too many", [head("get_weather", OSLO), more("}")], WEATHER, "", "", ARGUMENTS),
    ("a brace and a closing tag behind the end", [head("get_weather", OSLO + "}\n</tool_call>")], WEATHER, "", "", ARGUMENTS),
    ("closing tags behind the end, in pieces", [head("get_weather", '{"city": '), more('"Oslo"}'), more("\n</param"), more("eter>\n</func"), more("tion>")],
     WEATHER, "", "", ARGUMENTS),
    ("a special token behind the end", [head("get_weather", OSLO), more("<|tool_call_end|>")], WEATHER, "", "", ARGUMENTS),
    ("a torn closing tag behind the end", [head("get_weather", OSLO), more("</tool_c")], WEATHER, "", "", ARGUMENTS),
    ("text and a closing tag behind the end", [head("get_weather", OSLO), more(" now</tool_call>")], WEATHER, "", "", INVALID),
    ("an element behind the end", [head("get_weather", OSLO), more("<city>Rome</city>")], WEATHER, "", "", INVALID),
    ("closing tags without end", [head("get_weather", OSLO), more("</tool_call>" * 30)], WEATHER, "", "", INVALID),
    ("other arguments after the end", [head("get_weather", OSLO), more('{"city": "Rome"}')], WEATHER, "", "", INVALID),
    ("arguments that may be a value or all again", [head("get_", '{"a": '), more('{"a": {"b"'), more('{"a": {"b": 1}}')],
     [("get_", '{"a": {"b": 1}}')], "", "", ARGUMENTS),
    ("a brace too many in the first piece", [head("get_weather", OSLO + "}")], WEATHER, "", "", ARGUMENTS),
    ("a brace too many in the last piece", [head("get_weather", '{"city": '), more('"Oslo"}}')], WEATHER, "", "", ARGUMENTS),
    ("all arguments in the last delta", [head("get_", '{"a": '), more('{"a": 1}')], [("get_", '{"a": 1}')], "", "", ARGUMENTS),
    ("other arguments after the end and text", [head("get_weather", OSLO), {"content": "Hi"}, more('{"city": "Rome"}')],
     WEATHER, "Hi", "", INVALID),
    ("other arguments after the end, as the next call is open", [head("get_", '{"a": 1}'), head("get_weather", '{"city": ', 1, "d"),
     more('{"a": 2}'), more('"Oslo"}', 1)], [("get_", '{"a": 1}'), *WEATHER], "", "", INVALID),
    ("arguments again, as the call before by index is open", [head("get_", '{"a": 1}', 1), head("get_weather", '{"city": ', id="d"),
     more('{"a"', 1), more(": 1}", 1), more('"Os'), more('lo"}')], [("get_", '{"a": 1}'), *WEATHER], "", "", ARGUMENTS),
    ("a word for a number", [head("wait", '{"seconds": "abc"}')], [("wait", '{"seconds": "abc"}')], "", "", INVALID),
    ("a word for a number, in pieces", [head("wait", '{"seconds": '), more('"'), more("abc"), more('"'), more("}")],
     [("wait", '{"seconds": "abc"}')], "", "", INVALID),
    ("a list for a number", [head("wait", '{"seconds": [1]}')], [("wait", '{"seconds": [1]}')], "", "", INVALID),
    ("a word among numbers", [head("wait", '{"at": [1, "noon"]}')], [("wait", '{"at": [1, "noon"]}')], "", "", INVALID),
    ("a number without a fraction", [head("wait", '{"seconds": 1.0}')], [("wait", '{"seconds": 1}')], "", "", ARGUMENTS),
    ("the value of a member begins as the arguments", [head("get_", '{"a": '), more('{"a": 1}'), more("}")], [("get_", '{"a": {"a": 1}}')], "", "", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("deltas", "wanted", "text", "thought", "warning"), [pytest.param(*row, id=what) for what, *row in CASES]
)
@pytest.mark.parametrize("format", ["native", "auto"])
def test_dirty_tool_calls_are_what_was_meant(deltas, wanted, text, thought, warning, format):
    data = b"".join(chunk(**delta) for delta in deltas) + chunk("tool_calls") + DONE
    for pieces in ([data], singly(data)):
        ledger = Warnings()
        found = events_of(pieces, parser_settings(format, tools=TOOLS, ledger=ledger))
        assert calls(written(found)) == wanted and grammatical(found[:-1])
        assert (strings(written(found), "text"), strings(written(found), "reasoning")) == (text, thought)
        assert [entry for entry in ledger.entries() if "tool_calls" in entry] == ([warning] if warning else [])


@pytest.mark.parametrize("row", CASES[::6], ids=lambda row: row[0])
async def test_dirty_tool_calls_in_both_apis(row):
    _, deltas, wanted, *_ = row
    script = stream(*(chunk(**delta) for delta in deltas), chunk("tool_calls"))
    functions = [{"name": name, "parameters": {"type": "object", **schema}} for name, schema in TOOLS.items()]
    async with gateway(script) as site:
        chat = await site.chat(stream=False, tools=[{"type": "function", "function": one} for one in functions])
        found = [one["function"] for one in chat.json()["choices"][0]["message"]["tool_calls"]]
        assert [(one["name"], one["arguments"]) for one in found] == wanted
        for streamed in (False, True):
            response = await site.respond(stream=streamed, tools=[{"type": "function", **one} for one in functions])
            items = (events(response.text)[-1]["response"] if streamed else response.json())["output"]
            found = [item for item in items if item["type"] == "function_call"]
            assert [(item["name"], item["arguments"]) for item in found] == wanted
            assert {item["status"] for item in found} == {"completed"}


@pytest.mark.parametrize("function", [{}, {"function": None}, {"function": {}}])
def test_the_first_id_of_a_call_counts_also_in_a_delta_of_its_own(function):
    alone = {"tool_calls": [{"index": 0, "id": "c", "type": "function", **function}]}
    data = b"".join(chunk(**one) for one in (alone, head("get_weather", id=None), more(OSLO, id="d")))
    for pieces in ([data + DONE], singly(data + DONE)):
        (start,) = [
            event for event in events_of(pieces, parser_settings("native", tools=TOOLS)) if type(event) is ToolCallStart
        ]
        assert (start.name, start.id) == ("get_weather", "c")


@pytest.mark.parametrize(("arguments", "id"), [(None, None), ('{"a": 1}', "c")])
def test_calls_of_a_backend_that_counts_none_and_gives_no_ids_are_two(arguments, id):
    ledger = Warnings()
    data = chunk(**head("get_", arguments, id=id)) + chunk(**head("ping", "{}", id=None)) + chunk("tool_calls") + DONE
    found = events_of([data], parser_settings("native", tools=TOOLS, ledger=ledger))
    assert calls(written(found)) == [("get_", arguments or "{}"), ("ping", "{}")]
    assert {INDEX, "synthesised:tool_calls.id"} < {*ledger.entries()}
