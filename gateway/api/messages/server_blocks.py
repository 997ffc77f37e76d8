"""Read blocks of tools on the server's side as tool calls and results for a model."""

from typing import Any

from msgspec import Struct

from gateway.api.messages.block_members import SERVER_RESULTS
from gateway.api.messages.content import Block
from gateway.api.messages.thinking import OpenSeal
from gateway.api.responses.input_calls import QUOTED
from gateway.request import ToolName
from gateway.warnings import Warnings

_WEB = "web_search"  # the namespace of the gateway's own web tools
_DEEPEST = 16  # levels of nesting
_TEXTS = ("title", "url", "text", "data", "stdout", "stderr", "tool_name")  # members with texts
_INSIDE = ("source", "content", "tool_references")  # members with further values


def server_tool_name(block: Block) -> ToolName:
    """Return the name of the gateway's own tool, or of the tool of an MCP server; else the name of the block."""
    name = block["name"]
    if block["type"] == "mcp_tool_use":
        return ToolName(name, block["server_name"])
    if name == "web_search":
        return ToolName("search", _WEB)
    if name == "web_fetch":
        return ToolName("find_in_page" if "pattern" in block["input"] else "open_page", _WEB)
    return ToolName(name)


def result_text(block: Block, open: OpenSeal, ledger: Warnings) -> str:
    """Return the text of the result of a server tool."""
    lines = _ResultLines(block["type"], open, ledger)
    lines.add(block.get("content"))
    text = "\n".join(filter(None, lines.lines))
    if block.get("is_error"):
        return f"Error: {text}"
    return f"{QUOTED}{text}" if SERVER_RESULTS[block["type"]] and text else text


class _ResultLines(Struct):
    """Collect the texts in a result of any type."""

    type: str
    open: OpenSeal
    ledger: Warnings
    lines: list[str] = []

    def add(self, value: Any, depth: int = _DEEPEST) -> None:  # noqa: ANN401 - decoded JSON
        """Add the texts of a value; deeper levels than services use are left out."""
        if isinstance(value, str):
            self.lines.append(value)
        elif isinstance(value, list) and depth:
            for one in value:
                self.add(one, depth - 1)
        elif isinstance(value, dict) and depth:
            self._add_members(value, depth - 1)

    def _add_members(self, value: Block, depth: int) -> None:
        if code := value.get("error_code"):
            self.lines.append(f"Error: {code}")
        self.lines += [value[name] for name in _TEXTS if isinstance(value.get(name), str)]
        if value.get("return_code"):
            self.lines.append(f"return_code: {value['return_code']}")
        if isinstance(sealed := value.get("encrypted_content"), str):
            self._add_sealed(sealed)
        for name in _INSIDE:
            self.add(value.get(name), depth)

    def _add_sealed(self, sealed: str) -> None:
        if opened := self.open(sealed):
            self.lines.append(opened.text)
        else:
            self.ledger.add("dropped", f"{self.type}.encrypted_content")
