"""Parse the tools of a response into neutral terms: for each type a check and a conversion."""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import count
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.api.validation import (
    ParamCheck,
    boolean,
    integer_between,
    list_of,
    object_,
    object_of,
    one_of,
    string,
    string_of,
)
from gateway.errors import BadRequest
from gateway.events import ToolKind
from gateway.request import Tool
from gateway.warnings import Warnings

ToolDefinition = dict[str, Any]

_IDLE = frozenset(("type", "strict", "defer_loading", "allowed_callers", "async", "output_schema"))
_SECRET = frozenset(("authorization", "headers", "domain_secrets"))
_OWN_LIST = "tools"  # the path of the request's own list; its input may hold others
# Types that the user defines, with schemas whose properties may have any name.
_USERS = ("function", "custom", "namespace", "tool_search")
_USER_KINDS = ("function", "custom")
_STORE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}")
_Key = tuple[str, str, str]


class OfferedTools(Struct, frozen=True):
    """The tools of a request.

    hosted: definitions of tools that run at the gateway.
    dropped: types that were left out, because the gateway cannot run them.
    """

    tools: tuple[Tool, ...]
    dropped: frozenset[str] = frozenset()
    hosted: tuple[ToolDefinition, ...] = ()

    @property
    def server_labels(self) -> frozenset[str]:
        """The labels of the MCP servers whose tools run at the gateway."""
        return frozenset(one["server_label"] for one in self.hosted if one["type"] == "mcp")


BuiltinToolFilter = Callable[[ToolDefinition], bool]


def no_builtin_tools(_: ToolDefinition) -> bool:
    """Return False: this gateway runs no tools."""
    return False


class _ParsedTool(Struct, frozen=True):
    """A tool, and the path of its definition.

    deferred: the model learns of it only by a tool search.
    """

    tool: Tool
    param: str
    deferred: bool = False


def parse_tools(
    definitions: Sequence[tuple[ToolDefinition, str]], ledger: Warnings, runs: BuiltinToolFilter = no_builtin_tools
) -> OfferedTools:
    """Parse definitions with their paths; a tool of a later list replaces an earlier one.

    runs: returns True for a built-in tool that runs at the gateway.
    Raise BadRequest for an invalid definition, or two tools of the same name in one list.
    """
    tools: dict[_Key, tuple[str, _ParsedTool]] = {}  # with the path of the list
    hosted: dict[str, ToolDefinition] = {}
    dropped = set()
    for definition, param in definitions:
        read = [*_read(definition, param)]
        if not read and runs(definition):
            place = namespace_of(definition)
            if "mcp" in {hosted.get(place, definition)["type"]} ^ {definition["type"]}:
                raise _one_name(place)
            hosted[place] = definition
        elif not read:
            dropped.add(definition["type"])
            ledger.add("dropped", f"tools.{definition['type']}")
        path = param.rpartition("[")[0]
        for found in read:
            key = _key(found.tool)
            if key in tools and tools[key][0] == path:
                raise _twice(found)
            tools[key] = path, found
    searched = any(found.tool.kind == "tool_search" for _, found in tools.values())
    # Lists in the input hold the tools that a search has found.
    loaded = [found.tool for path, found in tools.values() if not (found.deferred and searched and path == _OWN_LIST)]
    whole = OfferedTools(_with_distinct_names(loaded), frozenset(dropped), tuple(hosted.values()))
    if taken := hosted.keys() & {tool.namespace for tool in loaded}:
        raise _one_name(min(taken))
    return whole


def namespace_of(definition: ToolDefinition) -> str:
    """Return the namespace of the tools that the model gets for a built-in tool."""
    type: str = definition["type"]
    return str(definition["server_label"]) if type == "mcp" else _NAMESPACES.get(type, type)


def tools_echo(definitions: Sequence[ToolDefinition]) -> list[ToolDefinition]:
    """Return the definitions as a Response repeats them: functions with all fields, and no secrets."""
    return [_echoed(definition) for definition in definitions]


def _read(definition: ToolDefinition, param: str) -> Iterable[_ParsedTool]:
    kind = definition.get("type") if type(definition) is dict else None
    if type(kind) is not str or kind not in TOOLS:
        _check_type(definition, param)  # raises the error that fits
    row = TOOLS[definition["type"]]
    row.check(definition, param)
    return row.read(definition, param)


def _key(tool: Tool) -> _Key:
    """Return the identity of a tool: the user's tools differ by name, any other is the only one of its kind."""
    return ("user" if tool.kind in _USER_KINDS else tool.kind, tool.namespace, tool.name)


def _one_name(name: str) -> BadRequest:
    message = f"Invalid 'tools': a server, a namespace or another tool is already named '{name}'. Use unique names."
    return BadRequest(message, code="invalid_value", param="tools")


def _twice(found: _ParsedTool) -> BadRequest:
    param = f"{found.param}.name"
    message = f"Invalid '{param}': two tools are named '{found.tool.name}'. Use unique names."
    return BadRequest(message, code="invalid_value", param=param)


def _with_distinct_names(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Return the tools with distinct names: the user's tools keep theirs, and built-in ones get a number."""
    if all(tool.kind in _USER_KINDS for tool in tools):
        return (*tools,)
    taken = {tool.name for tool in tools if _key(tool)[:2] == ("user", "")}
    return tuple(
        tool if _key(tool)[0] == "user" or tool.name not in taken else _numbered(tool, taken) for tool in tools
    )


def _numbered(tool: Tool, taken: Set[str]) -> Tool:
    name = next(one for i in count(1) if (one := f"{tool.name}_{i}") not in taken)
    return replace(tool, name=name, definition={**tool.definition, "name": name})


# One function per type of tool


def _function(definition: ToolDefinition, param: str) -> Iterable[_ParsedTool]:
    data = _effective_fields(definition)
    if "parameters" not in data:
        data["parameters"] = {"type": "object", "properties": {}}
    if definition.get("strict"):
        data["strict"] = True
    yield _ParsedTool(Tool(definition["name"], data), param, definition.get("defer_loading") is True)


def _custom(definition: ToolDefinition, param: str) -> Iterable[_ParsedTool]:
    """Parse a custom tool; its format is nested, as in a chat completion."""
    data = _effective_fields(definition)
    format = data.pop("format", {"type": "text"})
    if format["type"] == "grammar":
        grammar = {"syntax": format["syntax"], "definition": format["definition"]}
        data["format"] = {"type": "grammar", "grammar": grammar}
    yield _ParsedTool(Tool(definition["name"], data, "custom"), param, definition.get("defer_loading") is True)


def _namespace(definition: ToolDefinition, param: str) -> Iterable[_ParsedTool]:
    """Parse the tools of a namespace; each of them gets the namespace's description."""
    for i, inner in enumerate(definition["tools"]):
        path = f"{param}.tools[{i}]"
        object_of({"type": one_of("function", "custom")})(inner, path)
        for found in _read(inner, path):
            notes = [definition.get("description"), found.tool.definition.get("description")]
            described = {**found.tool.definition, "description": "\n\n".join(filter(None, notes))}
            yield replace(found, tool=replace(found.tool, namespace=definition["name"], definition=described))


def _tool_search(definition: ToolDefinition, param: str) -> Iterable[_ParsedTool]:
    effective = _effective_fields(definition)
    fields = {name: value for name, value in effective.items() if name in ("description", "parameters")}
    return _own("tool_search", param, fields) if definition.get("execution") == "client" else ()


def _local_shell(_: ToolDefinition, param: str) -> Iterable[_ParsedTool]:
    return _own("local_shell", param, {})


def _shell(definition: ToolDefinition, param: str) -> Iterable[_ParsedTool]:
    environment = definition.get("environment") or {"type": "local"}
    if environment["type"] != "local":
        return ()
    skills = [f"{one['name']} ({one['path']}): {one['description']}" for one in environment.get("skills") or ()]
    fields = {"description": "\n".join(["Skills, each described in the SKILL.md of its directory:", *skills])}
    return _own("shell", param, fields if skills else {})


def _apply_patch(_: ToolDefinition, param: str) -> Iterable[_ParsedTool]:
    return _own("apply_patch", param, {})


def _own(kind: ToolKind, param: str, data: ToolDefinition) -> Iterable[_ParsedTool]:
    """Return a tool with the name of its type."""
    return [_ParsedTool(Tool(kind, {"name": kind, **data}, kind), param)]


def _nothing(_: ToolDefinition, __: str) -> Iterable[_ParsedTool]:
    return ()


def _refused(definition: ToolDefinition, param: str) -> Iterable[_ParsedTool]:
    message = f"'{param}' is not supported: the gateway cannot run tools of type '{definition['type']}'."
    raise BadRequest(message, code="unsupported_value", param=f"{param}.type")


def _effective_fields(definition: ToolDefinition) -> ToolDefinition:
    return {name: value for name, value in definition.items() if name not in _IDLE and value is not None}


def _echoed(definition: ToolDefinition) -> ToolDefinition:
    if definition["type"] == "function":
        return {"type": "function", **dict.fromkeys(("name", "description", "parameters", "strict")), **definition}
    return definition if definition["type"] in _USERS else _without_secrets(definition)


def _without_secrets(data: ToolDefinition) -> ToolDefinition:
    return {
        name: _without_secrets(value) if isinstance(value, dict) else value
        for name, value in data.items()
        if name not in _SECRET
    }


class _ToolType(Struct, frozen=True):
    """A type of tool: the check of its definition, and its conversion.

    read: returns the tools of a definition; none if the client cannot run them.
    """

    check: ParamCheck
    read: Callable[[ToolDefinition, str], Iterable[_ParsedTool]]


_NAME = string_of(128, least=1)  # clients of MCP servers send names longer than the API's limit
_DESCRIBED: dict[str, ParamCheck] = {"description": string}
_DEFERRED: dict[str, ParamCheck] = {"defer_loading": boolean}
_SYNTAX: dict[str, ParamCheck] = {"syntax": one_of("lark", "regex"), "definition": string}


def _format(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    object_of({"type": one_of("text", "grammar")})(value, param)
    object_of(_SYNTAX if value["type"] == "grammar" else {})(value, param)


_SKILLS = list_of(object_of({"name": string, "description": string, "path": string}))


def _environment(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    object_of({"type": one_of("local", "container_auto", "container_reference")})(value, param)
    object_of({}, {"skills": _SKILLS} if value["type"] == "local" else {})(value, param)


def _store(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """Check a store's id, which becomes part of a path."""
    string(value, param)
    if not _STORE.fullmatch(value):
        message = f"Invalid '{param}': use only letters, digits, dashes, dots, colons and underscores in an id."
        raise BadRequest(message, code="invalid_value", param=param)


_FILTER = object_of({}, {"tool_names": list_of(string), "read_only": boolean})


def _allowed_tools(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    (list_of(string) if isinstance(value, list) else _FILTER)(value, param)


def _require_approval(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    (one_of("always", "never") if isinstance(value, str) else object_of({}, {"always": _FILTER, "never": _FILTER}))(
        value, param
    )


_MCP: dict[str, ParamCheck] = {
    "server_url": string, "server_description": string, "authorization": string, "headers": object_,
    "allowed_tools": _allowed_tools, "require_approval": _require_approval,
}  # fmt: skip
_LOCATION = object_of({}, dict.fromkeys(("city", "country", "region", "timezone"), string))
_SEARCH: dict[str, ParamCheck] = {
    "filters": object_of({}, {"allowed_domains": list_of(string_of(253, least=1), most=100)}),
    "user_location": _LOCATION,
    "search_context_size": one_of("low", "medium", "high"),
    "external_web_access": boolean,
}
_FILES: dict[str, ParamCheck] = {
    "max_num_results": integer_between(1, 50), "filters": object_, "ranking_options": object_,
}  # fmt: skip
_SEARCHES = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")
_NAMESPACES = dict.fromkeys(_SEARCHES, _SEARCHES[0])
HOSTED = ("mcp", *_SEARCHES, "file_search", "code_interpreter", "image_generation", "programmatic_tool_calling")
COMPUTERS = ("computer", "computer_use_preview")
TOOLS: dict[str, _ToolType] = {
    "function": _ToolType(
        object_of({"name": _NAME}, {"parameters": object_, "strict": boolean, **_DESCRIBED, **_DEFERRED}), _function
    ),
    "custom": _ToolType(object_of({"name": _NAME}, {"format": _format, **_DESCRIBED, **_DEFERRED}), _custom),
    "namespace": _ToolType(object_of({"name": _NAME, "tools": list_of(object_)}, _DESCRIBED), _namespace),
    "tool_search": _ToolType(
        object_of({}, {"execution": one_of("server", "client"), "parameters": object_, **_DESCRIBED}), _tool_search
    ),
    "local_shell": _ToolType(object_of({}), _local_shell),
    "shell": _ToolType(object_of({}, {"environment": _environment}), _shell),
    "apply_patch": _ToolType(object_of({}), _apply_patch),
    **dict.fromkeys(HOSTED, _ToolType(object_of({}), _nothing)),
    "mcp": _ToolType(object_of({"server_label": _NAME}, _MCP), _nothing),
    **dict.fromkeys(_SEARCHES, _ToolType(object_of({}, _SEARCH), _nothing)),
    "file_search": _ToolType(object_of({"vector_store_ids": list_of(_store, least=1)}, _FILES), _nothing),
    **dict.fromkeys(COMPUTERS, _ToolType(object_of({}), _refused)),
}
_check_type = object_of({"type": one_of(*TOOLS)})
