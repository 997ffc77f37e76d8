"""Offer a custom tool to the backend as a function `{"input": "…"}`, and convert its calls back as they come."""

import re
from collections.abc import Callable, Iterable, Sequence, Set

from msgspec import json
from msgspec.structs import replace

from gateway.events import Event, ToolArgsDelta, ToolCallEnd, ToolCallStart, ToolInputDelta
from gateway.formats.parser import FormatParser
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.text_buffer import Malformed
from gateway.request import Request, Tool
from gateway.transforms import past_tool_calls
from gateway.warnings import Warnings

_AROUND = "} \t\r\n"  # characters that may follow the only member
_MAX_GRAMMAR = 8192  # characters of a grammar that are shown to the model
# Constructs that all regex engines read alike: letters, groups, choices, sets and counts.  Dots, escaped letters and
# characters that JSON escapes are excluded: some servers match the encoded string, with quotes and backslashes.
_SET = r'\[(?:[^\\\[\]^"&|~\-\x00-\x1f]|-(?!-))+\]'
_ATOM = rf'(?:[^\\^$.|?*+()\[\]{{}}"\x00-\x1f]|\\[\^$.|?*+()\[\]{{}}]|{_SET})'
_COUNT = r"(?:[?*+]|\{\d{1,3}(?:,\d{0,3})?\})"
_PORTABLE = re.compile(rf"(?:[(|]|(?:{_ATOM}|\)){_COUNT}?)++")


def lower_custom_tools(request: Request, ledger: Warnings) -> tuple[Request, Sequence["CustomToolFilter"]]:
    """Return the request with custom tools and their past calls as functions.

    There is no filter if no custom tool is offered.
    """
    customs = frozenset(tool.name for tool in request.tools if tool.kind == "custom")
    if not customs and not any(call["type"] == "custom" for call in past_tool_calls.past_calls(request.messages)):
        return request, []
    if customs:
        ledger.add("emulated", "tools.custom")
    tools = tuple(_lowered_tool(tool, ledger) if tool.kind == "custom" else tool for tool in request.tools)
    messages = past_tool_calls.map_calls(request.messages, lowered_call)
    return replace(request, messages=messages, tools=tools), [CustomToolFilter(customs, ledger)] if customs else []


def _lowered_tool(tool: Tool, ledger: Warnings) -> Tool:
    input = {"type": "string", "description": "The whole input of the tool, as plain text."}
    notes = [str(tool.definition.get("description") or "")]
    grammar = (tool.definition.get("format") or {}).get("grammar")
    if isinstance(grammar, dict):
        syntax, text = grammar.get("syntax"), str(grammar.get("definition"))
        notes.append(f"The input has to match this {syntax} grammar:\n{text[:_MAX_GRAMMAR]}")
        if pattern := _pattern(text) if syntax == "regex" else None:
            input["pattern"] = pattern
        ledger.add("unenforced", "tools.custom.format")  # few servers enforce the schema of a call that is not forced
    parameters = {"type": "object", "properties": {"input": input}, "required": ["input"]}
    definition = {
        "name": tool.name,
        "description": "\n\n".join(filter(None, notes)),
        "parameters": {**parameters, "additionalProperties": False},
    }
    return Tool(tool.name, definition)


def _pattern(regex: str) -> str | None:
    """Return the `pattern` of a JSON Schema that matches a whole text; None if some engines do not support it."""
    inner = regex.removeprefix("^").removesuffix("$")
    if len(inner) > _MAX_GRAMMAR or not _PORTABLE.fullmatch(inner):
        return None
    try:
        re.compile(inner)
    except (re.error, RecursionError):
        return None
    return f"^({inner})$"


def lowered_call(call: past_tool_calls.ToolCallDict) -> past_tool_calls.ToolCallDict:
    """Return a past call of a custom tool as that of a function; any other call unchanged."""
    if call["type"] != "custom":
        return call
    arguments = json.encode({"input": call["custom"].get("input")}).decode()
    kept = {name: value for name, value in call.items() if name != "custom"}
    return {**kept, "type": "function", "function": {"name": call["custom"].get("name"), "arguments": arguments}}


class CustomToolFilter:
    """Convert the calls of these tools back: kind custom, and the decoded text of `input` instead of JSON."""

    def __init__(self, names: Set[str], ledger: Warnings) -> None:
        self._names, self._ledger = names, ledger
        self._open: dict[int, FormatParser] = {}  # by choice: the parser of the open custom call
        self._out: list[Event] = []

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the events of a custom call in its own form, others unchanged."""
        if type(event) is ToolCallStart and event.name in self._names:
            return (self._start(event),)
        if type(event) is ToolArgsDelta and event.choice in self._open:
            self._open[event.choice].feed(event.json)
            return self._taken()
        if type(event) is ToolCallEnd and event.choice in self._open:
            self._open.pop(event.choice).close()
            return (*self._taken(), event)
        return (event,)

    def close(self) -> Iterable[Event]:
        """Return no events: every call has ended."""
        return ()

    def _start(self, event: ToolCallStart) -> Event:
        def put(text: str) -> None:
            self._out.append(ToolInputDelta(event.choice, event.call, text))

        def drop(text: str) -> None:
            if text.strip(_AROUND):
                self._ledger.add("dropped", "tool_calls.function.arguments")

        read = TextReader()
        self._open[event.choice] = FormatParser(read, _unwrapped(read, put, drop))
        return replace(event, kind="custom")

    def _taken(self) -> list[Event]:
        events, self._out = self._out, []
        return events


def _unwrapped(read: TextReader, put: Callable[[str], None], drop: Callable[[str], None]) -> ReadStep:
    """Read the value of `input`, decoded as it comes, without other members; pass on any other JSON unchanged."""
    try:
        read.begin_recording()
        yield from read.expect("{")
        while (name := (yield from read.read_string())) != "input":
            drop(f'"{name}"')
            yield from read.expect(":")
            yield from read.json(_ignore)
            yield from read.expect(",")
        yield from read.expect(":")
        yield from read.expect('"')
    except Malformed:
        put(read.end_recording())
        return (yield from read.rest(put))
    read.end_recording()
    yield from read.read_characters(put)
    return (yield from read.rest(drop))


def _ignore(_: str) -> None:
    pass
