"""A custom tool is offered to the backend as a function `{"input": "…"}`; its calls become custom as they come."""

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from msgspec import json
from msgspec.structs import replace

from gateway.events import Event, ToolArgs, ToolEnd, ToolInput, ToolStart
from gateway.formats.format import Parse
from gateway.formats.reader import Malformed, Reader, Step
from gateway.ledger import Ledger
from gateway.request import Message, Request, Tool

_MOST_GRAMMAR = 8192  # characters of a grammar that are shown to the model


def translate(request: Request, ledger: Ledger) -> tuple[Request, Sequence["CustomInput"]]:
    """Tools and past calls as functions; no filter where no custom tool is offered."""
    messages = tuple(map(_lowered_message, request.messages))
    customs = frozenset(tool.name for tool in request.tools if tool.kind == "custom")
    if any(tool.kind == "custom" and any(_grammar(tool.definition.get("format"))) for tool in request.tools):
        ledger.note("unenforced", "tools.custom.format")
    tools = tuple(_lowered_tool(tool) if tool.kind == "custom" else tool for tool in request.tools)
    return replace(request, messages=messages, tools=tools), [CustomInput(customs)] if customs else []


def _lowered_tool(tool: Tool) -> Tool:
    said = tool.definition
    notes = [str(said.get("description") or ""), *_grammar(said.get("format"))]
    input = {"type": "string", "description": "The whole input of the tool, as plain text."}
    parameters = {"type": "object", "properties": {"input": input}, "required": ["input"]}
    definition = {
        "name": tool.name,
        "description": "\n\n".join(filter(None, notes)),
        "parameters": {**parameters, "additionalProperties": False},
    }
    return Tool(tool.name, definition)


def _grammar(format: object) -> Iterable[str]:
    """What the model should know of the input's form; nothing enforces it."""
    if isinstance(format, dict) and isinstance(grammar := format.get("grammar"), dict):
        text = str(grammar.get("definition"))[:_MOST_GRAMMAR]
        yield f"The input has to match this {grammar.get('syntax')} grammar:\n{text}"


def _lowered_message(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not any(_is_custom(call) for call in calls):
        return message
    return {**message, "tool_calls": [_lowered_call(call) if _is_custom(call) else call for call in calls]}


def _is_custom(call: object) -> bool:
    return isinstance(call, dict) and isinstance(call.get("custom"), dict)


def _lowered_call(call: dict[str, Any]) -> dict[str, Any]:
    custom = call["custom"]
    arguments = json.encode({"input": custom.get("input")}).decode()
    function = {"name": custom.get("name"), "arguments": arguments}
    return {"id": call.get("id"), "type": "function", "function": function}


class CustomInput:
    """Turns the calls of these tools back: kind custom, and the decoded text of `input` instead of JSON."""

    def __init__(self, names: Set[str]) -> None:
        self._names = names
        self._open: dict[int, Parse] = {}  # by choice: the custom call whose arguments are coming
        self._out: list[Event] = []

    def feed(self, event: Event) -> Iterable[Event]:
        if type(event) is ToolStart and event.name in self._names:
            return (self._start(event),)
        if type(event) is ToolArgs and event.choice in self._open:
            self._open[event.choice].feed(event.json)
            return self._taken()
        if type(event) is ToolEnd and event.choice in self._open:
            self._open.pop(event.choice).close()
            return (*self._taken(), event)
        return (event,)

    def close(self) -> Iterable[Event]:
        return ()  # every call has had its end

    def _start(self, event: ToolStart) -> Event:
        def put(text: str) -> None:
            self._out.append(ToolInput(event.choice, event.call, text))

        read = Reader()
        self._open[event.choice] = Parse(read, _unwrapped(read, put))
        return replace(event, kind="custom")

    def _taken(self) -> list[Event]:
        events, self._out = self._out, []
        return events


def _unwrapped(read: Reader, put: Callable[[str], None]) -> Step:
    """The value of `input`, decoded as it comes; arguments of any other shape are passed as they are."""
    try:
        read.record()
        yield from read.expect("{")
        if (yield from read.string()) != "input":
            raise Malformed
        yield from read.expect(":")
        yield from read.expect('"')
    except Malformed:
        put(read.recorded())
        return (yield from read.rest(put))
    read.recorded()
    yield from read.characters(put)
    return (yield from read.rest(_ignore))


def _ignore(_: str) -> None:
    pass
