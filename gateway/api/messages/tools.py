"""Convert the tools and the tool choice of a message to neutral ones; server tools run at the gateway or are dropped.

A tool that runs at the gateway has a definition in the form of the Responses API.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from gateway.api.messages.block_members import report_unknown
from gateway.api.messages.content import unknown_tag
from gateway.api.messages.errors import refused
from gateway.api.messages.tool_changes import ToolChange, tool_changes
from gateway.api.messages.typed_tools import TYPED_TOOLS, ToolDefinition
from gateway.api.responses.tools import BuiltinToolFilter, namespace_of
from gateway.api.validation import (
    ParamCheck,
    boolean,
    integer_between,
    list_of,
    object_,
    object_of,
    one_of,
    string,
    string_of,
)
from gateway.request import Tool, ToolChoice, ToolName
from gateway.warnings import Warnings

_SETTINGS: dict[str, ParamCheck] = {"enabled": boolean, "defer_loading": boolean}
_check_settings = object_of({}, _SETTINGS)
_check_toolset = object_of(
    {"mcp_server_name": string}, {"default_config": _check_settings, "configs": object_, "tools": list_of(object_)}
)


class HostedServer(Struct, frozen=True):
    """An MCP server for the gateway to call.

    definition: in the form of the Responses API.
    subject: the member of the client's body that a warning names if the gateway does not call it.
    """

    name: str
    definition: ToolDefinition
    subject: str


class McpToolsets:
    """Collect the toolsets of a body, and later changes to them."""

    def __init__(self, servers: Sequence[ToolDefinition], ledger: Warnings) -> None:
        self._servers = {server["name"]: server for server in reversed(servers)}  # of two with a name, the first
        self._ledger = ledger
        self._toolsets: dict[str, ToolDefinition] = {}
        self._withdrawn: set[str] = set()  # names of servers
        self._changed: dict[str, dict[str, bool]] = {}  # by server: whether a tool is available

    def add(self, definition: ToolDefinition, param: str) -> None:
        """Add a toolset.  Raise BadRequest for an invalid one."""
        _check_toolset(definition, param)
        for name, config in (definition.get("configs") or {}).items():
            _check_settings(config, f"{param}.configs.{name}")
        if definition.get("tools") is not None:
            self._ledger.add("dropped", "tools.mcp_toolset.tools")
        if any(config.get("defer_loading") for config in _configs(definition)):
            self._ledger.add("emulated", "defer_loading")
        self._toolsets[definition["mcp_server_name"]] = definition
        self._withdrawn.discard(definition["mcp_server_name"])

    def change_server(self, name: str, *, available: bool) -> bool:
        """Add or withdraw all tools of a server; return False for an unknown server."""
        if not self._knows(name):
            return False
        (self._withdrawn.discard if available else self._withdrawn.add)(name)
        return True

    def change_tool(self, server: str, name: str, *, available: bool) -> bool:
        """Add or withdraw one tool; return False for an unknown server."""
        if self._knows(server):
            self._changed.setdefault(server, {})[name] = available
        return self._knows(server)

    def hosted(self) -> Iterator[HostedServer]:
        """Yield the servers to call; one that the body only names is the operator's."""
        for name in dict.fromkeys((*self._servers, *self._toolsets)):
            if name not in self._withdrawn:
                server = self._servers.get(name)
                subject = "mcp_servers" if server else "tools.mcp_toolset"
                yield HostedServer(name, {**_address(name, server), **self._available(name)}, subject)

    def _knows(self, name: str) -> bool:
        return name in self._servers or name in self._toolsets

    def _available(self, name: str) -> ToolDefinition:
        """Return which tools of a server the model may call, as members of its definition."""
        toolset, changes = self._toolsets.get(name, {}), self._changed.get(name, {})
        configs = {tool: config.get("enabled") for tool, config in (toolset.get("configs") or {}).items()} | changes
        off = [tool for tool, enabled in configs.items() if enabled is False]
        if (toolset.get("default_config") or {}).get("enabled") is False:
            return {"allowed_tools": [tool for tool in configs if tool not in off]}
        allowed = (self._servers.get(name, {}).get("tool_configuration") or {}).get("allowed_tools")
        members = {"allowed_tools": allowed} if allowed is not None else {}
        return {**members, "disabled_tools": off} if off else members


def _configs(toolset: ToolDefinition) -> Iterator[Mapping[str, Any]]:
    yield toolset.get("default_config") or {}
    yield from (toolset.get("configs") or {}).values()


def _address(name: str, server: ToolDefinition | None) -> ToolDefinition:
    definition = {"type": "mcp", "server_label": name, "require_approval": "never"}
    if server:
        definition["server_url"] = server["url"]
        if token := server.get("authorization_token"):
            definition["authorization"] = token
    return definition


_DATED = re.compile(r"_\d{8}$")
_WEB, _FETCH, _TOOL_SEARCH = "web_search", "web_fetch", "tool_search_tool"
# The gateway's own tools that each server tool stands for.
_WEB_TOOLS = {
    _WEB: frozenset((ToolName("search", _WEB),)),
    _FETCH: frozenset((ToolName("open_page", _WEB), ToolName("find_in_page", _WEB))),
}
# Types of server tools without their date; the gateway can have the first two.
_SERVER_TYPES = (
    _WEB, _FETCH, "code_execution", f"{_TOOL_SEARCH}_regex", f"{_TOOL_SEARCH}_bm25", _TOOL_SEARCH,
    "advisor", "computer_toolset", "browser_toolset",
)  # fmt: skip
_NAME = string_of(128, least=1)
_CUSTOM = object_of(
    {"name": _NAME, "input_schema": object_},
    {
        "type": string,
        "description": string,
        "strict": boolean,
        "input_examples": list_of(object_),
        "defer_loading": boolean,
    },
)
_OF_CUSTOM = frozenset(
    ("name", "input_schema", "type", "description", "strict", "input_examples", "defer_loading", "cache_control",
     "eager_input_streaming", "allowed_callers")
)  # fmt: skip
_TYPED = object_of({"name": _NAME}, {"display_width_px": integer_between(1), "display_height_px": integer_between(1)})
_SERVED: dict[str, ParamCheck] = {"allowed_domains": list_of(string), "blocked_domains": list_of(string)}
_SERVER = object_of({}, {"name": string, "max_uses": integer_between(1), "user_location": object_, **_SERVED})
_NAMED = object_of({"type": one_of("tool"), "name": string})
_TAGS = ("custom", *TYPED_TOOLS, *_SERVER_TYPES, "mcp_toolset")


class OfferedMessageTools(Struct):
    """The tools of a message.

    hosted: definitions of tools that run at the gateway; names: the client's names of these, and the gateway's.
    dropped: names of tools that do not run here; max_uses: limits of calls, each of some tools together.
    """

    tools: list[Tool] = []
    hosted: list[ToolDefinition] = []
    names: dict[str, ToolName] = {}
    dropped: set[str] = set()
    max_uses: dict[frozenset[ToolName], int] = {}


def is_known(type: object) -> bool:
    """Return True for the type of a tool that the API has; a function may have none."""
    return type is None or type in _TAGS or (isinstance(type, str) and _DATED.sub("", type) in _SERVER_TYPES)


def parse_message_tools(body: Mapping[str, Any], runs: BuiltinToolFilter, ledger: Warnings) -> OfferedMessageTools:
    """Return the tools of a body.  Raise BadRequest for an invalid tool.

    runs: decides whether a definition in the form of the Responses API runs at the gateway.
    """
    reader = _ToolReader(runs, McpToolsets(body.get("mcp_servers") or (), ledger), ledger)
    for i, definition in enumerate(body.get("tools") or ()):
        reader.read(definition, f"tools[{i}]")
    for change in tool_changes(body):
        reader.apply(change)
    return reader.offered()


def parse_message_tool_choice(
    body: Mapping[str, Any], offered: OfferedMessageTools, ledger: Warnings
) -> ToolChoice | None:
    """Return the neutral choice, None for `auto`.  Raise BadRequest for an unknown tool."""
    choice = body.get("tool_choice")
    if not choice:
        return None
    if not (body.get("tools") or body.get("mcp_servers") or offered.tools):
        raise refused("tool_choice may only be specified while providing tools", "tool_choice")
    match choice["type"]:
        case "none":
            return "none"
        case "any":
            return _forced("required" if offered.tools or offered.hosted else None, ledger)
        case "tool":
            _NAMED(choice, "tool_choice")
            return _named(choice["name"], offered, ledger)
    return None


def _forced(choice: ToolChoice | None, ledger: Warnings) -> ToolChoice | None:
    if choice is None:
        ledger.add("unenforced", "tool_choice")
    return choice


def _named(name: str, offered: OfferedMessageTools, ledger: Warnings) -> ToolChoice | None:
    if any(tool.name == name for tool in offered.tools):
        return ToolName(name)
    if name in offered.names:
        return offered.names[name]
    if name in offered.dropped:
        return _forced(None, ledger)
    raise refused(f"Tool '{name}' not found in provided tools", "tool_choice.name")


class _ToolReader:
    """Read the tools of one body, one by one."""

    def __init__(self, runs: BuiltinToolFilter, toolsets: McpToolsets, ledger: Warnings) -> None:
        self._runs, self._toolsets, self._ledger = runs, toolsets, ledger
        self._functions: dict[str, Tool] = {}
        self._withdrawn: set[str] = set()  # names of functions
        self._searched = False  # a search of tools is missing, so that no deferred tool could be found
        self._hosted: dict[str, ToolDefinition] = {}  # tools that run at the gateway, by namespace
        self._uses: dict[str, int] = {}  # limits of the server tools that run at the gateway; 0: none
        self._offered = OfferedMessageTools()

    def offered(self) -> OfferedMessageTools:
        """Return the tools, once all definitions and changes are read."""
        for server in self._toolsets.hosted():
            if not self._host(server.definition, server.name):
                self._ledger.add("dropped", server.subject)
        tools = [tool for name, tool in self._functions.items() if name not in self._withdrawn]
        if self._searched and any(tool.deferred for tool in tools):
            self._ledger.add("emulated", "defer_loading")
            tools = [replace(tool, deferred=False) for tool in tools]
        self._offered.tools += tools
        self._offered.max_uses = self._max_uses()
        return self._offered

    def read(self, definition: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
        """Read one definition.  Raise BadRequest for an invalid one."""
        object_of({}, {"type": string})(definition, param)
        type = definition.get("type") or "custom"
        name = _DATED.sub("", type)
        if type == "custom":
            _CUSTOM(definition, param)
            report_unknown(definition, _OF_CUSTOM, "tools", self._ledger)
            self._add(self._function(definition), param, deferred=bool(definition.get("defer_loading")))
        elif typed := TYPED_TOOLS.get(type):
            _TYPED(definition, param)
            self._ledger.add("translated", f"tools.{name}")
            self._add(typed.function(definition), param)
        elif type == "mcp_toolset":
            self._toolsets.add(definition, param)
        elif name in _SERVER_TYPES:
            _SERVER(definition, param)
            self._read_server_tool(name, definition)
        else:
            raise unknown_tag(type, param, _TAGS)

    def apply(self, change: ToolChange) -> None:
        """Add or withdraw a tool; a change of a tool that is not a function or of an MCP server is dropped."""
        if not self._changed(change.tool, change.param, adds=change.adds):
            self._ledger.add("dropped", change.block)

    def _changed(self, tool: ToolDefinition, param: str, *, adds: bool) -> bool:
        """Return True if the tool is known, and is available or withdrawn now."""
        match tool["type"]:
            case "tool_definition":
                self._functions.pop(str(tool["definition"].get("name")), None)
                self._withdrawn.discard(str(tool["definition"].get("name")))
                self.read(tool["definition"], f"{param}.definition")
                return True
            case "mcp_tool_reference":
                return self._toolsets.change_tool(tool["server_name"], tool["name"], available=adds)
            case "mcp_toolset_reference":
                return self._toolsets.change_server(tool["server_name"], available=adds)
        (self._withdrawn.discard if adds else self._withdrawn.add)(tool["name"])
        return tool["name"] in self._functions

    def _add(self, function: ToolDefinition, param: str, *, deferred: bool = False) -> None:
        name = function["name"]
        if name in self._functions:
            raise refused("Tool names must be unique.", f"{param}.name")
        self._functions[name] = Tool(name, function, deferred=deferred)

    def _function(self, definition: ToolDefinition) -> ToolDefinition:
        function = {"name": definition["name"], "parameters": definition["input_schema"]}
        described = definition.get("description")
        if examples := definition.get("input_examples"):
            self._ledger.add("translated", "tools.input_examples")
            described = f"{described or ''}\n\nExamples of input: {json.encode(examples).decode()}".strip()
        if described is not None:
            function["description"] = described
        if definition.get("strict") is not None:
            function["strict"] = definition["strict"]
        return function

    def _read_server_tool(self, type: str, definition: ToolDefinition) -> None:
        name, hosted = definition.get("name") or type, _web_search(definition)
        if type not in _WEB_TOOLS or not self._host(hosted, name):
            self._ledger.add("dropped", f"tools.{type}")
            self._offered.dropped.add(name)
            self._searched = self._searched or type.startswith(_TOOL_SEARCH)
            return
        first = self._hosted[namespace_of(hosted)]
        for member in ("filters", "user_location"):
            if member in hosted and hosted[member] != first.get(member):
                self._ledger.add("dropped", f"tools.{type}.{member}")
        self._uses[type] = definition.get("max_uses") or 0

    def _max_uses(self) -> dict[frozenset[ToolName], int]:
        """Return the limits of calls.  The limit of a search without a fetch, or the reverse, counts all calls."""
        limits = {_WEB_TOOLS[name]: most for name, most in self._uses.items() if most}
        if limits and len(self._uses) == 1:
            return {_WEB_TOOLS[_WEB] | _WEB_TOOLS[_FETCH]: max(limits.values())}
        return limits

    def _host(self, hosted: ToolDefinition, name: str) -> bool:
        """Return True if the gateway runs the tool; the first definition serves searches and pages."""
        if not self._runs(hosted):
            return False
        place = namespace_of(hosted)
        if place not in self._hosted:
            self._hosted[place] = hosted
            self._offered.hosted.append(hosted)
        self._offered.names[name] = ToolName("", place)
        return True


def _web_search(definition: ToolDefinition) -> ToolDefinition:
    filters = {name: definition[name] for name in _SERVED if definition.get(name)}
    where = definition.get("user_location") or {}
    location = {name: where[name] for name in ("city", "country", "region", "timezone") if where.get(name)}
    return {
        "type": _WEB,
        **({"filters": filters} if filters else {}),
        **({"user_location": location} if location else {}),
    }
