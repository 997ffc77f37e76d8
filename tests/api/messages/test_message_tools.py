"""Test the tools of /v1/messages: client tools as functions, tools of the server, and the choice among them."""

import pytest

from gateway.api.messages.typed_tools import TYPED_TOOLS
from gateway.request import Tool, ToolName
from support.messages import SERVES, TOOL, parsed, refusal_message, warnings_of

SCHEMA = {"type": "object", "properties": {}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
FETCH = {"type": "web_fetch_20250910", "name": "web_fetch", "max_uses": 2}
SERVER = {"type": "url", "url": "http://a", "name": "s", "authorization_token": "t"}
HOSTED = {
    "type": "mcp",
    "server_label": "s",
    "server_url": "http://a",
    "authorization": "t",
    "require_approval": "never",
}


def tools_of(*tools, **fields):
    return parsed(tools=[*tools], **fields).request.tools


def function(**members):
    return (Tool("f", {"name": "f", **members}),)


CUSTOM = {
    "bare": ({"name": "f", "input_schema": SCHEMA}, {"parameters": SCHEMA}, []),
    "described": ({**TOOL, "type": "custom"}, {"description": "d", "parameters": SCHEMA}, []),
    "strict": ({**TOOL, "strict": True}, {"description": "d", "parameters": SCHEMA, "strict": True}, []),
    "without an effect": (
        {**TOOL, "cache_control": {}, "eager_input_streaming": True, "allowed_callers": ["direct"], "defer_loading": False},
        {"description": "d", "parameters": SCHEMA},
        [],
    ),
    "examples": (
        {**TOOL, "input_examples": [{"a": 1}]},
        {"description": 'd\n\nExamples of input: [{"a":1}]', "parameters": SCHEMA},
        ["translated:tools.input_examples"],
    ),
    "examples alone": (
        {"name": "f", "input_schema": SCHEMA, "input_examples": [{}]},
        {"description": "Examples of input: [{}]", "parameters": SCHEMA},
        ["translated:tools.input_examples"],
    ),
    "deferred": ({**TOOL, "defer_loading": True}, {"description": "d", "parameters": SCHEMA}, ["emulated:defer_loading"]),
}  # fmt: skip


@pytest.mark.parametrize("tool, members, warnings", CUSTOM.values(), ids=CUSTOM)
def test_custom_tool_is_a_function(tool, members, warnings):
    assert tools_of(tool) == function(**members)
    assert warnings_of(tools=[tool]) == warnings


@pytest.mark.parametrize("type", TYPED_TOOLS)
def test_typed_tool_is_a_function_of_its_name(type):
    (tool,) = tools_of({"type": type, "name": "t"})
    parameters = tool.definition["parameters"]
    assert (tool.name, tool.kind, parameters["type"]) == ("t", "function", "object")
    assert set(parameters["required"]) <= parameters["properties"].keys()
    assert warnings_of(tools=[{"type": type, "name": "t"}]) == [f"translated:tools.{type[:-9]}"]


def test_typed_tool_describes_what_the_client_has():
    sized = {"type": "computer_20250124", "name": "computer", "display_width_px": 1024, "display_height_px": 768}
    assert tools_of(sized)[0].definition["description"].endswith("The display has 1024 x 768 pixels.")
    cut = {"type": "text_editor_20250728", "name": "e", "max_characters": 9}
    assert tools_of(cut)[0].definition["description"].endswith("At most 9 characters of a file are shown.")


DROPPED = {
    "web search": (SEARCH, "dropped:tools.web_search"),
    "web fetch": (FETCH, "dropped:tools.web_fetch"),
    "code": ({"type": "code_execution_20250825", "name": "code_execution"}, "dropped:tools.code_execution"),
    "tool search": (
        {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}, "dropped:tools.tool_search_tool_regex",
    ),
    "computer toolset": ({"type": "computer_toolset_20260801"}, "dropped:tools.computer_toolset"),
}  # fmt: skip


@pytest.mark.parametrize("tool, warning", DROPPED.values(), ids=DROPPED)
def test_tool_that_nothing_runs_is_left_out(tool, warning):
    assert tools_of(tool) == ()
    assert warnings_of(tools=[tool]) == [warning]


def test_server_runs_what_it_can():
    search = {
        **SEARCH,
        "allowed_domains": ["a"],
        "user_location": {"type": "approximate", "city": "Oslo", "country": None},
    }
    params = parsed(SERVES, tools=[search, FETCH, {"type": "code_execution_20250825", "name": "c"}])
    assert params.hosted.definitions == (
        {"type": "web_search", "filters": {"allowed_domains": ["a"]}, "user_location": {"city": "Oslo"}},
    )
    assert (params.hosted.max_calls, params.request.tools) == (10, ())


def test_blocked_domains_are_reported():
    search = {"type": "web_search_20260209", "name": "web_search", "blocked_domains": ["a"]}
    assert warnings_of(SERVES, tools=[search]) == ["dropped:tools.web_search.blocked_domains"]
    assert parsed(SERVES, tools=[search]).hosted.max_calls is None


TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "s"}
OFF, ON = {"enabled": False}, {"enabled": True}
SERVERS = {
    "all tools": (SERVER, [], {}, []),
    "without a token": ({**SERVER, "authorization_token": None}, [], {"authorization": None}, []),
    "some tools": (
        {**SERVER, "tool_configuration": {"enabled": True, "allowed_tools": ["f"]}}, [], {"allowed_tools": ["f"]}, [],
    ),
    "a set of all": (SERVER, [TOOLSET], {}, []),
    "a set of some": (
        SERVER, [{**TOOLSET, "default_config": OFF, "configs": {"f": ON, "g": OFF, "h": {}}}], {"allowed_tools": ["f", "h"]}, [],
    ),
    "a set of others": (SERVER, [{**TOOLSET, "configs": {"f": OFF}}], {}, ["dropped:tools.mcp_toolset.configs"]),
}  # fmt: skip


@pytest.mark.parametrize("server, tools, members, warnings", SERVERS.values(), ids=SERVERS)
def test_mcp_server_is_called_by_the_gateway(server, tools, members, warnings):
    params = parsed(SERVES, mcp_servers=[server], tools=tools)
    wanted = {name: value for name, value in {**HOSTED, **members}.items() if value is not None}
    assert params.hosted.definitions == (wanted,)
    assert warnings_of(SERVES, mcp_servers=[server], tools=tools) == warnings


CHOICES = {
    "auto": ({"type": "auto"}, None),
    "any": ({"type": "any"}, "required"),
    "none": ({"type": "none"}, "none"),
    "tool": ({"type": "tool", "name": "f"}, ToolName("f")),
}


@pytest.mark.parametrize("choice, neutral", CHOICES.values(), ids=CHOICES)
def test_choice_of_a_tool(choice, neutral):
    assert parsed(tools=[TOOL], tool_choice=choice).request.tool_choice == neutral


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "web_search"}], ids=["any", "tool"])
def test_choice_of_a_tool_that_nothing_runs_is_none(choice):
    assert parsed(tools=[SEARCH], tool_choice=choice).request.tool_choice is None
    assert warnings_of(tools=[SEARCH], tool_choice=choice) == ["dropped:tools.web_search", "unenforced:tool_choice"]


def test_choice_of_a_tool_that_runs_at_the_gateway():
    assert parsed(SERVES, tools=[SEARCH], tool_choice={"type": "any"}).request.tool_choice == "required"
    named = {"type": "tool", "name": "s"}
    assert parsed(SERVES, mcp_servers=[SERVER], tool_choice=named).request.tool_choice == ToolName("", "s")


REFUSED = {
    "type": ({"tools": [{"type": "x_20250101", "name": "x"}]}, "tools.0: Input tag 'x_20250101' found using 'type' does"),
    "no object": ({"tools": ["f"]}, "tools.0: expected an object, but got a string instead."),
    "no name": ({"tools": [{"input_schema": {}}]}, "tools.0.name: Field required"),
    "empty name": ({"tools": [{**TOOL, "name": ""}]}, "tools.0.name: empty string."),
    "no schema": ({"tools": [TOOL, {"name": "f"}]}, "tools.1.input_schema: Field required"),
    "two of a name": ({"tools": [TOOL, TOOL]}, "tools.1.name: Tool names must be unique."),
    "choice without tools": (
        {"tool_choice": {"type": "auto"}}, "tool_choice: tool_choice may only be specified while providing tools",
    ),
    "unknown choice": (
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name: Tool 'g' not found in provided",
    ),
    "choice without a name": ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name: Field required"),
}  # fmt: skip


@pytest.mark.parametrize("fields, message", REFUSED.values(), ids=REFUSED)
def test_tools_are_refused(fields, message):
    assert refusal_message(**fields).startswith(message)
