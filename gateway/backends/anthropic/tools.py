"""Convert the tools and the tool choice of a request to those of Anthropic's API."""

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.backends.anthropic.messages import JsonObject
from gateway.backends.anthropic.schemas import Schema, fitting_schema, has_open_objects, input_schema
from gateway.backends.openai.request_body import BodyTarget
from gateway.request import Request, Tool, ToolName
from gateway.warnings import Warnings

_ANY_OBJECT = {"type": "object", "properties": {}}
_KEPT = ("description", "cache_control")
_NONE = {"type": "none"}


def tool_fields(
    request: Request, target: BodyTarget, turns: Sequence[JsonObject], ledger: Warnings, *, parallel: bool
) -> JsonObject:
    """Return `tools` and `tool_choice`.  The API wants the tools of past calls, even if none may be called any more."""
    if any(tool.deferred for tool in request.callable_tools):
        ledger.add("emulated", "defer_loading")  # offered at once
    if target.prompted:
        return {}
    tools = [_offer(tool, ledger) for tool in request.callable_tools]
    if tools and target.cannot_force_tools:
        return {"tools": tools, "tool_choice": _NONE}
    if tools:
        choice = _choice(request, parallel=parallel)
        return {"tools": tools, "tool_choice": choice} if choice else {"tools": tools}
    tools = [_offer(tool, ledger) for tool in request.tools] or [*_past_tools(turns)]
    return {"tools": tools, "tool_choice": _NONE} if tools and any(map(_has_calls, turns)) else {}


def _offer(tool: Tool, ledger: Warnings) -> JsonObject:
    definition = tool.definition
    given = definition.get("parameters") or _ANY_OBJECT
    schema, strict = _fitting_input(given, strict=definition.get("strict") is True)
    if definition.get("strict") and not strict:
        ledger.add("dropped", "tools.strict")
    if schema != {"type": "object", **given}:
        ledger.add("translated", "tools.parameters")
    kept = {name: definition[name] for name in _KEPT if definition.get(name)}
    return {"name": tool.name, **kept, **({"strict": True} if strict else {}), "input_schema": schema}


def _fitting_input(parameters: Schema, *, strict: bool) -> tuple[JsonObject, bool]:
    """Return the schema of a tool's input, and whether the API can enforce it.

    A map could only be empty in a schema that the API enforces, so such a schema is not enforced.
    """
    schema = input_schema(parameters)
    if not strict or has_open_objects(schema):
        return schema, False
    return fitting_schema(schema), True


def _choice(request: Request, *, parallel: bool) -> JsonObject | None:
    """Return the tool choice; None for the API's own default."""
    choice = None if request.guided else request.tool_choice
    chosen: dict[str, Any] = {"type": "auto"}
    if isinstance(choice, ToolName):
        chosen = {"type": "tool", "name": choice.name}
    elif choice == "required":
        chosen = {"type": "any"}
    if not parallel:
        return {**chosen, "disable_parallel_tool_use": True}
    return None if chosen["type"] == "auto" else chosen


def _has_calls(turn: JsonObject) -> bool:
    return any(block["type"] == "tool_use" for block in turn["content"])


def _past_tools(turns: Iterable[JsonObject]) -> Iterable[JsonObject]:
    """Yield a definition for the tool of each past call."""
    names = {block["name"]: None for turn in turns for block in turn["content"] if block["type"] == "tool_use"}
    return ({"name": name, "input_schema": _ANY_OBJECT} for name in names)
