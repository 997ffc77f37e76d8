"""Offer local_shell, shell, apply_patch and tool_search as functions, and convert their calls back.

The client's SDK defines types for the items of these calls.  A call with arguments that do not fit them becomes a
plain function call, so that the client can report the fault to the model.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import DecodeError, Struct, convert, json, to_builtins
from msgspec.structs import replace

from gateway.events import Event, ToolArgsDelta, ToolCallEnd, ToolCallStart, ToolKind
from gateway.request import Request, Tool
from gateway.transforms import past_tool_calls
from gateway.warnings import Warnings

_Json = dict[str, Any]


class _ExecArguments(Struct):
    command: list[str]
    env: dict[str, str] = {}
    timeout_ms: int | None = None
    user: str | None = None
    working_directory: str | None = None
    type: str = "exec"


class _CommandsArguments(Struct):
    commands: list[str]
    timeout_ms: int | None = None
    max_output_length: int | None = None


class _CreateFileArguments(Struct, tag_field="type", tag="create_file"):
    path: str
    diff: str


class _UpdateFileArguments(_CreateFileArguments, tag="update_file"):
    pass


class _DeleteFileArguments(Struct, tag_field="type", tag="delete_file"):
    path: str


class ToolShim(Struct, frozen=True):
    """A kind of tool as a function.

    fields: returns the members of the item for a call's arguments; raises ValidationError if they do not fit.
    arguments: returns the arguments for the members of the item.
    """

    description: str
    parameters: _Json
    fields: Callable[[_Json], _Json]
    arguments: Callable[[_Json], Any]


def _local_shell_fields(given: _Json) -> _Json:
    """Return the members; a command line instead of a list runs in bash."""
    command, directory = given.get("command"), given.get("workdir")
    line = ["bash", "-lc", command] if isinstance(command, str) else command
    return {
        "action": _checked({**given, "command": line, "working_directory": directory, "type": "exec"}, _ExecArguments)
    }


def _local_shell_arguments(fields: _Json) -> _Json:
    action = {name: value for name, value in fields["action"].items() if name != "type" and value != {}}
    directory = action.pop("working_directory", None)
    return {**action, "workdir": directory}


def _shell_fields(given: _Json) -> _Json:
    commands = given.get("commands")
    listed = [commands] if isinstance(commands, str) else commands
    return {"action": _checked({**given, "commands": listed}, _CommandsArguments), "environment": None}


def _apply_patch_fields(given: _Json) -> _Json:
    return {"operation": _checked(given, _CreateFileArguments | _UpdateFileArguments | _DeleteFileArguments)}


def _tool_search_fields(given: _Json) -> _Json:
    return {"arguments": given, "execution": "client"}


def _checked(given: _Json, type: Any) -> Any:  # noqa: ANN401 - a Struct, or one of several
    return to_builtins(convert(given, type, strict=False))


def _object(required: Sequence[str], **properties: _Json) -> _Json:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


_LINES = {"type": "array", "items": {"type": "string"}}
_TIMEOUT = {"type": "integer", "description": "Milliseconds after which to give up."}
SHIMS: Mapping[ToolKind, ToolShim] = {
    "local_shell": ToolShim(
        "Runs a command on the user's machine and returns its output.",
        _object(
            ["command"],
            command={**_LINES, "description": 'The program and its arguments, such as ["bash", "-lc", "ls"].'},
            workdir={"type": "string", "description": "The directory to run it in."},
            timeout_ms=_TIMEOUT,
            env={"type": "object", "additionalProperties": {"type": "string"}},
        ),
        _local_shell_fields,
        _local_shell_arguments,
    ),
    "shell": ToolShim(
        "Runs shell commands and returns the output and the exit code of each.",
        _object(
            ["commands"],
            commands={**_LINES, "description": "Command lines; each runs on its own."},
            timeout_ms=_TIMEOUT,
            max_output_length={"type": "integer", "description": "Characters of each output to return at most."},
        ),
        _shell_fields,
        lambda fields: fields["action"],
    ),
    "apply_patch": ToolShim(
        "Creates, updates or deletes one file. A diff has lines that begin with '+' (added), '-' (removed) or ' ' "
        "(context), under '@@' lines that tell where; that of a new file has only '+' lines.",
        _object(
            ["type", "path"],
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path={"type": "string", "description": "The file, relative to the workspace."},
            diff={"type": "string", "description": "What to create or to change; not for delete_file."},
        ),
        _apply_patch_fields,
        lambda fields: fields["operation"],
    ),
    "tool_search": ToolShim(
        "Searches for further tools; those that are found can be called from then on.",
        _object(["query"], query={"type": "string"}),
        _tool_search_fields,
        lambda fields: fields["arguments"],
    ),
}


def lower_shim_tools(request: Request, ledger: Warnings) -> tuple[Request, Sequence["ToolShimFilter"]]:
    """Return the request with these tools and their past calls as functions.

    There is no filter if no such tool is offered.
    """
    kinds = {tool.name: tool.kind for tool in request.tools if tool.kind in SHIMS}
    for kind in kinds.values():
        ledger.add("emulated", f"tools.{kind}")
    if not kinds and not any(call["type"] in SHIMS for call in past_tool_calls.past_calls(request.messages)):
        return request, []
    tools = tuple(_lowered_tool(tool) if tool.name in kinds else tool for tool in request.tools)
    messages = past_tool_calls.map_calls(request.messages, _lowered_call)
    return replace(request, tools=tools, messages=messages), [ToolShimFilter(kinds, ledger)] if kinds else []


def _lowered_tool(tool: Tool) -> Tool:
    """Return the tool as a function.

    The client's description is appended to ours, and its parameters replace the default ones.
    """
    shim, data = SHIMS[tool.kind], tool.definition
    description = "\n\n".join(filter(None, [shim.description, data.get("description")]))
    return Tool(
        tool.name,
        {"name": tool.name, "description": description, "parameters": data.get("parameters", shim.parameters)},
    )


def _lowered_call(call: past_tool_calls.ToolCallDict) -> past_tool_calls.ToolCallDict:
    if call["type"] not in SHIMS:
        return call
    kind = call["type"]
    arguments = _given(SHIMS[kind].arguments(json.decode(call[kind]["arguments"])))
    kept = {name: value for name, value in call.items() if name != kind}
    function = {"name": call[kind]["name"], "arguments": json.encode(arguments).decode()}
    return {**kept, "type": "function", "function": function}


def _given(arguments: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the arguments without null members."""
    if not isinstance(arguments, dict):
        return arguments
    return {name: value for name, value in arguments.items() if value is not None}


class ToolShimFilter:
    """Convert the calls of these tools back, each when it is complete."""

    def __init__(self, kinds: Mapping[str, ToolKind], ledger: Warnings) -> None:
        self._kinds, self._ledger = kinds, ledger  # by name
        self._open: dict[int, tuple[ToolCallStart, list[str]]] = {}  # by choice: the incomplete call

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the events of a complete call in its own form, others unchanged."""
        if type(event) is ToolCallStart and event.name in self._kinds:
            self._open[event.choice] = event, []
            return ()
        if type(event) is ToolArgsDelta and event.choice in self._open:
            self._open[event.choice][1].append(event.json)
            return ()
        if type(event) is ToolCallEnd and event.choice in self._open:
            start, pieces = self._open.pop(event.choice)
            return self._whole(start, "".join(pieces), event)
        return (event,)

    def close(self) -> Iterable[Event]:
        """Return no events: every call has ended."""
        return ()

    def _whole(self, start: ToolCallStart, arguments: str, end: ToolCallEnd) -> Iterable[Event]:
        kind = self._kinds[start.name]
        fields = self._fields(SHIMS[kind], arguments) if end.complete else None
        if fields is None:
            return (start, ToolArgsDelta(start.choice, start.call, arguments), end)
        return (replace(start, kind=kind), ToolArgsDelta(start.choice, start.call, json.encode(fields).decode()), end)

    def _fields(self, shim: ToolShim, arguments: str) -> _Json | None:
        """Return the members of the item; None if the arguments do not fit.

        Warns about arguments that do not fit, and about repaired ones.
        """
        try:
            given = json.decode(arguments, type=_Json)
            fields = shim.fields(given)
        except (DecodeError, RecursionError):
            self._ledger.add("forwarded", "tool_calls.function.arguments")
            return None
        if _given(shim.arguments(fields)) != _given(given):
            self._ledger.add("repaired", "tool_calls.function.arguments")
        return fields
