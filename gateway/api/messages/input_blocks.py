"""Read the messages of a request: the members that each type of block needs, and its conversion."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, json

from gateway.api.messages import content
from gateway.api.messages.block_members import SERVER_RESULTS, report_unknown, report_unknown_members
from gateway.api.messages.content import Block, Part, block_type, joined_parts, listed_blocks, unknown_tag
from gateway.api.messages.history import MessageHistory, PastToolUse
from gateway.api.messages.thinking import OpenSeal
from gateway.api.messages.tool_changes import TOOL_CHANGES
from gateway.api.responses.input_calls import QUOTED
from gateway.api.validation import ParamCheck, object_, object_of, string
from gateway.request import ToolName
from gateway.warnings import Warnings

_WEB = "web_search"  # the namespace of the gateway's own web tools
_DEEPEST = 16  # levels of nesting
_TEXTS = ("title", "url", "text", "data", "stdout", "stderr", "tool_name")  # members with texts
_INSIDE = ("source", "content", "tool_references")  # members with further values


_OF_MESSAGE = frozenset(("role", "content"))
_BILLING = "x-anthropic-billing-header:"


def system_text(value: str | list[Any], history: MessageHistory) -> str:
    """Return the text of `system`, without the accounting blocks that clients add."""
    parts = content.content_parts(value, "system", _SYSTEM_TEXTS, history.ledger)
    texts = (part["text"] for part in parts)
    return "\n\n".join(text for text in texts if isinstance(value, str) or not text.startswith(_BILLING))


def read_message(history: MessageHistory, message: dict[str, Any], param: str) -> None:
    """Read one message.  Raise BadRequest for a block that its role does not allow."""
    report_unknown(message, _OF_MESSAGE, "messages", history.ledger)
    _READERS[message["role"]](history, message["content"], f"{param}.content")


def _read_user(history: MessageHistory, given: str | list[Any], param: str) -> None:
    """Read a message of the user; its tool results join their calls."""
    parts: list[Part] = []
    results = 0
    for i, block in enumerate(listed_blocks(given)):
        path = f"{param}[{i}]"
        type = block_type(block, path)
        if type not in _USER_TAGS:
            raise unknown_tag(type, path, _USER_TAGS)
        if type == "tool_result":
            content.RESULT_BLOCK(block, path)
            report_unknown_members(block, history.ledger)
            history.answer(block["tool_use_id"], content.result_content(block, path, history.ledger), path)
            results += 1
        else:
            parts += content.block_parts(block, path, content.USER, history.ledger)
    if parts or not results:
        history.add("user", joined_parts(parts))


def _read_system(history: MessageHistory, given: str | list[Any], param: str) -> None:
    texts: list[str] = []
    for i, block in enumerate(listed_blocks(given)):
        path = f"{param}[{i}]"
        if block_type(block, path) in TOOL_CHANGES:
            report_unknown_members(block, history.ledger)
        else:
            texts += [part["text"] for part in content.block_parts(block, path, _SYSTEM_TEXTS, history.ledger)]
    if texts:
        history.add("system", "\n\n".join(texts))


def _read_assistant(history: MessageHistory, given: str | list[Any], param: str) -> None:
    history.begin_assistant(param.removesuffix(".content"))
    for i, block in enumerate(listed_blocks(given)):
        path = f"{param}[{i}]"
        type = block_type(block, path)
        row = _ASSISTANT.get(type)
        if not row:
            raise unknown_tag(type, path, _ASSISTANT)
        row.check(block, path)
        report_unknown_members(block, history.ledger)
        row.read(history, block, path)


def _text(history: MessageHistory, block: Block, _: str) -> None:
    if block["text"]:
        history.say(block["text"])


def _shown(history: MessageHistory, block: Block, param: str) -> None:
    """Read a block of the user inside an assistant message; only its text goes to the model."""
    for part in content.block_parts(block, param, content.USER, history.ledger):
        if part["type"] == "text":
            history.say(part["text"])
        else:
            history.ledger.add("dropped", block["type"])


def _tool_use(history: MessageHistory, block: Block, param: str) -> None:
    history.call(_call(block, ToolName(block["name"])), param)


def _server_tool_use(history: MessageHistory, block: Block, param: str) -> None:
    call = _call(block, server_tool_name(block))
    call.by_server = True
    history.call(call, param)


def _call(block: Block, name: ToolName) -> PastToolUse:
    namespace = {"namespace": name.namespace} if name.namespace else {}
    function = {"name": name.name, **namespace, "arguments": json.encode(block["input"]).decode()}
    return PastToolUse(block["id"], {"id": block["id"], "type": "function", "function": function})


def _server_result(history: MessageHistory, block: Block, _: str) -> None:
    text = result_text(block, history.reader.open, history.ledger)
    history.answer_by_server(block["tool_use_id"], text, block["type"])


def _thinking(history: MessageHistory, block: Block, _: str) -> None:
    history.think(history.reader.thinking(block))


def _redacted_thinking(history: MessageHistory, block: Block, _: str) -> None:
    history.think(history.reader.redacted(block))


def _left_out(history: MessageHistory, block: Block, _: str) -> None:
    """Drop a block that tells the client something, and the model nothing."""
    history.ledger.add("dropped", block["type"])


def _compaction(history: MessageHistory, block: Block, _: str) -> None:
    """Read a summary of earlier messages: the gateway's own, sealed, or the text of another service."""
    text = block.get("content") or ""
    opened = history.reader.open(text) if text else None
    if text:
        history.replace_with_summary(opened.text if opened else text)
    else:
        history.ledger.add("dropped", "compaction")


class _BlockType(Struct, frozen=True):
    check: ParamCheck
    read: Callable[[MessageHistory, Block, str], None]


_CALLED: dict[str, ParamCheck] = {"id": string, "name": string, "input": object_}
_ANSWERED = object_of({"tool_use_id": string})
_ANYTHING = object_of({})
_ASSISTANT: Mapping[str, _BlockType] = {
    "text": _BlockType(object_of({"text": string}), _text),
    "tool_use": _BlockType(object_of(_CALLED), _tool_use),
    "thinking": _BlockType(object_of({"thinking": string}, {"signature": string}), _thinking),
    "redacted_thinking": _BlockType(object_of({"data": string}), _redacted_thinking),
    "server_tool_use": _BlockType(object_of(_CALLED), _server_tool_use),
    "mcp_tool_use": _BlockType(object_of({**_CALLED, "server_name": string}), _server_tool_use),
    **dict.fromkeys(SERVER_RESULTS, _BlockType(_ANSWERED, _server_result)),
    "compaction": _BlockType(object_of({}, {"content": string}), _compaction),
    **dict.fromkeys(("fallback", "mcp_tool_listing"), _BlockType(_ANYTHING, _left_out)),
    **{type: _BlockType(_ANYTHING, _shown) for type in content.USER if type != "text"},
}
_USER_TAGS = (*content.USER, "tool_result")
_SYSTEM_TEXTS = {"text": content.USER["text"]}
# Types of blocks by the role of their message.
TYPES: Mapping[str, frozenset[str]] = {
    "user": frozenset(_USER_TAGS),
    "assistant": frozenset(_ASSISTANT),
    "system": frozenset((*_SYSTEM_TEXTS, *TOOL_CHANGES)),
}
_READERS: Mapping[str, Callable[[MessageHistory, str | list[Any], str], None]] = {
    "user": _read_user,
    "assistant": _read_assistant,
    "system": _read_system,
}


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
