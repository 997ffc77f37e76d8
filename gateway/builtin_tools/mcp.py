"""Convert messages of the Model Context Protocol to items of the Responses API: tool lists and tool results."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, json

from gateway.builtin_tools import untrusted_text
from gateway.builtin_tools.tool_calls import BuiltinTool, Content, OutputItemDict, encode_item
from gateway.events import BuiltinItemEnd, BuiltinItemStart, Event
from gateway.request import Tool

Definition = Mapping[str, Any]

_PREFIX = "mcp_"
_INTERNAL = -32603  # internal error, as JSON-RPC defines it
_NOTHING = {"type": "object", "properties": {}}
_OF_A_TOOL = ("name", "description", "input_schema", "annotations")


class McpServerDefinition(Struct, frozen=True):
    """An MCP server as the request and the operator describe it.

    definition: as in the Responses API; `disabled_tools` are names that the Messages API excludes.
    allowed: the names of the tools that the operator allows; None: all.
    approval: the approval policy if the request has none.
    """

    definition: Definition
    allowed: frozenset[str] | None = None
    approval: str = "always"

    @property
    def label(self) -> str:
        """The `server_label` of the request."""
        label: str = self.definition["server_label"]
        return label

    def tools(self, listed: Iterable[OutputItemDict]) -> list[OutputItemDict]:
        """Return the tools of a list that the model may call."""
        return [tool for tool in listed if self._allows(tool)]

    def ours(self, tool: OutputItemDict) -> BuiltinTool:
        """Return a listed tool as a built-in tool, with its output item and, if needed, its approval request."""
        named = {"server_label": self.label, "name": tool["name"]}
        call = {"type": "mcp_call", "status": "in_progress", "approval_request_id": None, **named, "arguments": ""}
        request = {"type": "mcp_approval_request", **named} if self._needs_approval(tool) else None
        offered = Tool(tool["name"], _function(tool), namespace=self.label, hosted=True)
        return BuiltinTool(offered, {**call, "output": None, "error": None}, _PREFIX, failed_item, request)

    def _allows(self, tool: OutputItemDict) -> bool:
        given = self.definition.get("allowed_tools")
        wanted = {"tool_names": given} if isinstance(given, list) else given
        if tool["name"] in self.definition.get("disabled_tools", ()):
            return False
        return (wanted is None or _fits(wanted, tool)) and (self.allowed is None or tool["name"] in self.allowed)

    def _needs_approval(self, tool: OutputItemDict) -> bool:
        """Return True if a call of the tool needs approval.

        A filter decides for the tools that match it.  If there is only one filter, the other tools get the opposite.
        """
        data = self.definition.get("require_approval") or self.approval
        if isinstance(data, str):
            return data == "always"
        always, never = data.get("always"), data.get("never")
        if always and _fits(always, tool):
            return True
        return not (never and _fits(never, tool)) and (never is not None or always is None)


def _fits(wanted: Mapping[str, Any], tool: OutputItemDict) -> bool:
    names, read_only = wanted.get("tool_names"), wanted.get("read_only")
    hinted = (tool.get("annotations") or {}).get("readOnlyHint") is True
    return (names is None or tool["name"] in names) and (read_only is None or hinted is read_only)


def _function(tool: OutputItemDict) -> dict[str, Any]:
    """Return the function definition of a tool.  A schema that is no object schema is replaced by an empty one."""
    schema = tool.get("input_schema")
    fit = isinstance(schema, dict) and schema.get("type") == "object"
    described = {"description": tool["description"]} if tool.get("description") else {}
    fields = {**described, "parameters": schema if fit else _NOTHING}
    return {"name": tool["name"], **_unmarked(fields)}


def _unmarked(data: dict[str, Any]) -> dict[str, Any]:
    """Strip template tokens.  They only occur inside strings, so the encoded JSON can be searched as a whole."""
    text = json.encode(data).decode()
    right = untrusted_text.strip_template_tokens(text)
    return data if right == text else json.decode(right, type=dict[str, Any])


# Lists


def list_events(id: str, label: str, tools: Sequence[OutputItemDict], error: str | None = None) -> list[Event]:
    """Return the events of the `mcp_list_tools` item; `error` says why the listing failed."""
    item: OutputItemDict = {"id": id, "type": "mcp_list_tools", "server_label": label, "tools": [], "error": None}
    items = [{name: tool.get(name) for name in _OF_A_TOOL} for tool in tools]
    end = {"tools": items, "error": error, "status": "failed" if error else "completed"}
    return [BuiltinItemStart(0, encode_item(item)), BuiltinItemEnd(0, encode_item(end))]


# Results


def call_result(data: Mapping[str, Any], most: int) -> tuple[Content, OutputItemDict, bool]:
    """Return the result of a tool call: content for the model, and members of the output item; True if truncated.

    most: bytes of text, at most.
    """
    blocks: list[dict[str, Any]] = data.get("content") or []
    if not blocks and data.get("structuredContent") is not None:
        blocks = [{"type": "text", "text": json.encode(data["structuredContent"]).decode()}]
    text, cut = untrusted_text.truncate(untrusted_text.strip_template_tokens("\n".join(map(_text, blocks))), most)
    images = [] if cut else [_image(block) for block in blocks if block["type"] == "image"]
    content: Content = [{"type": "text", "text": text}, *images] if images else text
    if data.get("isError"):
        error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
        return content, {"status": "failed", "error": error}, cut
    return content, {"output": text}, cut


def failed_item(why: str, code: int = _INTERNAL) -> OutputItemDict:
    """Return the members of the output item of a failed tool call; `code` is a JSON-RPC error code."""
    return {"status": "failed", "error": {"type": "mcp_protocol_error", "code": code, "message": why}}


def _text(block: Mapping[str, Any]) -> str:
    match block:
        case {"type": "text", "text": text} | {"type": "resource", "resource": {"text": text}}:
            return str(text)
        case {"type": "resource_link", "uri": uri}:
            return f"{block.get('title') or block.get('name') or ''}: {uri}\n{block.get('description') or ''}".strip()
        case {"type": "resource", "resource": {"uri": uri}}:
            return f"[resource: {uri}]"
    return f"[{block['type']}: {block.get('mimeType', 'unknown')}]"


def _image(block: Mapping[str, Any]) -> dict[str, Any]:
    url = f"data:{block['mimeType']};base64,{block['data']}"
    return {"type": "image_url", "image_url": {"url": url}}
