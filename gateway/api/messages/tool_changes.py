"""Find the changes of tools that system messages make amid a conversation."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from gateway.api.validation import ParamCheck, object_, object_of, one_of, string

TOOL_CHANGES = ("tool_addition", "tool_removal")
_NAMED: dict[str, ParamCheck] = {"name": string}
_SERVER: dict[str, ParamCheck] = {"server_name": string}
_CHECKS: Mapping[str, ParamCheck] = {
    "tool_reference": object_of(_NAMED),
    "mcp_tool_reference": object_of({**_NAMED, **_SERVER}),
    "mcp_toolset_reference": object_of(_SERVER),
    "tool_definition": object_of({"definition": object_}),
}
_REFERENCES = tuple(type for type in _CHECKS if type != "tool_definition")
_check_addition = object_of({"tool": object_of({"type": one_of(*_CHECKS)})})
_check_removal = object_of({"tool": object_of({"type": one_of(*_REFERENCES)})})


class ToolChange(Struct, frozen=True):
    """A tool, or the tools of an MCP server, that become available or are withdrawn.

    block: the type of the client's block; tool: the reference or the definition in it; param: its path.
    """

    block: str
    tool: dict[str, Any]
    param: str

    @property
    def adds(self) -> bool:
        """True if the tool becomes available."""
        return self.block == "tool_addition"


def tool_changes(body: Mapping[str, Any]) -> Iterator[ToolChange]:
    """Yield the changes in their order.  Raise BadRequest for an invalid one."""
    for i, message in enumerate(body["messages"]):
        if message["role"] != "system" or not isinstance(message["content"], list):
            continue
        for j, block in enumerate(message["content"]):
            if isinstance(block, dict) and block.get("type") in TOOL_CHANGES:
                yield _change(block, f"messages[{i}].content[{j}]")


def _change(block: dict[str, Any], param: str) -> ToolChange:
    (_check_addition if block["type"] == "tool_addition" else _check_removal)(block, param)
    tool = block["tool"]
    _CHECKS[tool["type"]](tool, f"{param}.tool")
    return ToolChange(block["type"], tool, f"{param}.tool")
