"""A request with the tools that run at the gateway, once these are known."""

from collections.abc import Iterable, Sequence, Set

from msgspec.structs import replace

from gateway.ledger import Warnings
from gateway.request import Request, Tool, ToolChoice, ToolName

ToolChoiceResult = tuple[ToolChoice | None, frozenset[ToolName] | None]


def with_builtin_tools(request: Request, tools: Sequence[Tool], ledger: Warnings) -> Request:
    """A choice that names no tool of a namespace stands for all that are there."""
    ours = [ToolName(tool.name, tool.namespace) for tool in tools]
    choice, allowed = _chosen(request, ours)
    known = {ToolName(tool.name, tool.namespace) for tool in request.tools}
    more = tuple(tool for tool, named in zip(tools, ours, strict=True) if named not in known)
    whole = replace(request, tools=(*request.tools, *more), tool_choice=choice, allowed=allowed)
    if _kept(choice, whole.callable_tools):
        return whole
    ledger.note("unenforced", "tool_choice")
    return replace(whole, tool_choice=None)


def _chosen(request: Request, ours: Iterable[ToolName]) -> ToolChoiceResult:
    choice, allowed = request.tool_choice, request.allowed
    if isinstance(choice, ToolName) and not choice.name:
        return "required", frozenset(_each({choice}, ours))
    return choice, None if allowed is None else frozenset(_each(allowed, ours))


def _each(named: Set[ToolName], ours: Iterable[ToolName]) -> Iterable[ToolName]:
    whole = {one.namespace for one in named if not one.name}
    return {one for one in named if one.name} | {one for one in ours if one.namespace in whole}


def _kept(choice: ToolChoice | None, callable: Sequence[Tool]) -> bool:
    """False for a choice of what is not there, as its server is down."""
    if isinstance(choice, ToolName):
        return any(ToolName(tool.name, tool.namespace) == choice for tool in callable)
    return choice != "required" or bool(callable)
