"""Describe tools, past calls and outputs in the prompt, for a model whose server or template does not support them.

Signatures stand in <tools> and a call in <tool_call>, as Hermes models know it and most others follow.  The response
is read in that format.  An output is a line of a user message: in tags of its own, small models imitate outputs.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec import json
from msgspec.structs import replace

from gateway.request import Message, Request, Tool, insert_after_system
from gateway.warnings import Warnings

FORMAT = "hermes_json"


def tools_to_prompt(request: Request, ledger: Warnings) -> Request:
    """Return the request with the tools in its messages; `tools` stay for the parser of the response."""
    messages = tuple(_calls_as_text(request.messages))
    if tools := request.callable_tools:
        messages = insert_after_system(messages, {"role": "system", "content": _offer(tools)})
    if messages == request.messages:
        return request
    ledger.add("emulated", "tools")
    return replace(request, messages=messages)


def _offer(tools: Iterable[Tool]) -> str:
    signatures = "\n".join(_written({"type": "function", "function": tool.definition}) for tool in tools)
    return (
        f"# Tools\n\nYou may call functions. Their signatures, one a line:\n<tools>\n{signatures}\n</tools>\n\n"
        "Write each call as a JSON object with its name and arguments, between tags:\n"
        '<tool_call>\n{"name": <function-name>, "arguments": <arguments-object>}\n</tool_call>'
    )


def _calls_as_text(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages with tool calls as text.

    Consecutive outputs become one user message, in the order of their calls.
    """
    places: dict[str, int] = {}
    for is_output, group in groupby(messages, lambda message: message["role"] == "tool"):
        if is_output:
            outputs = sorted(group, key=lambda message: places.get(message["tool_call_id"], 0))
            yield {"role": "user", "content": _joined([part for message in outputs for part in _response(message)])}
            continue
        for message in group:
            calls = message.get("tool_calls") or ()
            places |= {call["id"]: len(places) + i for i, call in enumerate(calls)}
            yield _saying(message) if calls else message


def _saying(message: Message) -> Message:
    """Return the message with its tool calls after its text; reasoning stays in its field."""
    calls = [_call(call["function"]) for call in message["tool_calls"]]
    items = [part for part in _parts(message.get("content")) if part.get("text") != ""]
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**rest, "content": _joined([*items, *map(_text, calls)])}


def _call(function: dict[str, Any]) -> str:
    """Return a call as text, with unchanged arguments."""
    arguments = function["arguments"].strip() or "{}"
    return f'<tool_call>\n{{"name": {_written(function["name"])}, "arguments": {arguments}}}\n</tool_call>'


def _response(message: Message) -> list[dict[str, Any]]:
    match _parts(message["content"]):
        case [{"type": "text", "text": str(text)}, *more]:
            return [_text(f"Result: {text}"), *more]
        case parts:
            return [_text("Result:"), *parts]


def _parts(content: object) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [_text(str(content or ""))]


def _joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return one text with a line per part if all parts are texts, else the parts."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _written(value: object) -> str:
    """Return JSON with spaces, as models and templates write it."""
    return json.format(json.encode(value), indent=0).decode()
