"""Convert the MCP servers of a message, and the sets of their tools, to tools that run at the gateway."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.api.messages.typed_tools import ToolDefinition
from gateway.api.validation import ParamCheck, boolean, list_of, object_, object_of, string
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
