"""Test the translation of tools that a backend does not know: names, kinds, allowed tools, and the way back."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from openai.types.responses import ResponseApplyPatchToolCall, ResponseFunctionShellToolCall, ResponseToolSearchCall
from openai.types.responses.response_output_item import LocalShellCall

from gateway.errors import Problem
from gateway.events import (
    Annotation,
    BuiltinItem,
    ExtraField,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolInputDelta,
    Usage,
)
from gateway.request import Request, Tool, ToolName
from gateway.transforms import apply_filters, close_filters, custom_tools, lower_request, tool_names, tool_shims
from gateway.warnings import Warnings
from support.pipeline import chunk, cut, events_of, grammatical, merge, singly
from support.sampling import EXAMPLES, examples

FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}


def request_with(*tools, calls=(), **fields):
    """Return a request with these tools, and with these tool calls in its past."""
    called = [{"role": "assistant", "content": None, "tool_calls": [*calls]}] if calls else []
    return Request(model="m", messages=({"role": "user", "content": "q"}, *called), tools=tools, **fields)


def tool(name, kind="function", namespace="", **members):
    return Tool(name, {"name": name, **members}, kind, namespace)


def past_call(kind="function", **members):
    return {"id": "c", "type": kind, kind: members}


def call(name, *pieces, number=0, choice=0, complete=True):
    """Return the events of a tool call whose arguments came in these pieces."""
    start = ToolCallStart(choice, number, f"call_{choice}_{number}", name, signature="s")
    return [start, *(ToolArgsDelta(choice, number, piece) for piece in pieces), ToolCallEnd(choice, number, complete)]


def events_for_client(request, events, ledger=None):
    """Return the events that the client's encoder gets."""
    _, filters = lower_request(request, ledger or Warnings())
    return merge([*apply_filters(filters, events), *close_filters(filters)])


def call_for_client(request, name, arguments, complete=True, ledger=None):
    """Return kind, namespace, name, and arguments or input of a tool call as the client gets it."""
    events = [*call(name, *singly(arguments), complete=complete), Finish(0, "tool_calls")]
    start, delta, end, _ = events_for_client(request, events, ledger)
    assert (start.id, start.signature, end.complete) == ("call_0_0", "s", complete)
    return start.kind, start.namespace, start.name, delta.text if start.kind == "custom" else delta.json


def flat_names(request):
    lowered, _ = lower_request(request, Warnings())
    assert all(tool.definition["name"] == tool.name and not tool.namespace for tool in lowered.tools)
    return [tool.name for tool in lowered.tools]


# All translations


def test_request_of_plain_functions_is_passed_unchanged():
    request = request_with(
        tool("f"), tool("g"), calls=[past_call(name="f", arguments="{}"), past_call(name="h", arguments="")]
    )
    ledger = Warnings()
    assert lower_request(request, ledger) == (request, [])
    assert lower_request(request, ledger)[0] is request and ledger.entries() == []


def test_filters_reverse_the_order_of_translation():
    request = request_with(tool("edit", "custom", "code"), tool("shell", "shell"), tool("f", namespace="code"))
    lowered, filters = lower_request(request, Warnings())
    assert [(one.name, one.kind) for one in lowered.tools] == [
        ("code__edit", "function"), ("shell", "function"), ("code__f", "function"),
    ]  # fmt: skip
    assert len(filters) == 3
    assert call_for_client(request, "code__edit", '{"input": "x"}') == ("custom", "code", "edit", "x")
    assert call_for_client(request, "code__f", '{"a": 1}') == ("function", "code", "f", '{"a": 1}')
    assert call_for_client(request, "shell", '{"commands": []}')[:3] == ("shell", "", "shell")


def test_tools_that_are_translated_are_warnings():
    ledger = Warnings()
    lower_request(request_with(tool("e", "custom"), tool("shell", "shell"), tool("f" * 65, namespace="n")), ledger)
    assert ledger.entries() == [
        "translated:tools.namespace", "renamed:tools.name", "emulated:tools.custom", "emulated:tools.shell",
    ]  # fmt: skip


# Names

LONG = "n" * 62
NAMES = [  # tools as (namespace, name), their flat names
    ([("", "f"), ("a", "f")], ["f", "a__f"]),
    ([("a", "f"), ("b", "f")], ["a__f", "b__f"]),
    ([("a", "f"), ("", "a__f")], ["a__f_078b5e44", "a__f"]),
    ([("a", "b__c"), ("a__b", "c")], ["a__b__c", "a__b__c_a92700ce"]),
    ([("", "x" * 65), ("", "a.b/c é")], ["x" * 65, "a.b/c é"]),
    ([("n", "x" * 61)], ["n__" + "x" * 61]),
    ([(LONG, "f"), (LONG, "g")], [LONG[:55] + "_c7179584", LONG[:55] + "_97a5b5e4"]),
    ([("n", "a.b/c é")], ["n__a_b_c___1c2a7d0d"]),
]


@pytest.mark.parametrize(("tools", "flat"), NAMES)
def test_tool_names_are_flat_and_unique(tools, flat):
    assert flat_names(request_with(*(tool(name, namespace=namespace) for namespace, name in tools))) == flat


NAMED = st.builds(ToolName, st.text("ab_-.é", min_size=1, max_size=3) | st.sampled_from(["x" * 70, "y" * 64]), st.sampled_from(["", "a", "a_", "b" * 63]))  # fmt: skip


@settings(max_examples=examples(4 * EXAMPLES))
@given(st.lists(NAMED, unique=True, min_size=1, max_size=6), st.lists(NAMED, max_size=3))
def test_tool_names_come_back_from_flat_names(offered, past):
    tools = [tool(named.name, namespace=named.namespace) for named in offered]
    calls = [past_call(name=named.name, namespace=named.namespace, arguments="{}") for named in [*offered, *past]]
    request = request_with(*tools, calls=calls, tool_choice=offered[0], allowed=frozenset(offered))
    lowered, _ = lower_request(request, Warnings())
    flat = [tool.name for tool in lowered.tools]
    assert len({*flat}) == len(flat)
    assert lowered.tool_choice == ToolName(flat[0]) and lowered.allowed == frozenset(map(ToolName, flat))
    shown = [one["function"] for one in lowered.messages[1]["tool_calls"]]
    assert [one["name"] for one in shown[: len(flat)]] == flat
    for name, named in zip([one["name"] for one in shown], [*offered, *past], strict=True):
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) if named.namespace else name == named.name
    for name, named in zip(flat, offered, strict=True):
        assert call_for_client(request, name, "{}") == ("function", named.namespace, named.name, "{}")


def test_tool_name_that_was_not_offered_stays():
    assert call_for_client(request_with(tool("f", namespace="a")), "f", "{}") == ("function", "", "f", "{}")


def test_tool_calls_of_the_past_get_flat_names_without_tools():
    calls = [past_call(name="echo", namespace="mcp__toy", arguments="{}"), past_call(name="f", arguments="{}")]
    lowered, filters = lower_request(request_with(calls=calls), Warnings())
    assert [one["function"] for one in lowered.messages[1]["tool_calls"]] == [
        {"name": "mcp__toy__echo", "arguments": "{}"}, {"name": "f", "arguments": "{}"},
    ]  # fmt: skip
    assert filters == []


def test_tool_name_wins_over_a_past_call_with_its_flat_name():
    request = request_with(tool("f", namespace="a"), calls=[past_call(name="a__f", arguments="{}")])
    lowered, _ = lower_request(request, Warnings())
    assert lowered.tools[0].name == lowered.messages[1]["tool_calls"][0]["function"]["name"] == "a__f"


FUNCTIONS = st.builds(tool, st.sampled_from(["f", "g", "x" * 70, "é", "shell"]))
CALLED = st.builds(lambda name: past_call(name=name, arguments="{}"), st.sampled_from(["f", "h", "shell"]))


@settings(max_examples=examples(4 * EXAMPLES))
@given(
    st.lists(FUNCTIONS, max_size=4), st.lists(CALLED, max_size=3), st.sampled_from([None, "required", ToolName("f")])
)
def test_functions_need_no_translation(tools, calls, choice):
    """Callers may skip the translation of plain functions."""
    request, ledger = request_with(*tools, calls=calls, tool_choice=choice), Warnings()
    for lower in (tool_names.lower_tool_names, custom_tools.lower_custom_tools, tool_shims.lower_shim_tools):
        assert lower(request, ledger) == (request, [])
    assert lower_request(request, ledger) == (request, []) and ledger.entries() == []


# Kinds of tools

EXEC = {"type": "exec", "env": {}, "timeout_ms": None, "user": None, "working_directory": None}
RUN = {"timeout_ms": None, "max_output_length": None}
FITTING = [  # kind, arguments, the fields of the item
    ("local_shell", {"command": ["ls", "-l"]}, {"action": {**EXEC, "command": ["ls", "-l"]}}),
    ("local_shell", {"command": [], "workdir": "/w", "timeout_ms": 5, "env": {"A": "b"}},
     {"action": {**EXEC, "command": [], "working_directory": "/w", "timeout_ms": 5, "env": {"A": "b"}}}),
    ("shell", {"commands": ["ls", "pwd"]}, {"action": {**RUN, "commands": ["ls", "pwd"]}, "environment": None}),
    ("shell", {"commands": ["ls"], "timeout_ms": 5, "max_output_length": 9},
     {"action": {"commands": ["ls"], "timeout_ms": 5, "max_output_length": 9}, "environment": None}),
    ("apply_patch", {"type": "create_file", "path": "a", "diff": "+x"},
     {"operation": {"type": "create_file", "path": "a", "diff": "+x"}}),
    ("apply_patch", {"type": "update_file", "path": "a", "diff": "-x"},
     {"operation": {"type": "update_file", "path": "a", "diff": "-x"}}),
    ("apply_patch", {"type": "delete_file", "path": "a"}, {"operation": {"type": "delete_file", "path": "a"}}),
    ("tool_search", {"query": "x", "most": [1]}, {"arguments": {"query": "x", "most": [1]}, "execution": "client"}),
]  # fmt: skip
REPAIRED = [
    ("local_shell", {"command": "ls | wc"}, {"action": {**EXEC, "command": ["bash", "-lc", "ls | wc"]}}),
    ("shell", {"commands": "ls"}, {"action": {**RUN, "commands": ["ls"]}, "environment": None}),
    ("shell", {"commands": ["ls"], "timeout_ms": "5"}, {"action": {**RUN, "commands": ["ls"], "timeout_ms": 5}, "environment": None}),
    ("shell", {"commands": ["ls"], "why": "so"}, {"action": {**RUN, "commands": ["ls"]}, "environment": None}),
    ("apply_patch", {"type": "delete_file", "path": "a", "diff": "-x"}, {"operation": {"type": "delete_file", "path": "a"}}),
]  # fmt: skip
UNFIT = [
    ("local_shell", "{}"), ("local_shell", '{"command": 5}'), ("local_shell", '{"command": ["ls"], "env": {"A": 1}}'),
    ("shell", '{"commands": [1]}'), ("shell", '{"commands": ["ls"], "timeout_ms": "soon"}'), ("shell", '["ls"]'),
    ("apply_patch", '{"type": "update_file", "path": "a"}'), ("apply_patch", '{"type": "move", "path": "a"}'),
    ("apply_patch", "*** Begin Patch"), ("tool_search", '"x"'), ("tool_search", '{"query": ' + "[" * 5000),
]  # fmt: skip
ITEMS = {
    "local_shell": LocalShellCall,
    "shell": ResponseFunctionShellToolCall,
    "apply_patch": ResponseApplyPatchToolCall,
    "tool_search": ResponseToolSearchCall,
}


@pytest.mark.parametrize(("kind", "arguments", "fields"), [*FITTING, *REPAIRED])
def test_shim_call_is_an_item_that_the_sdk_takes(kind, arguments, fields):
    ledger = Warnings()
    *named, text = call_for_client(request_with(tool(kind, kind)), kind, json.dumps(arguments), ledger=ledger)
    assert (named, json.loads(text)) == ([kind, "", kind], fields)
    item = {"id": "i", "call_id": "c", "status": "completed", "type": f"{kind}_call", **json.loads(text)}
    ITEMS[kind].model_validate_json(json.dumps(item), strict=True)
    repaired = ["repaired:tool_calls.function.arguments"] if (kind, arguments, fields) in REPAIRED else []
    assert ledger.entries() == [f"emulated:tools.{kind}", *repaired]


@pytest.mark.parametrize(("kind", "arguments"), UNFIT)
def test_shim_call_with_unfit_arguments_is_a_function_call(kind, arguments):
    ledger = Warnings()
    assert call_for_client(request_with(tool(kind, kind)), kind, arguments, ledger=ledger) == (
        "function",
        "",
        kind,
        arguments,
    )
    assert ledger.entries() == [f"emulated:tools.{kind}", "forwarded:tool_calls.function.arguments"]


def test_shim_call_that_was_cut_is_a_function_call():
    ledger = Warnings()
    for arguments in ('{"commands": ["ls', '{"commands": ["ls"]}'):
        tool_call = call_for_client(
            request_with(tool("shell", "shell")), "shell", arguments, complete=False, ledger=ledger
        )
        assert tool_call == ("function", "", "shell", arguments)
    assert ledger.entries() == ["emulated:tools.shell"]


@pytest.mark.parametrize(("kind", "arguments", "fields"), FITTING)
@pytest.mark.parametrize("offered", [True, False])
def test_shim_call_of_the_past_is_a_function_call(kind, arguments, fields, offered):
    signed = {"provider_specific_fields": {"thought_signature": "s"}}
    calls = [{**past_call(kind, name=kind, arguments=json.dumps(fields)), **signed}]
    lowered, filters = lower_request(request_with(*[tool(kind, kind)][:offered], calls=calls), Warnings())
    (one,) = lowered.messages[1]["tool_calls"]
    function = one.pop("function")
    assert one == {"id": "c", "type": "function", **signed} and len(filters) == offered
    assert (function["name"], json.loads(function["arguments"])) == (kind, arguments)


def test_tool_search_call_of_the_past_may_have_any_json_arguments():
    calls = [past_call("tool_search", name="tool_search", arguments='{"arguments": "x", "execution": "client"}')]
    lowered, _ = lower_request(request_with(calls=calls), Warnings())
    assert lowered.messages[1]["tool_calls"][0]["function"] == {"name": "tool_search", "arguments": '"x"'}


def test_shim_definition_includes_that_of_the_client():
    lowered, _ = lower_request(
        request_with(tool("tool_search", "tool_search", description="More.", parameters={"p": 1})), Warnings()
    )
    (one,) = lowered.tools
    assert one.kind == "function" and one.definition["parameters"] == {"p": 1}
    assert one.definition["description"].endswith(".\n\nMore.")


@pytest.mark.parametrize("kind", ITEMS)
def test_shim_has_a_description_and_parameters(kind):
    (one,) = lower_request(request_with(tool(kind, kind)), Warnings())[0].tools
    assert one.name == kind and one.definition["description"]
    assert {*one.definition["parameters"]["required"]} <= {*one.definition["parameters"]["properties"]}


def test_shim_that_gave_its_name_to_a_function_keeps_its_past_calls():
    fields = json.dumps({"action": {"commands": ["ls"]}})
    calls = [past_call("shell", name="shell", arguments=fields), past_call(name="shell", arguments="{}")]
    lowered, _ = lower_request(request_with(tool("shell"), tool("shell_1", "shell"), calls=calls), Warnings())
    assert [one["function"]["name"] for one in lowered.messages[1]["tool_calls"]] == ["shell_1", "shell"]


# Custom input

ODD = [  # arguments, the input that they are
    ('{"input": "a\\"b\\\\c\\n\\t\\u0000\\u00e9\\/"}', 'a"b\\c\n\t\0é/'),
    ('{"input": "a\nb"}', "a\nb"),
    ('{"input":"\\ud83d\\ude00😀"}', "😀😀"),
    ('{"input": "\\ud83d"}', "\ufffd"),
    ('{"input": "\\ude00\\ud83d!\\ud83dA"}', "\ufffd\ufffd!\ufffdA"),
    ('{"input": "x", "why": 1}', "x"),
    ('{"why": {"input": ["}", "input"]}, "so": "\\"", "input": "x"}', "x"),
    ('{"input": ""}', ""),
    ('{"input": "cut', "cut"),
    ('{"input": "cut \\ud83d\\', "cut \ufffd"),
    *((raw, raw) for raw in (
        "*** Begin Patch\n+\\u00e9", '"input"', '{"code": "x"}', '{"input": 5}', '{"input": {"a": 1}}', "", '{"inp',
        '{"a": 1', '{"a" 1}', '{"a": 1 "input": "x"}', "{}", '["input"]', " ",
    )),
]  # fmt: skip


def inputs(pieces):
    """Return the input of a custom tool call after each of its pieces."""
    _, filters = lower_request(request_with(tool("edit", "custom")), Warnings())
    texts, text = [], ""
    for event in call("edit", *pieces):
        text += "".join(after.text for after in apply_filters(filters, [event]) if type(after) is ToolInputDelta)
        texts.append(text)
    return texts


@pytest.mark.parametrize(("arguments", "wanted"), ODD)
def test_custom_tool_input_is_the_same_under_every_cut(arguments, wanted):
    for pieces in (singly(arguments), *((arguments[:i], arguments[i:]) for i in range(len(arguments) + 1))):
        texts = inputs(pieces)
        assert texts[-1] == wanted and all(wanted.startswith(text) for text in texts)


OTHERS = st.dictionaries(st.text(max_size=3).filter(lambda name: name != "input"), st.recursive(st.none() | st.text(max_size=3), st.lists, max_leaves=3), max_size=2)  # fmt: skip


@settings(max_examples=examples(4 * EXAMPLES))
@given(st.text(max_size=30), OTHERS, OTHERS, st.booleans(), st.data())
def test_custom_tool_passes_any_text(text, before, after, escaped, data):
    arguments = json.dumps({**before, "input": text, **after}, ensure_ascii=escaped)
    assert inputs(cut(data, arguments))[-1] == text


@settings(max_examples=examples(4 * EXAMPLES))
@given(st.text('{}[]":,\\ud83 inpt'), st.data())
def test_custom_tool_input_of_any_arguments_is_the_same_under_any_cut(arguments, data):
    assert inputs(cut(data, arguments))[-1] == inputs([arguments])[-1]


PATTERNS = [  # a regex, the pattern for the whole input
    ("[0-9]+", "^([0-9]+)$"),
    ("^[0-9]+$", "^([0-9]+)$"),
    ("yes|no", "^(yes|no)$"),
    (r"(a\.b)?[x-z_.-]{2,3}é{2}", r"^((a\.b)?[x-z_.-]{2,3}é{2})$"),
    *((regex, None) for regex in (
        "", "(a", "a)", "[z-a]", "[a", "a{3,1}", "a{1}{2}", "a+?", "a++", r"\d", r"\bx", r"a\$$b", "a\\", ".*", "[^a]",
        "(?:a)", "(?i)a", "(?=a)", '"', "a\n", r"[\]]", "[a--b]", "[a&&b]", "[[a]]", "(" * 5000 + ")" * 5000,
        "a{9999999999}",
    )),
]  # fmt: skip


def custom_definition(syntax, definition, ledger):
    format = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    lowered, _ = lower_request(request_with(tool("edit", "custom", description="Edits.", format=format)), ledger)
    return lowered.tools[0].definition


@pytest.mark.parametrize(("regex", "pattern"), PATTERNS)
def test_custom_tool_regex_that_every_engine_knows_is_a_pattern(regex, pattern):
    ledger = Warnings()
    definition = custom_definition("regex", regex, ledger)
    assert definition["parameters"]["properties"]["input"].get("pattern") == pattern
    assert definition["description"] == f"Edits.\n\nThe input has to match this regex grammar:\n{regex[:8192]}"
    assert "unenforced:tools.custom.format" in ledger.entries()


@pytest.mark.parametrize(
    ("arguments", "entries"),
    [
        ('{"input": "x"}', []),
        ('{"input": "x"} \n', []),
        ('{"why": {}, "input": "x"}', ["dropped:tool_calls.function.arguments"]),
        ('{"input": "x", "why": ""}', ["dropped:tool_calls.function.arguments"]),
        ("x", []),
    ],
)
def test_custom_tool_arguments_beside_the_input_are_dropped(arguments, entries):
    ledger = Warnings()
    _, filters = lower_request(request_with(tool("edit", "custom")), ledger)
    events = [one for event in call("edit", arguments) for one in apply_filters(filters, [event])]
    assert "".join(event.text for event in events if type(event) is ToolInputDelta) == "x"
    assert ledger.entries()[1:] == entries


@settings(max_examples=examples(8 * EXAMPLES))
@given(st.text("ab0|()[]{}^$.*+?\\-&,"))
def test_custom_tool_pattern_is_a_regex_of_the_same_meaning(regex):
    if pattern := custom_tools._pattern(regex):
        assert re.compile(pattern).pattern == f"^({regex.removeprefix('^').removesuffix('$')})$"


def test_custom_tool_grammar_is_described_with_a_warning():
    ledger = Warnings()
    definition = custom_definition("lark", "start: x" + "y" * 9000, ledger)
    assert definition["description"].endswith("lark grammar:\nstart: x" + "y" * 8184)
    assert ledger.entries() == ["emulated:tools.custom", "unenforced:tools.custom.format"]


@pytest.mark.parametrize("format", [None, {"type": "text"}, {"type": "grammar", "grammar": "x"}])
def test_custom_tool_format_without_a_grammar_is_ignored(format):
    lowered, _ = lower_request(request_with(tool("edit", "custom", format=format)), Warnings())
    assert lowered.tools[0].definition["description"] == ""


def test_custom_tool_calls_of_the_past_are_function_calls():
    signed = {"provider_specific_fields": {"thought_signature": "s"}}
    edit = past_call("custom", name="edit", namespace="a", input='"x"')
    lowered, filters = lower_request(
        request_with(calls=[{**edit, **signed}, past_call(name="f", arguments="{}")]), Warnings()
    )
    assert {*lowered.messages[1]["tool_calls"][0]} == {"id", "type", "function", *signed}
    assert [one["function"] for one in lowered.messages[1]["tool_calls"]] == [
        {"name": "a__edit", "arguments": '{"input":"\\"x\\""}'}, {"name": "f", "arguments": "{}"},
    ]  # fmt: skip
    assert filters == []


# Allowed tools


def numbers_and_names(events):
    return [(event.call, event.name) for event in events if type(event) is ToolCallStart]


def test_tool_call_that_is_not_allowed_is_dropped():
    request = request_with(tool("f"), tool("g", namespace="n"), tool("h"), allowed=frozenset([ToolName("h")]))
    lowered, _ = lower_request(request, Warnings())
    assert [tool.name for tool in lowered.callable_tools] == ["h"]
    events = [*call("f", "{}"), *call("h", "{}", number=1), *call("n__g", "{}", number=2), *call("x", "{}", number=3)]
    ledger = Warnings()
    output = events_for_client(request, [*events, Finish(0, "tool_calls")], ledger)
    assert (
        grammatical(output)
        and numbers_and_names(output) == [(0, "h"), (1, "x")]
        and output[-1] == Finish(0, "tool_calls")
    )
    assert "dropped:tool_calls" in ledger.entries()


@pytest.mark.parametrize(("reason", "wanted"), [("tool_calls", "stop"), ("length", "length"), ("stop", "stop")])
def test_finish_reason_is_stop_if_no_allowed_tool_call_is_left(reason, wanted):
    request = request_with(tool("f"), tool("h"), allowed=frozenset([ToolName("h")]))
    assert events_for_client(request, [*call("f", "{}"), TextDelta(0, "a"), Finish(0, reason)]) == [
        TextDelta(0, "a"),
        Finish(0, wanted),
    ]


def test_tool_calls_are_dropped_if_tool_choice_is_none():
    request, ledger = request_with(tool("f"), tool_choice="none"), Warnings()
    events = [*call("f", "{}"), TextDelta(0, "a"), *call("no", "{}", number=1), Finish(0, "tool_calls")]
    assert events_for_client(request, events, ledger) == [TextDelta(0, "a"), Finish(0, "stop")]
    assert ledger.entries() == ["dropped:tool_calls"]


def test_allowed_tools_that_are_all_tools_need_no_filter():
    request = request_with(tool("f"), tool("h"), allowed=frozenset([ToolName("h"), ToolName("f")]))
    assert lower_request(request, Warnings()) == (request, [])


def test_allowed_tool_call_that_comes_first_is_kept():
    request = request_with(
        tool("f"), tool("h"), allowed=frozenset([ToolName("h")]), rest={"parallel_tool_calls": False}
    )
    events = [*call("f", "{}"), *call("h", "1", number=1), *call("h", "2", number=2), Finish(0, "tool_calls")]
    assert events_for_client(request, events) == [
        ToolCallStart(0, 0, "call_0_1", "h", signature="s"), ToolArgsDelta(0, 0, "1"), ToolCallEnd(0, 0), Finish(0, "tool_calls"),
    ]  # fmt: skip


# A prompt that is only read


def test_prompt_that_is_only_read_asks_for_one_token():
    request = request_with(tool("f"), tool_choice="required", max_tokens=50, rest={"parallel_tool_calls": False})
    lowered, filters = lower_request(replace(request, generates=False), Warnings())
    assert lowered == replace(request, generates=False, max_tokens=1) and len(filters) == 2
    assert lower_request(request, Warnings())[0] is request


@pytest.mark.parametrize("end", ["length", "tool_calls", "content_filter", "stop"])
def test_prompt_that_is_only_read_sends_no_output(end):
    remark = ExtraField(None, "prompt_token_ids", Raw(b"[1]"))
    events = [
        remark, ExtraField(0, "token_ids", Raw(b"[2]")), ReasoningDelta(0, "h"), TextDelta(0, "a"), RefusalDelta(0, "n"), Annotation(0, Raw(b"{}")),
        BuiltinItem(0, Raw(b"{}")), *call("edit", '{"input": "', complete=False), Finish(0, end), Usage(9, 4, 5, 2),
    ]  # fmt: skip
    request = request_with(tool("edit", "custom"), generates=False)
    assert events_for_client(request, events) == [remark, Finish(0, "stop"), Usage(9, 0, 5)]


def test_prompt_that_cannot_be_read_is_a_failure():
    failure = Failure(Problem(400, "Too long.", "context_length_exceeded"))
    assert events_for_client(request_with(generates=False), [TextDelta(0, "a"), failure]) == [failure]


def test_usage_estimate_counts_no_output_of_a_prompt_that_is_only_read():
    request = request_with(generates=False)
    _, filters = lower_request(request, Warnings())
    assert events_of([chunk(content="a word"), chunk("length")], filters=filters) == [Finish(0, "stop"), Usage(10, 0)]


# Properties

EVERYTHING = request_with(
    tool("f"), tool("edit", "custom", "code"), tool("shell", "shell"), tool("apply_patch", "apply_patch"),
    tool("f", namespace="code"), tool("no"), tool("no", namespace="code"),
)  # fmt: skip
CALLABLE = frozenset(ToolName(tool.name, tool.namespace) for tool in EVERYTHING.tools if tool.name != "no")
CALLED = st.sampled_from(["f", "code__edit", "shell", "apply_patch", "code__f", "no", "code__no", "unknown"])
ARGUMENTS = st.sampled_from(["{}", '{"input": "a\\n"}', '{"commands": ["ls"]}', '{"type": "delete_file", "path": "a"}', '{"a'])  # fmt: skip


@st.composite
def answers(draw):
    """Draw events of one choice, and the same events with other cuts."""
    one, other, number = [], [], 0
    for text, name, arguments in draw(st.lists(st.tuples(st.booleans(), CALLED, ARGUMENTS), max_size=5)):
        if text:
            one.append(TextDelta(0, "a"))
            other.append(TextDelta(0, "a"))
            continue
        complete = arguments.endswith("}")
        one += call(name, arguments, number=number, complete=complete)
        other += call(name, *cut(draw(st.data()), arguments), number=number, complete=complete)
        number += 1
    end = [Finish(0, "tool_calls" if number else "stop")]
    return one + end, other + end


@settings(max_examples=examples(6 * EXAMPLES))
@given(answers(), st.booleans(), st.booleans())
def test_filters_keep_the_grammar_under_any_cut(answer, allowed, single):
    request = replace(EVERYTHING, allowed=CALLABLE if allowed else None, rest={"parallel_tool_calls": not single})
    whole, pieces = (events_for_client(request, events) for events in answer)
    assert whole == pieces and grammatical(whole)
    calls = [event for event in whole if type(event) is ToolCallStart]
    assert (whole[-1].reason == "tool_calls") is bool(calls)
    assert not allowed or all(start.name != "no" for start in calls)
    assert not single or len(calls) <= 1
    assert all(not start.name.startswith("code__") for start in calls)


@settings(max_examples=examples(2 * EXAMPLES))
@given(answers(), answers(), st.randoms(use_true_random=False))
def test_filters_keep_choices_apart(first, second, random):
    queues = [[*first[1]], [Usage(1, 1)], [_of_choice(event, 1) for event in second[1]]]
    events = []
    while any(queues):
        events.append(random.choice([queue for queue in queues if queue]).pop(0))
    request = replace(EVERYTHING, allowed=CALLABLE)
    output = events_for_client(request, events)
    for choice, (whole, _) in enumerate((first, second)):
        mine = merge([event for event in output if getattr(event, "choice", None) == choice])
        assert mine == events_for_client(request, [_of_choice(event, choice) for event in whole])
    assert Usage(1, 1) in output


def _of_choice(event, choice):
    return replace(event, choice=choice)
