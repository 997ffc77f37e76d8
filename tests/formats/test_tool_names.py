"""Test that a name with foreign characters means the one offered tool that it is like."""

import json

import pytest

from gateway.events import ToolArgsDelta, ToolCallStart
from gateway.formats.tool_names import certain
from gateway.warnings import Warnings
from support.app import gateway
from support.format_events import text_events
from support.pipeline import DONE, call, chunk, events_of, parser_settings, singly
from support.upstream import stream

TOOLS = {"find_file": {}, "read-file": {}, "notes.add": {}, "Ping": {}, "a_b": {}, "A-B": {}}
NAMES = [
    ("Find_File", "find_file"),
    ("find-file", "find_file"),
    (" find_file\n", "find_file"),
    ("read_file", "read-file"),
    ("functions.find_file", "find_file"),
    ("default_api:find_file", "find_file"),
    ("functions.find_file:12", "find_file"),
    ("find_file:0", "find_file"),
    ("find_file<|channel|>commentary", "find_file"),
    ("tools.READ-file<|constrain|>json", "read-file"),
    ("find_file</arg_value>", "find_file"),
    ("find_file</arg_value></tool_call>", "find_file"),
    ("find_file<arg_key>name</arg_key>", None),  # has arguments
    ("notes.Add", "notes.add"),
    ("a_b", "a_b"),
    ("a-b", None),  # like two tools
    ("findfile", None),
    ("find_file2", None),
    ("add", None),
]


@pytest.mark.parametrize(("name", "tool"), NAMES)
def test_tool_name_means_the_offered_tool_that_it_is_like(name, tool):
    text = f"<tool_call>{json.dumps({'name': name, 'arguments': {}})}</tool_call>"
    calls = chunk(tool_calls=[call(0, "c", name, "{}")]) + chunk("tool_calls") + DONE
    code = "forwarded" if tool is None else "repaired"
    for data, read in ((text, read_text), (calls, read_calls)):
        for pieces in ([data], singly(data)):
            ledger = Warnings()
            assert [event.name for event in read(pieces, ledger) if type(event) is ToolCallStart] == [tool or name]
            warned = f"{code}:tool_calls.function.name" in ledger.entries()
            assert warned == (tool != name)


def read_text(pieces, ledger):
    """Return the events of a text."""
    return text_events(pieces, context=parser_settings(tools=TOOLS).context, ledger=ledger)


def read_calls(pieces, ledger):
    """Return the events of calls that the backend has parsed."""
    return events_of(pieces, parser_settings("native", tools=TOOLS, ledger=ledger))


async def test_tool_name_is_that_of_the_offered_tool_in_both_apis():
    function = {"name": "find_file", "parameters": {"type": "object"}}
    script = stream(chunk(tool_calls=[call(0, "c", "Find-File", "{}")]), chunk("tool_calls"))
    async with gateway(script) as site:
        chat = await site.chat(stream=False, tools=[{"type": "function", "function": function}])
        response = await site.respond(stream=False, tools=[{"type": "function", **function}])
    assert chat.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "find_file"
    assert [item["name"] for item in response.json()["output"]] == ["find_file"]
    for answer in (chat, response):
        assert "repaired:tool_calls.function.name" in answer.headers["x-gateway-warnings"]


def test_tool_name_is_certain_if_no_longer_one_begins_with_it():
    assert certain("find_file", TOOLS)
    assert not certain("find", {"find": {}, "find_file": {}}) and not certain("f", TOOLS)


BEHIND = "<|tool_call_argument_begin|>"


@pytest.mark.parametrize(
    ("deltas", "name", "arguments", "warnings"),
    [
        ([("functions.find_file:0" + BEHIND + '{"a": "x"}', "")], "find_file", '{"a": "x"}', ["name", "arguments"]),
        ([("find_file" + BEHIND + '{"a": "x"}', "{}")], "find_file", '{"a": "x"}', ["name", "arguments"]),
        ([("find_file" + BEHIND + '{"a": ', ""), (None, '"x"}')], "find_file", '{"a": "x"}', ["name", "arguments"]),
        ([("find_file" + BEHIND, '{"a": "x"}')], "find_file", '{"a": "x"}', ["name"]),
        ([("other" + BEHIND + "{}", '{"a": "x"}')], "other" + BEHIND + "{}", '{"a": "x"}', ["name"]),
    ],
    ids=["all", "empty beside it", "their beginning", "none", "no tool"],
)
def test_arguments_in_the_name_of_a_call_are_its_arguments(deltas, name, arguments, warnings):
    data = b"".join(chunk(tool_calls=[call(0, "c", *delta)]) for delta in deltas) + chunk("tool_calls") + DONE
    for pieces in ([data], singly(data)):
        ledger = Warnings()
        events = read_calls(pieces, ledger)
        assert [event.name for event in events if type(event) is ToolCallStart] == [name]
        assert "".join(event.json for event in events if type(event) is ToolArgsDelta) == arguments
        entries = [entry.partition(":tool_calls.function.")[2] for entry in ledger.entries()]
        assert [entry for entry in entries if entry] == warnings
