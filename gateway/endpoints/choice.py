"""Resolve `tool_choice` of either API: the choice, and the tools that it allows (`spec.md` A5, B5)."""

from collections.abc import Callable, Sequence
from typing import Any

from gateway.errors import BadRequest
from gateway.request import ToolChoice, ToolName

ResolvedToolChoice = tuple[ToolChoice | None, frozenset[ToolName] | None]
ToolFinder = Callable[[dict[str, Any]], ToolName | None]


def resolve_tool_choice(choice: Any, tools: Sequence[object], find: ToolFinder) -> ResolvedToolChoice:  # noqa: ANN401 - decoded JSON
    """The choice and the allowed tools, None for all; a choice without tools to choose from is no choice.

    tools: all that can be chosen; find: the tool that an object names; None if it cannot be called.
    """
    allowed = None
    if isinstance(choice, dict) and choice["type"] == "allowed_tools":
        said = choice.get("allowed_tools", choice)
        allowed = frozenset(filter(None, map(find, said["tools"])))
        choice = said["mode"]
    elif isinstance(choice, dict):
        choice = find(choice)
    left = tools if allowed is None else allowed
    if choice == "required" and not left:
        raise BadRequest("'tool_choice' is only allowed when 'tools' are specified.", param="tool_choice")
    return (choice if left else None), allowed


def unknown_tool_error(name: str) -> BadRequest:
    message = f"Invalid value for 'tool_choice': the tool '{name}' is not among 'tools'."
    return BadRequest(message, code="invalid_value", param="tool_choice")
