"""Parse the tool_choice of a response into neutral terms."""

from typing import Any

from gateway.api.responses.tools import COMPUTERS, HOSTED, OfferedTools, namespace_of
from gateway.api.validation import (
    ParamCheck,
    ResolvedToolChoice,
    list_of,
    object_of,
    one_of,
    resolve_tool_choice,
    string,
    unknown_tool_error,
)
from gateway.errors import BadRequest
from gateway.request import ToolName
from gateway.warnings import Warnings

_NAMED = ("function", "custom")
_OWN = ("apply_patch", "shell", "local_shell", "tool_search")
_HOSTED = (*HOSTED, *COMPUTERS, "computer_use")


def parse_tool_choice(tool_choice: Any, offered: OfferedTools, ledger: Warnings) -> ResolvedToolChoice:  # noqa: ANN401 - decoded JSON
    """Return the forced choice, and the allowed tools or None for all.  Raise BadRequest for an impossible choice."""
    _check(tool_choice, "tool_choice")
    forced = tool_choice["type"] if isinstance(tool_choice, dict) else tool_choice
    if (forced in _HOSTED and not _by_server(tool_choice, offered)) or forced in offered.dropped:
        raise _not_run(forced)
    if forced == "required" and offered.dropped and not (offered.tools or offered.hosted):
        raise _not_run(min(offered.dropped))

    def find(data: dict[str, Any]) -> ToolName | None:
        """Return the named tool; None, with a warning, for an allowed tool that the gateway cannot run."""
        if server := _by_server(data, offered):
            return server
        if data["type"] in _HOSTED or data["type"] in offered.dropped:
            ledger.add("dropped", "tool_choice.tools")
            return None
        return _by_name(data, offered) if data["type"] in _NAMED else _by_kind(data["type"], offered)

    return resolve_tool_choice(tool_choice, (*offered.tools, *offered.hosted), find)


def _by_server(data: dict[str, Any], offered: OfferedTools) -> ToolName | None:
    """Return the named tool of an MCP server, all tools of the server, or those of a search; None for other tools."""
    named = {namespace_of(one) for one in offered.hosted if (one["type"] == "mcp") is (data["type"] == "mcp")}
    return ToolName(data.get("name") or "", place) if (place := namespace_of(data)) in named else None


def _by_name(data: dict[str, Any], offered: OfferedTools) -> ToolName:
    """Return the tool of this name.

    A tool in a namespace may be named by its flat name, or by its own name if that is unique.
    """
    wanted = ToolName(data["name"], data.get("namespace") or "")
    named = [ToolName(tool.name, tool.namespace) for tool in offered.tools if tool.kind in _NAMED]
    readings = (
        [one for one in named if one == wanted],
        [one for one in named if one.flat_name == wanted.flat_name],
        [one for one in named if one.name == wanted.name and not wanted.namespace],
    )
    found = next(filter(None, readings), None)
    if not found:
        raise unknown_tool_error(wanted.flat_name)
    if len(found) > 1:
        message = f"Invalid value for 'tool_choice': {len(found)} tools are named '{wanted.flat_name}'."
        raise BadRequest(message, code="invalid_value", param="tool_choice")
    return found[0]


def _by_kind(kind: str, offered: OfferedTools) -> ToolName:
    found = next((tool for tool in offered.tools if tool.kind == kind), None)
    if not found:
        raise unknown_tool_error(kind)
    return ToolName(found.name)


def _not_run(type: str) -> BadRequest:
    message = f"Invalid value for 'tool_choice': the gateway cannot run tools of type '{type}'."
    return BadRequest(message, code="unsupported_value", param="tool_choice")


def _one(*types: str) -> ParamCheck:
    """Return a check for an object that names a tool of one of these types."""

    def check(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
        object_of({"type": one_of(*types)})(value, param)
        if value["type"] in _NAMED:
            object_of({"name": string}, {"namespace": string})(value, param)
        if value["type"] == "mcp":
            object_of({"server_label": string}, {"name": string})(value, param)

    return check


_TYPES = (*_NAMED, *_OWN, *_HOSTED)
_ALLOWED = object_of({"mode": one_of("auto", "required"), "tools": list_of(_one(*_TYPES))})


def _check(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if value is None:
        return
    if isinstance(value, str):
        one_of("none", "auto", "required")(value, param)
        return
    _one(*_TYPES, "allowed_tools")(value, param)
    if value["type"] == "allowed_tools":
        _ALLOWED(value, param)
