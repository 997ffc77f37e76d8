"""Test the tools of /v1/messages: client tools as functions, tools of the server, and the choice among them."""

import json

import pytest

from gateway.api.chat.schema import KNOWN
from gateway.api.messages.typed_tools import TYPED_TOOLS
from gateway.backends import KINDS
from gateway.backends.dialects import DIALECTS
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget
from gateway.request import Tool, ToolName
from gateway.warnings import Warnings
from support.messages import QUESTION, SERVES, TOOL, parsed, refusal_message, system, warnings_of

SCHEMA = {"type": "object", "properties": {}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
FETCH = {"type": "web_fetch_20250910", "name": "web_fetch", "max_uses": 2}
SEARCHES = frozenset((ToolName("search", "web_search"),))
PAGES = frozenset((ToolName("open_page", "web_search"), ToolName("find_in_page", "web_search")))
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
    "unknown members": ({**TOOL, "weight": 1}, {"description": "d", "parameters": SCHEMA}, ["dropped:tools.weight"]),
}  # fmt: skip


@pytest.mark.parametrize("tool, members, warnings", CUSTOM.values(), ids=CUSTOM)
def test_custom_tool_is_a_function(tool, members, warnings):
    assert tools_of(tool) == function(**members)
    assert warnings_of(tools=[tool]) == warnings


@pytest.mark.parametrize("kind", KINDS)
def test_deferred_tool_is_deferred_by_servers_that_know_such_tools(kind):
    ledger, known = Warnings(), KINDS[kind]
    request = parsed(tools=[{**TOOL, "defer_loading": True}]).request
    body = json.loads(DIALECTS[known.dialect].body(request, BodyTarget("m", known, MessagePolicy()), KNOWN, ledger))
    tool = body["tools"][0]
    deferred = tool.get("function", tool).get("defer_loading", False)
    assert (deferred, "emulated:defer_loading" in ledger.entries()) == (kind == "vllm", kind != "vllm")


def test_deferred_tool_is_offered_at_once_if_the_search_for_it_is_missing():
    search = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    fields = {"tools": [{**TOOL, "defer_loading": True}, search]}
    assert parsed(**fields).request.tools == function(description="d", parameters=SCHEMA)
    assert warnings_of(**fields) == ["dropped:tools.tool_search_tool_regex", "emulated:defer_loading"]


@pytest.mark.parametrize("type", TYPED_TOOLS)
def test_typed_tool_is_a_function_of_its_name(type):
    (tool,) = tools_of({"type": type, "name": "t"})
    parameters = tool.definition["parameters"]
    assert (tool.name, tool.kind, parameters["type"]) == ("t", "function", "object")
    assert set(parameters["required"]) <= parameters["properties"].keys()
    assert warnings_of(tools=[{"type": type, "name": "t"}]) == [f"translated:tools.{type[:-9]}"]


FILES = {"path", "file_text", "old_str", "new_str", "insert_line", "insert_text", "view_range"}
EDITS = ["view", "create", "str_replace", "insert"]
PROPERTIES = {
    "bash_20250124": ({"command", "restart"}, None),
    "text_editor_20250124": ({"command", *FILES}, [*EDITS, "undo_edit"]),
    "text_editor_20250429": ({"command", *FILES}, EDITS),
    "text_editor_20250728": ({"command", *FILES}, EDITS),
    "memory_20250818": ({"command", *FILES, "old_path", "new_path"}, [*EDITS, "delete", "rename"]),
}


@pytest.mark.parametrize("type", PROPERTIES)
def test_typed_tool_has_the_arguments_that_its_client_reads(type):
    properties, commands = PROPERTIES[type]
    (tool,) = tools_of({"type": type, "name": "t"})
    found = tool.definition["parameters"]["properties"]
    assert (found.keys(), found["command"].get("enum")) == (properties, commands)


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
    assert (params.hosted.max_uses, params.request.tools) == ({SEARCHES: 8, PAGES: 2}, ())


LIMITS = {
    "search alone": ([SEARCH], {SEARCHES | PAGES: 8}),
    "fetch alone": ([FETCH], {SEARCHES | PAGES: 2}),
    "search beside a fetch": ([SEARCH, {**FETCH, "max_uses": None}], {SEARCHES: 8}),
    "fetch beside a search": ([{**SEARCH, "max_uses": None}, FETCH], {PAGES: 2}),
    "none": ([{**SEARCH, "max_uses": None}], {}),
}


@pytest.mark.parametrize("tools, limits", LIMITS.values(), ids=LIMITS)
def test_limit_of_uses_is_that_of_each_server_tool(tools, limits):
    assert parsed(SERVES, tools=tools).hosted.max_uses == limits


def test_blocked_domains_are_those_of_the_search():
    search = {"type": "web_search_20260209", "name": "web_search", "blocked_domains": ["a"]}
    assert warnings_of(SERVES, tools=[search]) == []
    assert parsed(SERVES, tools=[search]).hosted.definitions[0]["filters"] == {"blocked_domains": ["a"]}
    assert parsed(SERVES, tools=[search]).hosted.max_uses == {}


def test_domains_of_a_fetch_beside_a_search_are_reported_unless_they_are_the_same():
    near, far = {"allowed_domains": ["a"]}, {"blocked_domains": ["b"], "user_location": {"city": "Oslo"}}
    assert warnings_of(SERVES, tools=[{**SEARCH, **near}, {**FETCH, **near}]) == []
    reported = ["dropped:tools.web_fetch.filters", "dropped:tools.web_fetch.user_location"]
    assert warnings_of(SERVES, tools=[{**SEARCH, **near}, {**FETCH, **far}]) == reported
    assert parsed(SERVES, tools=[{**SEARCH, **near}, {**FETCH, **far}]).hosted.definitions[0]["filters"] == near


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
    "a set of others": (SERVER, [{**TOOLSET, "configs": {"f": OFF, "g": ON}}], {"disabled_tools": ["f"]}, []),
    "a deferred set": (SERVER, [{**TOOLSET, "default_config": {"defer_loading": True}}], {}, ["emulated:defer_loading"]),
    "a pinned set": (SERVER, [{**TOOLSET, "tools": []}], {}, ["dropped:tools.mcp_toolset.tools"]),
}  # fmt: skip


@pytest.mark.parametrize("server, tools, members, warnings", SERVERS.values(), ids=SERVERS)
def test_mcp_server_is_called_by_the_gateway(server, tools, members, warnings):
    params = parsed(SERVES, mcp_servers=[server], tools=tools)
    wanted = {name: value for name, value in {**HOSTED, **members}.items() if value is not None}
    assert params.hosted.definitions == (wanted,)
    assert warnings_of(SERVES, mcp_servers=[server], tools=tools) == warnings


def test_mcp_server_of_the_operator_is_named_by_a_toolset():
    params = parsed(SERVES, tools=[TOOLSET])
    assert params.hosted.definitions == ({"type": "mcp", "server_label": "s", "require_approval": "never"},)
    assert warnings_of(tools=[TOOLSET]) == ["dropped:tools.mcp_toolset"]


def test_mcp_server_of_a_name_is_the_first():
    params = parsed(SERVES, mcp_servers=[SERVER, {**SERVER, "url": "http://b"}])
    assert [one["server_url"] for one in params.hosted.definitions] == ["http://a"]


# Changes amid a conversation


def reference(name="f"):
    return {"type": "tool_reference", "name": name}


def mcp_tool(name="f", server="s"):
    return {"type": "mcp_tool_reference", "server_name": server, "name": name}


def mcp_set(server="s"):
    return {"type": "mcp_toolset_reference", "server_name": server}


def defined(**definition):
    return {"type": "tool_definition", "definition": definition}


def adds(tool):
    return {"type": "tool_addition", "tool": tool}


def removes(tool):
    return {"type": "tool_removal", "tool": tool}


G = {**TOOL, "name": "g"}
CHANGES = {
    "none": ([], "fg", []),
    "removal": ([removes(reference())], "g", []),
    "removal and addition": ([removes(reference()), adds(reference())], "fg", []),
    "addition of what is there": ([adds(reference("g"))], "fg", []),
    "addition of a definition": ([adds(defined(name="h", input_schema=SCHEMA))], "fgh", []),
    "removal of a definition": ([adds(defined(name="h", input_schema=SCHEMA)), removes(reference("h"))], "fg", []),
    "another definition": ([removes(reference()), adds(defined(name="f", input_schema=SCHEMA))], "gf", []),
    "removal of an unknown one": ([removes(reference("x"))], "fg", ["dropped:tool_removal"]),
    "addition of an unknown one": ([adds(reference("x"))], "fg", ["dropped:tool_addition"]),
    "tool of an unknown server": ([removes(mcp_tool())], "fg", ["dropped:tool_removal"]),
    "unknown server": ([adds(mcp_set())], "fg", ["dropped:tool_addition"]),
}  # fmt: skip


@pytest.mark.parametrize("blocks, names, warnings", CHANGES.values(), ids=CHANGES)
def test_tools_change_amid_a_conversation(blocks, names, warnings):
    fields = {"tools": [TOOL, G], "messages": [QUESTION, *(system(block) for block in blocks)]}
    assert "".join(tool.name for tool in parsed(**fields).request.tools) == names
    assert warnings_of(**fields) == warnings


def test_tool_may_be_defined_and_chosen_amid_a_conversation():
    fields = {"messages": [QUESTION, system(adds(defined(**TOOL)))], "tool_choice": {"type": "tool", "name": "f"}}
    assert parsed(**fields).request.tool_choice == ToolName("f")


SERVER_CHANGES = {
    "one tool": ([removes(mcp_tool())], [{**HOSTED, "disabled_tools": ["f"]}]),
    "one tool, added again": ([removes(mcp_tool()), adds(mcp_tool())], [HOSTED]),
    "all tools": ([removes(mcp_set())], []),
    "all tools, added again": ([removes(mcp_set()), adds(mcp_set())], [HOSTED]),
    "all tools, defined again": ([removes(mcp_set()), adds(defined(**TOOLSET))], [HOSTED]),
}


@pytest.mark.parametrize("blocks, hosted", SERVER_CHANGES.values(), ids=SERVER_CHANGES)
def test_tools_of_an_mcp_server_change_amid_a_conversation(blocks, hosted):
    fields = {"mcp_servers": [SERVER], "messages": [QUESTION, system(*blocks)]}
    assert [*parsed(SERVES, **fields).hosted.definitions] == hosted
    assert warnings_of(SERVES, **fields) == []


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
    "addition without a tool": (
        {"messages": [QUESTION, system({"type": "tool_addition"})]}, "messages.1.content.0.tool: Field required",
    ),
    "removal of a definition": (
        {"messages": [QUESTION, system(removes(defined()))]},
        "messages.1.content.0.tool.type: Invalid value: 'tool_definition'.",
    ),
    "reference without a name": (
        {"messages": [QUESTION, system(adds({"type": "tool_reference"}))]}, "messages.1.content.0.tool.name: Field required",
    ),
    "invalid definition": (
        {"messages": [QUESTION, system(adds(defined(name="h")))]},
        "messages.1.content.0.tool.definition.input_schema: Field required",
    ),
    "settings of a tool in a set": (
        {"tools": [{**TOOLSET, "configs": {"f": 1}}]}, "tools.0.configs.f: expected an object, but got an integer instead.",
    ),
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
