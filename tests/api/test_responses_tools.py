"""Test the tools and the tool_choice of a response: what the neutral request has of them, and what is refused."""

import json
from typing import get_args, get_type_hints

import pytest
from openai.types.responses import Tool as SdkTool
from openai.types.responses import ToolParam
from openai.types.responses.response_create_params import ToolChoice as SdkToolChoice
from pydantic import TypeAdapter

from gateway.api.responses.tool_choice import parse_tool_choice
from gateway.api.responses.tools import TOOLS, parse_tools, tools_echo
from gateway.errors import BadRequest
from gateway.request import Tool, ToolName
from gateway.warnings import Warnings

NOTHING = {"type": "object", "properties": {}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def at(*definitions, path="tools"):
    return [(definition, f"{path}[{i}]") for i, definition in enumerate(definitions)]


def offer(*definitions):
    return parse_tools(at(*definitions), Warnings())


def function(name, **more):
    return {"type": "function", "name": name, **more}


def custom(name, **more):
    return {"type": "custom", "name": name, **more}


def namespace(name, *tools, **more):
    return {"type": "namespace", "name": name, "tools": [*tools], **more}


SEARCH = {"type": "tool_search", "execution": "client"}
F, G = (Tool(name, {"name": name, "parameters": NOTHING}) for name in "fg")

# Definitions, their tools, the warnings
OFFERED = [
    ([], [], []),
    ([function("f")], [F], []),
    ([function("f", parameters=None, strict=None, description=None)], [F], []),
    ([function("f", parameters=SCHEMA, strict=True, description="D.")],
     [Tool("f", {"name": "f", "parameters": SCHEMA, "description": "D.", "strict": True})], []),
    ([function("f", strict=False, allowed_callers=["direct"], output_schema={}, **{"async": True})], [F], []),
    ([function("f", defer_loading=True)], [F], []),
    ([function("f", cache=1)], [Tool("f", {"name": "f", "cache": 1, "parameters": NOTHING})], []),
    ([function("mcp__" + "x" * 123)], [Tool("mcp__" + "x" * 123, {"name": "mcp__" + "x" * 123, "parameters": NOTHING})], []),
    ([custom("c")], [Tool("c", {"name": "c"}, "custom")], []),
    ([custom("c", description="D.", format={"type": "text"})], [Tool("c", {"name": "c", "description": "D."}, "custom")], []),
    ([custom("c", format={"type": "grammar", "syntax": "lark", "definition": "start: x"})],
     [Tool("c", {"name": "c", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}}, "custom")], []),
    ([namespace("n", function("f", description="F."), custom("c"), description="N."), function("f")],
     [Tool("f", {"name": "f", "description": "N.\n\nF.", "parameters": NOTHING}, "function", "n"),
      Tool("c", {"name": "c", "description": "N."}, "custom", "n"), F], []),
    ([namespace("n", function("f"))], [Tool("f", {"name": "f", "description": "", "parameters": NOTHING}, "function", "n")], []),
    ([namespace("n")], [], ["dropped:tools.namespace"]),
    ([SEARCH, function("f", defer_loading=True), function("g")], [Tool("tool_search", {"name": "tool_search"}, "tool_search"), G], []),
    ([{**SEARCH, "description": "D.", "parameters": SCHEMA}],
     [Tool("tool_search", {"name": "tool_search", "description": "D.", "parameters": SCHEMA}, "tool_search")], []),
    ([{"type": "tool_search"}, function("f", defer_loading=True)], [F], ["dropped:tools.tool_search"]),
    ([{"type": "local_shell"}], [Tool("local_shell", {"name": "local_shell"}, "local_shell")], []),
    ([{"type": "shell"}], [Tool("shell", {"name": "shell"}, "shell")], []),
    ([{"type": "shell", "environment": {"type": "local"}}], [Tool("shell", {"name": "shell"}, "shell")], []),
    ([{"type": "shell", "environment": {"type": "local", "skills": [{"name": "n", "description": "D.", "path": "/p"}]}}],
     [Tool("shell", {"name": "shell", "description": "Skills, each described in the SKILL.md of its directory:\nn (/p): D."}, "shell")], []),
    ([{"type": "shell", "environment": {"type": "container_auto"}}], [], ["dropped:tools.shell"]),
    ([{"type": "apply_patch"}], [Tool("apply_patch", {"name": "apply_patch"}, "apply_patch")], []),
    ([{"type": "web_search"}, function("f"), {"type": "mcp", "server_label": "s"}], [F], ["dropped:tools.web_search", "dropped:tools.mcp"]),
    # tools with the name of a built-in tool
    ([{"type": "shell"}, function("shell")],
     [Tool("shell_1", {"name": "shell_1"}, "shell"), Tool("shell", {"name": "shell", "parameters": NOTHING})], []),
    ([{"type": "apply_patch"}, custom("apply_patch"), custom("apply_patch_1")],
     [Tool("apply_patch_2", {"name": "apply_patch_2"}, "apply_patch"), Tool("apply_patch", {"name": "apply_patch"}, "custom"),
      Tool("apply_patch_1", {"name": "apply_patch_1"}, "custom")], []),
    ([{"type": "shell"}, namespace("n", custom("shell"))],
     [Tool("shell", {"name": "shell"}, "shell"), Tool("shell", {"name": "shell", "description": ""}, "custom", "n")], []),
]  # fmt: skip


@pytest.mark.parametrize(("definitions", "tools", "listed"), OFFERED)
def test_tool_definition_becomes_a_tool_or_a_warning(definitions, tools, listed):
    ledger = Warnings()
    found = parse_tools(at(*definitions), ledger)
    assert [*found.tools] == tools and ledger.entries() == listed
    assert found.dropped == {entry.removeprefix("dropped:tools.") for entry in listed}


def test_tool_list_later_in_the_input_replaces_earlier_definitions():
    first, found, added = (function("f", description=description, defer_loading=True) for description in "123")
    tools = [SEARCH, first, function("g")]
    later = [*at(*tools), *at(found, path="input[2].tools"), *at(added, function("h"), path="input[4].tools")]
    found = [(tool.name, tool.definition.get("description")) for tool in parse_tools(later, Warnings()).tools]
    assert found == [("tool_search", None), ("f", "3"), ("g", None), ("h", None)]


def test_tool_definitions_of_the_client_are_not_changed():
    definitions = [custom("c", format={"type": "text"}), namespace("n", function("f"), description="N."), {"type": "mcp", "server_label": "s", "headers": {"a": "b"}}]  # fmt: skip
    before = json.dumps(definitions)
    offer(*definitions)
    tools_echo(definitions)
    assert json.dumps(definitions) == before


# Definitions that are refused, the code and the param of the error
WRONG = [
    ([{}], "missing_required_parameter", "tools[0].type"),
    ([{"type": "magic"}], "invalid_value", "tools[0].type"),
    ([function("f"), {"type": "computer"}], "unsupported_value", "tools[1].type"),
    ([{"type": "computer_use_preview"}], "unsupported_value", "tools[0].type"),
    ([{"type": "function"}], "missing_required_parameter", "tools[0].name"),
    ([{"type": "function", "function": {"name": "f"}}], "missing_required_parameter", "tools[0].name"),
    ([function("")], "empty_string", "tools[0].name"),
    ([function("x" * 129)], "string_above_max_length", "tools[0].name"),
    ([function("f", parameters=[])], "invalid_type", "tools[0].parameters"),
    ([function("f", strict="yes")], "invalid_type", "tools[0].strict"),
    ([function("f", description=1)], "invalid_type", "tools[0].description"),
    ([function("f", defer_loading=1)], "invalid_type", "tools[0].defer_loading"),
    ([custom("c", format="text")], "invalid_type", "tools[0].format"),
    ([custom("c", format={"type": "json"})], "invalid_value", "tools[0].format.type"),
    ([custom("c", format={"type": "grammar", "syntax": "lark"})], "missing_required_parameter", "tools[0].format.definition"),
    ([custom("c", format={"type": "grammar", "syntax": "ebnf", "definition": ""})], "invalid_value", "tools[0].format.syntax"),
    ([{"type": "namespace", "name": "n"}], "missing_required_parameter", "tools[0].tools"),
    ([namespace("n", {"type": "shell"})], "invalid_value", "tools[0].tools[0].type"),
    ([namespace("n", function("f"), function("g", strict=1))], "invalid_type", "tools[0].tools[1].strict"),
    ([{**SEARCH, "execution": "here"}], "invalid_value", "tools[0].execution"),
    ([{**SEARCH, "parameters": 1}], "invalid_type", "tools[0].parameters"),
    ([{"type": "shell", "environment": {"type": "cloud"}}], "invalid_value", "tools[0].environment.type"),
    ([{"type": "shell", "environment": {"type": "local", "skills": [{}]}}], "missing_required_parameter", "tools[0].environment.skills[0].name"),
    ([function("f"), custom("f")], "invalid_value", "tools[1].name"),
    ([namespace("n", function("f")), namespace("n", function("g"), custom("f"))], "invalid_value", "tools[1].tools[1].name"),
    ([{"type": "shell"}, {"type": "shell"}], "invalid_value", "tools[1].name"),
]  # fmt: skip


@pytest.mark.parametrize(("definitions", "code", "param"), WRONG)
def test_tool_definition_that_is_invalid_is_refused(definitions, code, param):
    with pytest.raises(BadRequest) as raised:
        offer(*definitions)
    assert (raised.value.problem.code, raised.value.problem.param) == (code, param)


def types(union):
    """Return the values of `type` of the members of a union of the SDK."""
    objects = (one for one in get_args(union) if "type" in getattr(one, "__annotations__", ()))
    return {value for one in objects for value in get_args(get_type_hints(one)["type"])}


def test_tool_types_of_the_sdk_are_all_known():
    assert types(ToolParam) == {*TOOLS}


def test_tool_choice_types_of_the_sdk_are_all_handled():
    """Each becomes a tool or an error of an unsupported value."""
    known = types(SdkToolChoice)
    assert len(known) == 15
    for type in sorted(known):
        try:
            parse_tool_choice(
                {"type": type, "name": "f", "server_label": "s", "mode": "auto", "tools": []}, OFFER, Warnings()
            )
        except BadRequest as error:
            assert error.problem.code == "unsupported_value"


# Tools as a Response repeats them

SECRET = "s3cret"
ECHOED = [
    (function("f"), {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None}),
    (function("f", strict=True, parameters={"properties": {"headers": {}}}),
     {"type": "function", "name": "f", "description": None, "parameters": {"properties": {"headers": {}}}, "strict": True}),
    (custom("c"), custom("c")),
    (namespace("n", function("f", parameters={"properties": {"authorization": {}}}), description="N."),
     namespace("n", function("f", parameters={"properties": {"authorization": {}}}), description="N.")),
    ({"type": "mcp", "server_label": "s", "authorization": SECRET, "headers": {"x": SECRET}, "allowed_tools": ["a"]},
     {"type": "mcp", "server_label": "s", "allowed_tools": ["a"]}),
    ({"type": "code_interpreter", "container": {"type": "auto", "network_policy": {"type": "allowlist", "allowed_domains": ["a"], "domain_secrets": [{"value": SECRET}]}}},
     {"type": "code_interpreter", "container": {"type": "auto", "network_policy": {"type": "allowlist", "allowed_domains": ["a"]}}}),
    ({"type": "shell", "environment": {"type": "container_auto", "network_policy": {"type": "allowlist", "allowed_domains": ["a"], "domain_secrets": [{"value": SECRET}]}}},
     {"type": "shell", "environment": {"type": "container_auto", "network_policy": {"type": "allowlist", "allowed_domains": ["a"]}}}),
]  # fmt: skip


@pytest.mark.parametrize(("definition", "wanted"), ECHOED)
def test_tool_is_echoed_with_all_fields_and_without_secrets(definition, wanted):
    (tool,) = tools_echo([definition])
    assert tool == wanted and SECRET not in json.dumps(tool)
    TypeAdapter(SdkTool).validate_json(json.dumps(tool), strict=True)


# tool_choice

OFFER = offer(
    function("f"), custom("c"), {"type": "shell"}, custom("apply_patch"), {"type": "apply_patch"}, {"type": "web_search"},
    namespace("n", function("g"), function("h")), namespace("m", custom("h")), namespace("a__b", function("x")),
    namespace("a", function("b__x"), function("f")),
)  # fmt: skip
WEB = {"type": "web_search"}


def allowed(*tools, mode="auto"):
    return {"type": "allowed_tools", "mode": mode, "tools": [*tools]}


CHOSEN = [  # tool_choice, its resolution, the warnings
    (None, (None, None), []),
    ("none", ("none", None), []),
    ("auto", ("auto", None), []),
    ("required", ("required", None), []),
    (function("f"), (ToolName("f"), None), []),
    (custom("c"), (ToolName("c"), None), []),
    (function("c"), (ToolName("c"), None), []),
    (function("n__g"), (ToolName("g", "n"), None), []),
    (function("g"), (ToolName("g", "n"), None), []),
    (function("h", namespace="m"), (ToolName("h", "m"), None), []),
    ({"type": "shell"}, (ToolName("shell"), None), []),
    ({"type": "apply_patch"}, (ToolName("apply_patch_1"), None), []),
    (custom("apply_patch"), (ToolName("apply_patch"), None), []),
    (allowed(function("f"), function("n__h")), ("auto", frozenset([ToolName("f"), ToolName("h", "n")])), []),
    (allowed({"type": "shell"}, WEB, mode="required"), ("required", frozenset([ToolName("shell")])), ["dropped:tool_choice.tools"]),
    (allowed({"type": "mcp", "server_label": "s"}), (None, frozenset()), ["dropped:tool_choice.tools"]),
    (allowed(), (None, frozenset()), []),
]  # fmt: skip


@pytest.mark.parametrize(("choice", "wanted", "listed"), CHOSEN)
def test_tool_choice_is_resolved_against_the_tools(choice, wanted, listed):
    ledger = Warnings()
    assert parse_tool_choice(choice, OFFER, ledger) == wanted and ledger.entries() == listed


@pytest.mark.parametrize("choice", [None, "auto", "none", allowed()])
def test_tool_choice_is_absent_without_tools(choice):
    assert parse_tool_choice(choice, offer(), Warnings())[0] is None
    assert parse_tool_choice(choice, offer(WEB), Warnings())[0] is None


WRONG_CHOICES = [  # tool_choice, the tools, the code and the param of the error
    ("maybe", OFFER, "invalid_value", "tool_choice"),
    (5, OFFER, "invalid_type", "tool_choice"),
    ({}, OFFER, "missing_required_parameter", "tool_choice.type"),
    ({"type": "any"}, OFFER, "invalid_value", "tool_choice.type"),
    ({"type": "function"}, OFFER, "missing_required_parameter", "tool_choice.name"),
    ({"type": "function", "name": "f", "namespace": 1}, OFFER, "invalid_type", "tool_choice.namespace"),
    ({"type": "allowed_tools", "tools": []}, OFFER, "missing_required_parameter", "tool_choice.mode"),
    ({"type": "allowed_tools", "mode": "none", "tools": []}, OFFER, "invalid_value", "tool_choice.mode"),
    ({"type": "allowed_tools", "mode": "auto"}, OFFER, "missing_required_parameter", "tool_choice.tools"),
    (allowed(allowed()), OFFER, "invalid_value", "tool_choice.tools[0].type"),
    (allowed(function("f"), {"type": "custom"}), OFFER, "missing_required_parameter", "tool_choice.tools[1].name"),
    (function("unknown"), OFFER, "invalid_value", "tool_choice"),
    (function("g", namespace="m"), OFFER, "invalid_value", "tool_choice"),
    (function("shell"), OFFER, "invalid_value", "tool_choice"),
    (allowed(function("unknown")), OFFER, "invalid_value", "tool_choice"),
    ({"type": "local_shell"}, OFFER, "invalid_value", "tool_choice"),
    (function("h"), OFFER, "invalid_value", "tool_choice"),
    (function("a__b__x"), OFFER, "invalid_value", "tool_choice"),
    (WEB, OFFER, "unsupported_value", "tool_choice"),
    ({"type": "mcp", "server_label": "s"}, OFFER, "unsupported_value", "tool_choice"),
    ({"type": "shell"}, offer({"type": "shell", "environment": {"type": "container_auto"}}), "unsupported_value", "tool_choice"),
    ("required", offer(), None, "tool_choice"),
    (allowed(mode="required"), OFFER, None, "tool_choice"),
    (allowed(WEB, mode="required"), OFFER, None, "tool_choice"),
    ("required", offer(WEB), "unsupported_value", "tool_choice"),
]  # fmt: skip


@pytest.mark.parametrize(("choice", "offer", "code", "param"), WRONG_CHOICES)
def test_tool_choice_that_is_invalid_is_refused(choice, offer, code, param):
    with pytest.raises(BadRequest) as raised:
        parse_tool_choice(choice, offer, Warnings())
    assert (raised.value.problem.code, raised.value.problem.param) == (code, param)


def test_tool_choice_leaves_out_an_allowed_tool_that_was_dropped():
    ledger = Warnings()
    some = offer(function("f"), {"type": "shell", "environment": {"type": "container_auto"}})
    assert parse_tool_choice(allowed({"type": "shell"}, function("f")), some, ledger) == (
        "auto",
        frozenset([ToolName("f")]),
    )
    assert ledger.entries() == ["dropped:tool_choice.tools"]


def test_tool_choice_of_an_ambiguous_name_is_refused():
    with pytest.raises(BadRequest, match="2 tools are named 'h'"):
        parse_tool_choice(function("h"), OFFER, Warnings())
