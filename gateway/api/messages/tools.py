"""Convert the tools and the tool choice of a message to neutral ones; server tools run at the gateway or are dropped.

A tool that runs at the gateway has a definition in the form of the Responses API.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, json

from gateway.api.messages.content import unknown_tag
from gateway.api.messages.errors import refused
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

_DATED = re.compile(r"_\d{8}$")
_WEB = "web_search"
# Types of server tools without their date; the gateway can have the first two.
_SERVER_TYPES = (
    _WEB, "web_fetch", "code_execution", "tool_search_tool_regex", "tool_search_tool_bm25", "tool_search_tool",
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
_TYPED = object_of({"name": _NAME}, {"display_width_px": integer_between(1), "display_height_px": integer_between(1)})
_SERVED: dict[str, ParamCheck] = {"allowed_domains": list_of(string), "blocked_domains": list_of(string)}
_SERVER = object_of({}, {"name": string, "max_uses": integer_between(1), "user_location": object_, **_SERVED})
_TOOLSET = object_of({"mcp_server_name": string}, {"default_config": object_, "configs": object_})
_NAMED = object_of({"type": one_of("tool"), "name": string})
_TAGS = ("custom", *TYPED_TOOLS, *_SERVER_TYPES, "mcp_toolset")


class OfferedMessageTools(Struct):
    """The tools of a message.

    hosted: definitions of tools that run at the gateway; names: the client's names of these, and the gateway's.
    dropped: names of tools that do not run here; max_uses: the limit of calls at the gateway.
    """

    tools: list[Tool] = []
    hosted: list[ToolDefinition] = []
    names: dict[str, ToolName] = {}
    dropped: set[str] = set()
    max_uses: int | None = None


def parse_message_tools(body: Mapping[str, Any], runs: BuiltinToolFilter, ledger: Warnings) -> OfferedMessageTools:
    """Return the tools of a body.  Raise BadRequest for an invalid tool.

    runs: decides whether a definition in the form of the Responses API runs at the gateway.
    """
    reader = _ToolReader(runs, ledger)
    for i, definition in enumerate(body.get("tools") or ()):
        reader.read(definition, f"tools[{i}]")
    for server in body.get("mcp_servers") or ():
        reader.read_server(server)
    return reader.offered


def parse_message_tool_choice(
    body: Mapping[str, Any], offered: OfferedMessageTools, ledger: Warnings
) -> ToolChoice | None:
    """Return the neutral choice, None for `auto`.  Raise BadRequest for an unknown tool."""
    choice = body.get("tool_choice")
    if not choice:
        return None
    if not (body.get("tools") or body.get("mcp_servers")):
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

    def __init__(self, runs: BuiltinToolFilter, ledger: Warnings) -> None:
        self._runs, self._ledger = runs, ledger
        self._names: set[str] = set()  # of functions
        self._places: set[str] = set()  # namespaces of tools that run at the gateway
        self._toolsets: dict[str, ToolDefinition] = {}  # by the name of their server
        self.offered = OfferedMessageTools()

    def read(self, definition: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
        """Read one definition.  Raise BadRequest for an invalid one."""
        object_of({}, {"type": string})(definition, param)
        type = definition.get("type") or "custom"
        name = _DATED.sub("", type)
        if type == "custom":
            _CUSTOM(definition, param)
            self._add(self._function(definition), param)
        elif typed := TYPED_TOOLS.get(type):
            _TYPED(definition, param)
            self._ledger.add("translated", f"tools.{name}")
            self._add(typed.function(definition), param)
        elif type == "mcp_toolset":
            _TOOLSET(definition, param)
            self._toolsets[definition["mcp_server_name"]] = definition
        elif name in _SERVER_TYPES:
            _SERVER(definition, param)
            self._read_server_tool(name, definition)
        else:
            raise unknown_tag(type, param, _TAGS)

    def read_server(self, server: ToolDefinition) -> None:
        """Read an MCP server, with the tools of it that the client allows."""
        hosted = {"type": "mcp", "server_label": server["name"], "server_url": server["url"]}
        if token := server.get("authorization_token"):
            hosted["authorization"] = token
        allowed = self._allowed(server)
        more = {} if allowed is None else {"allowed_tools": allowed}
        if not self._host({**hosted, "require_approval": "never", **more}, server["name"]):
            self._ledger.add("dropped", "mcp_servers")

    def _add(self, function: ToolDefinition, param: str) -> None:
        name = function["name"]
        if name in self._names:
            raise refused("Tool names must be unique.", f"{param}.name")
        self._names.add(name)
        self.offered.tools.append(Tool(name, function))

    def _function(self, definition: ToolDefinition) -> ToolDefinition:
        function = {"name": definition["name"], "parameters": definition["input_schema"]}
        described = definition.get("description")
        if examples := definition.get("input_examples"):
            self._ledger.add("translated", "tools.input_examples")
            described = f"{described or ''}\n\nExamples of input: {json.encode(examples).decode()}".strip()
        if definition.get("defer_loading"):
            self._ledger.add("emulated", "defer_loading")
        if described is not None:
            function["description"] = described
        if definition.get("strict") is not None:
            function["strict"] = definition["strict"]
        return function

    def _read_server_tool(self, type: str, definition: ToolDefinition) -> None:
        name = definition.get("name") or type
        if type not in (_WEB, "web_fetch") or not self._host(_web_search(definition), name):
            self._ledger.add("dropped", f"tools.{type}")
            self.offered.dropped.add(name)
            return
        if definition.get("blocked_domains"):
            self._ledger.add("dropped", f"tools.{type}.blocked_domains")
        if most := definition.get("max_uses"):
            self.offered.max_uses = most + (self.offered.max_uses or 0)

    def _host(self, hosted: ToolDefinition, name: str) -> bool:
        """Return True if the gateway runs the tool; one definition serves searches and pages."""
        if not self._runs(hosted):
            return False
        place = namespace_of(hosted)
        if place not in self._places:
            self._places.add(place)
            self.offered.hosted.append(hosted)
        self.offered.names[name] = ToolName("", place)
        return True

    def _allowed(self, server: ToolDefinition) -> list[str] | None:
        """Return the tools of a server that the model may use; None: all."""
        toolset = self._toolsets.get(server["name"], {})
        configs = toolset.get("configs") or {}
        off = [name for name, config in configs.items() if isinstance(config, dict) and config.get("enabled") is False]
        if (toolset.get("default_config") or {}).get("enabled") is False:
            return [name for name in configs if name not in off]
        if off:
            self._ledger.add("dropped", "tools.mcp_toolset.configs")
        allowed: list[str] | None = (server.get("tool_configuration") or {}).get("allowed_tools")
        return allowed


def _web_search(definition: ToolDefinition) -> ToolDefinition:
    filters = {"allowed_domains": definition["allowed_domains"]} if definition.get("allowed_domains") else {}
    where = definition.get("user_location") or {}
    location = {name: where[name] for name in ("city", "country", "region", "timezone") if where.get(name)}
    return {
        "type": _WEB,
        **({"filters": filters} if filters else {}),
        **({"user_location": location} if location else {}),
    }
