"""Read the messages and the tools of a request body: of chat completions, completions, Responses and Messages."""

from collections.abc import Iterator
from typing import Any

from msgspec import DecodeError, Struct, field, json

_TEXTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text")
_PARAMETERS = (
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "max_output_tokens", "tool_choice", "seed",
)  # fmt: skip


class CallView(Struct, frozen=True):
    """A tool call in an earlier message.  arguments: JSON or plain text."""

    id: str
    name: str
    arguments: str


class MessageView(Struct):
    """One message.  call_id: of the tool call that the message responds to; other: the types of its other parts."""

    role: str
    text: str = ""
    reasoning: str = ""
    tool_calls: list[CallView] = field(default_factory=list)
    call_id: str | None = None
    other: list[str] = field(default_factory=list)


class ToolView(Struct, frozen=True):
    """An offered tool.  parameters: its JSON Schema; type: `function`, or the name of another kind."""

    name: str
    type: str
    description: str
    parameters: dict[str, Any]


class RequestView(Struct, frozen=True):
    """A request.  parameters: the members that steer the model; readable: False if the body is no JSON object."""

    messages: list[MessageView]
    tools: list[ToolView]
    parameters: dict[str, Any]
    readable: bool


def read_request(body: bytes) -> RequestView:
    """Return the messages and tools of a body; parts of an unknown form are named, not shown."""
    try:
        fields = json.decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return RequestView([], [], {}, readable=False)
    return RequestView(
        messages=[*_messages(fields)],
        tools=[_tool(tool) for tool in _objects(fields.get("tools"))],
        parameters={name: fields[name] for name in _PARAMETERS if name in fields},
        readable=True,
    )


def _messages(fields: dict[str, Any]) -> Iterator[MessageView]:
    system = fields.get("system") or fields.get("instructions")
    if system:
        yield _filled(MessageView("system"), system)
    for name in ("prompt", "input"):
        if isinstance(text := fields.get(name), str):
            yield MessageView("user", text)
    for item in (*_objects(fields.get("messages")), *_objects(fields.get("input"))):
        yield _message(item)


def _message(item: dict[str, Any]) -> MessageView:
    kind = str(item.get("type") or "message")
    if kind in ("function_call", "custom_tool_call"):
        made = MessageView("assistant")
        _add_call(made, item.get("call_id"), item.get("name"), item.get("arguments", item.get("input", "")))
        return made
    if kind.endswith("_output"):
        return _filled(MessageView("tool", call_id=_text(item.get("call_id"))), item.get("output"))
    made = MessageView(str(item.get("role") or kind))
    made.reasoning = _text(item.get("reasoning_content") or item.get("reasoning"))
    if isinstance(item.get("tool_call_id"), str):
        made.call_id = item["tool_call_id"]
    _filled(made, item.get("content"))
    for call in _objects(item.get("tool_calls")):
        function = call.get("function") or call.get("custom")
        if isinstance(function, dict):
            _add_call(made, call.get("id"), function.get("name"), function.get("arguments", function.get("input", "")))
    return made


def _filled(message: MessageView, content: object) -> MessageView:
    """Add content: a text, or parts."""
    if isinstance(content, str):
        message.text += content
    for part in _objects(content):
        _add_part(message, part)
    return message


def _add_part(message: MessageView, part: dict[str, Any]) -> None:
    kind = str(part.get("type"))
    if kind in _TEXTS:
        message.text += _text(part.get("text"))
    elif kind == "thinking":
        message.reasoning += _text(part.get("thinking"))
    elif kind == "tool_use":
        _add_call(message, part.get("id"), part.get("name"), part.get("input"))
    elif kind == "tool_result":
        message.role, message.call_id = "tool", _text(part.get("tool_use_id"))
        _filled(message, part.get("content"))
    else:
        message.other.append(kind)


def _add_call(message: MessageView, id: object, name: object, arguments: object) -> None:
    text = arguments if isinstance(arguments, str) else json.encode(arguments).decode()
    message.tool_calls.append(CallView(_text(id), _text(name), text))


def _tool(tool: dict[str, Any]) -> ToolView:
    kind = str(tool.get("type") or "function")
    members = tool.get(kind)
    inner: dict[str, Any] = members if isinstance(members, dict) else tool
    schema = inner.get("parameters") or inner.get("input_schema")
    return ToolView(
        name=_text(inner.get("name")) or kind,
        type=kind,
        description=_text(inner.get("description")),
        parameters=schema if isinstance(schema, dict) else {},
    )


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
