"""Give tools in a namespace unique flat names that every backend accepts; other tools keep theirs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from msgspec.structs import replace

from gateway.events import Event, ToolCallStart, ToolKind
from gateway.request import Request, Tool, ToolName
from gateway.transforms import past_tool_calls
from gateway.transforms.tool_shims import SHIMS
from gateway.warnings import Warnings

_FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")


def lower_tool_names(request: Request, ledger: Warnings) -> tuple[Request, Sequence["ToolNameFilter"]]:
    """Return the request with tools, choices and past calls by their flat names.

    It is unchanged if all have such names already.
    """
    shims = {tool.kind: tool.name for tool in request.tools if tool.kind in SHIMS and tool.kind != tool.name}
    offered = [ToolName(tool.name, tool.namespace) for tool in request.tools]
    flat = _flat_names(offered, (_called(call, shims) for call in past_tool_calls.past_calls(request.messages)))
    if not shims and all(named == ToolName(name) for named, name in flat.items()):
        return request, []
    _note(request.tools, flat, ledger)
    choice, allowed = request.tool_choice, request.allowed
    lowered = replace(
        request,
        tools=tuple(_lowered_tool(tool, flat) for tool in request.tools),
        tool_choice=ToolName(flat[choice]) if isinstance(choice, ToolName) else choice,
        allowed=None if allowed is None else frozenset(ToolName(flat[named]) for named in allowed),
        messages=past_tool_calls.map_calls(
            request.messages, lambda call: _lowered_call(call, flat[_called(call, shims)])
        ),
    )
    given = {flat[named]: named for named in offered if named != ToolName(flat[named])}
    return lowered, [ToolNameFilter(given)] if given else []


def _called(call: past_tool_calls.ToolCallDict, shims: Mapping[ToolKind, str]) -> ToolName:
    """Return the tool of a past call.  A past shim call gets the name that its shim has now."""
    called = call[call["type"]]
    return ToolName(shims.get(call["type"], called["name"]), called.get("namespace") or "")


def _flat_names(offered: Sequence[ToolName], called: Iterable[ToolName]) -> dict[ToolName, str]:
    """Return the flat names.

    A tool without a namespace keeps its name, and of two with the same name the other one changes.
    """
    flat: dict[ToolName, str] = {}
    taken: set[str] = set()
    for named in [*sorted(offered, key=lambda named: named.namespace != ""), *called]:
        if named not in flat:
            flat[named] = _flat_name(named, taken)
            taken.add(flat[named])
    return flat


def _flat_name(named: ToolName, taken: Iterable[str]) -> str:
    """Return the namespace and the name; if they do not fit or are taken, a shortened form with a digest."""
    if not named.namespace or (_FIT.fullmatch(named.flat_name) and named.flat_name not in taken):
        return named.flat_name
    digest = sha256(f"{named.namespace}\0{named.name}".encode()).hexdigest()[:8]
    return f"{_UNFIT.sub('_', named.flat_name)[:55]}_{digest}"


def _note(tools: Iterable[Tool], flat: Mapping[ToolName, str], ledger: Warnings) -> None:
    """Warn about new names of the client's own tools."""
    for named in (ToolName(tool.name, tool.namespace) for tool in tools if not tool.hosted):
        if named.namespace:
            ledger.add("translated", "tools.namespace")
        if flat[named] != named.flat_name:
            ledger.add("renamed", "tools.name")


def _lowered_tool(tool: Tool, flat: Mapping[ToolName, str]) -> Tool:
    name = flat[ToolName(tool.name, tool.namespace)]
    return Tool(name, {**tool.definition, "name": name}, tool.kind)


def _lowered_call(call: past_tool_calls.ToolCallDict, name: str) -> past_tool_calls.ToolCallDict:
    called = {field: value for field, value in call[call["type"]].items() if field != "namespace"}
    return {**call, call["type"]: {**called, "name": name}}


class ToolNameFilter:
    """Give tool calls the names that the client knows."""

    def __init__(self, given: Mapping[str, ToolName]) -> None:
        self._given = given  # by flat name

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the event with the client's name."""
        if type(event) is ToolCallStart and (named := self._given.get(event.name)):
            return (replace(event, name=named.name, namespace=named.namespace),)
        return (event,)

    def close(self) -> Iterable[Event]:
        """Return no events."""
        return ()
