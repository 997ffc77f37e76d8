"""The tools of a response in neutral terms: what each type has to say, and what becomes of it (`spec.md` B4)."""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import count
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.endpoints.checks import Check, boolean, fields, integer, list_of, object_, one_of, short, string
from gateway.errors import BadRequest
from gateway.events import ToolKind
from gateway.ledger import Ledger
from gateway.request import Tool

Definition = dict[str, Any]

_IDLE = frozenset(("type", "strict", "defer_loading", "allowed_callers", "async", "output_schema"))
_SECRET = frozenset(("authorization", "headers", "domain_secrets"))
_OWN_LIST = "tools"  # of the request itself; others come in its input
# What the user defines, in schemas whose properties may have any name.
_USERS = ("function", "custom", "namespace", "tool_search")
_STORE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}")
_Key = tuple[str, str, str]


class Offered(Struct, frozen=True):
    """hosted: definitions of what runs at the gateway; dropped: types that were left out, as nothing here runs them."""

    tools: tuple[Tool, ...]
    dropped: frozenset[str] = frozenset()
    hosted: tuple[Definition, ...] = ()

    @property
    def labels(self) -> frozenset[str]:
        """Of the servers whose tools run at the gateway."""
        return frozenset(one["server_label"] for one in self.hosted if one["type"] == "mcp")


Runs = Callable[[Definition], bool]


def nothing_runs(_: Definition) -> bool:
    """What a gateway says of hosted tools that has none."""
    return False


class _Found(Struct, frozen=True):
    """A tool, and the path of its definition.  deferred: the model is to know of it once it has searched for it."""

    tool: Tool
    param: str
    deferred: bool = False


def offered(definitions: Sequence[tuple[Definition, str]], ledger: Ledger, runs: Runs = nothing_runs) -> Offered:
    """Definitions with their paths; one of a later list takes the place of an earlier one's.

    runs: whether a tool that is hosted elsewhere runs at the gateway.
    """
    tools: dict[_Key, tuple[str, _Found]] = {}  # with the path of the list
    hosted: dict[str, Definition] = {}
    dropped = set()
    for definition, param in definitions:
        read = [*_read(definition, param)]
        if not read and runs(definition):
            place = namespace(definition)
            if "mcp" in {hosted.get(place, definition)["type"]} ^ {definition["type"]}:
                raise _one_name(place)
            hosted[place] = definition
        elif not read:
            dropped.add(definition["type"])
            ledger.note("dropped", f"tools.{definition['type']}")
        path = param.rpartition("[")[0]
        for found in read:
            key = _key(found.tool)
            if key in tools and tools[key][0] == path:
                raise _twice(found)
            tools[key] = path, found
    searched = any(found.tool.kind == "tool_search" for _, found in tools.values())
    # A list in the input has what a search has found.
    loaded = [found.tool for path, found in tools.values() if not (found.deferred and searched and path == _OWN_LIST)]
    whole = Offered(_told_apart(loaded), frozenset(dropped), tuple(hosted.values()))
    if taken := hosted.keys() & {tool.namespace for tool in loaded}:
        raise _one_name(min(taken))
    return whole


def namespace(definition: Definition) -> str:
    """Of the tools that a model gets for one that is hosted."""
    type: str = definition["type"]
    return str(definition["server_label"]) if type == "mcp" else _NAMESPACES.get(type, type)


def echoed(definitions: Sequence[Definition]) -> list[Definition]:
    """As a Response repeats them: functions with all their fields, and never a secret."""
    return [_echoed(definition) for definition in definitions]


def _read(definition: Definition, param: str) -> Iterable[_Found]:
    fields({"type": one_of(*TOOLS)})(definition, param)
    row = TOOLS[definition["type"]]
    row.check(definition, param)
    return row.read(definition, param)


def _key(tool: Tool) -> _Key:
    """The user's own tools differ by name; any other is the only one of its kind."""
    return ("user" if tool.kind in ("function", "custom") else tool.kind, tool.namespace, tool.name)


def _one_name(name: str) -> BadRequest:
    message = f"Invalid 'tools': a server and a namespace, or another tool, have the same name '{name}'."
    return BadRequest(message, code="invalid_value", param="tools")


def _twice(found: _Found) -> BadRequest:
    param = f"{found.param}.name"
    message = f"Invalid '{param}': there are two tools of the name '{found.tool.name}'."
    return BadRequest(message, code="invalid_value", param=param)


def _told_apart(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """The user's tools keep their names; one that is called like its type gives way."""
    taken = {tool.name for tool in tools if _key(tool)[:2] == ("user", "")}
    return tuple(
        tool if _key(tool)[0] == "user" or tool.name not in taken else _numbered(tool, taken) for tool in tools
    )


def _numbered(tool: Tool, taken: Set[str]) -> Tool:
    name = next(one for i in count(1) if (one := f"{tool.name}_{i}") not in taken)
    return replace(tool, name=name, definition={**tool.definition, "name": name})


# Each type of tool


def _function(definition: Definition, param: str) -> Iterable[_Found]:
    said = _said(definition)
    strict = {"strict": True} if definition.get("strict") else {}
    said = {**said, "parameters": said.get("parameters", {"type": "object", "properties": {}}), **strict}
    yield _Found(Tool(definition["name"], said), param, definition.get("defer_loading") is True)


def _custom(definition: Definition, param: str) -> Iterable[_Found]:
    """The format is nested, as it is in a chat completion."""
    said = _said(definition)
    format = said.pop("format", {"type": "text"})
    if format["type"] == "grammar":
        grammar = {"syntax": format["syntax"], "definition": format["definition"]}
        said["format"] = {"type": "grammar", "grammar": grammar}
    yield _Found(Tool(definition["name"], said, "custom"), param, definition.get("defer_loading") is True)


def _namespace(definition: Definition, param: str) -> Iterable[_Found]:
    """What is said of the namespace is said of each of its tools."""
    for i, inner in enumerate(definition["tools"]):
        path = f"{param}.tools[{i}]"
        fields({"type": one_of("function", "custom")})(inner, path)
        for found in _read(inner, path):
            notes = [definition.get("description"), found.tool.definition.get("description")]
            described = {**found.tool.definition, "description": "\n\n".join(filter(None, notes))}
            yield replace(found, tool=replace(found.tool, namespace=definition["name"], definition=described))


def _tool_search(definition: Definition, param: str) -> Iterable[_Found]:
    said = {name: value for name, value in _said(definition).items() if name in ("description", "parameters")}
    return _own("tool_search", param, said) if definition.get("execution") == "client" else ()


def _local_shell(_: Definition, param: str) -> Iterable[_Found]:
    return _own("local_shell", param, {})


def _shell(definition: Definition, param: str) -> Iterable[_Found]:
    environment = definition.get("environment") or {"type": "local"}
    if environment["type"] != "local":
        return ()
    skills = [f"{one['name']} ({one['path']}): {one['description']}" for one in environment.get("skills") or ()]
    told = {"description": "\n".join(["Skills, each told of in the SKILL.md of its directory:", *skills])}
    return _own("shell", param, told if skills else {})


def _apply_patch(_: Definition, param: str) -> Iterable[_Found]:
    return _own("apply_patch", param, {})


def _own(kind: ToolKind, param: str, said: Definition) -> Iterable[_Found]:
    """A tool that is called like its type."""
    return [_Found(Tool(kind, {"name": kind, **said}, kind), param)]


def _nothing(_: Definition, __: str) -> Iterable[_Found]:
    return ()


def _refused(definition: Definition, param: str) -> Iterable[_Found]:
    message = f"'{param}' is not supported: this gateway has nothing that runs a tool of type '{definition['type']}'."
    raise BadRequest(message, code="unsupported_value", param=f"{param}.type")


def _said(definition: Definition) -> Definition:
    return {name: value for name, value in definition.items() if name not in _IDLE and value is not None}


def _echoed(definition: Definition) -> Definition:
    if definition["type"] == "function":
        return {"type": "function", **dict.fromkeys(("name", "description", "parameters", "strict")), **definition}
    return definition if definition["type"] in _USERS else _without_secrets(definition)


def _without_secrets(said: Definition) -> Definition:
    return {
        name: _without_secrets(value) if isinstance(value, dict) else value
        for name, value in said.items()
        if name not in _SECRET
    }


class _Row(Struct, frozen=True):
    """read: gives the tools that a definition brings; none where nothing here can run it."""

    check: Check
    read: Callable[[Definition, str], Iterable[_Found]]


_NAME = short(128, least=1)  # clients of MCP servers make longer names than the API has
_DESCRIBED: dict[str, Check] = {"description": string}
_DEFERRED: dict[str, Check] = {"defer_loading": boolean}
_SYNTAX: dict[str, Check] = {"syntax": one_of("lark", "regex"), "definition": string}


def _format(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    fields({"type": one_of("text", "grammar")})(value, param)
    fields(_SYNTAX if value["type"] == "grammar" else {})(value, param)


_SKILLS = list_of(fields({"name": string, "description": string, "path": string}))


def _environment(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    fields({"type": one_of("local", "container_auto", "container_reference")})(value, param)
    fields({}, {"skills": _SKILLS} if value["type"] == "local" else {})(value, param)


def _store(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """An id that can be a part of a path."""
    string(value, param)
    if not _STORE.fullmatch(value):
        message = f"Invalid '{param}': an id has letters, digits, dashes, dots, colons and underscores."
        raise BadRequest(message, code="invalid_value", param=param)


_FILTER = fields({}, {"tool_names": list_of(string), "read_only": boolean})


def _allowed_tools(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    (list_of(string) if isinstance(value, list) else _FILTER)(value, param)


def _require_approval(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    (one_of("always", "never") if isinstance(value, str) else fields({}, {"always": _FILTER, "never": _FILTER}))(
        value, param
    )


_MCP: dict[str, Check] = {
    "server_url": string, "server_description": string, "authorization": string, "headers": object_,
    "allowed_tools": _allowed_tools, "require_approval": _require_approval,
}  # fmt: skip
_LOCATION = fields({}, dict.fromkeys(("city", "country", "region", "timezone"), string))
_SEARCH: dict[str, Check] = {
    "filters": fields({}, {"allowed_domains": list_of(short(253, least=1), most=100)}),
    "user_location": _LOCATION,
    "search_context_size": one_of("low", "medium", "high"),
    "external_web_access": boolean,
}
_FILES: dict[str, Check] = {
    "max_num_results": integer(1, 50), "filters": object_, "ranking_options": object_,
}  # fmt: skip
_SEARCHES = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")
_NAMESPACES = dict.fromkeys(_SEARCHES, _SEARCHES[0])
HOSTED = ("mcp", *_SEARCHES, "file_search", "code_interpreter", "image_generation", "programmatic_tool_calling")
COMPUTERS = ("computer", "computer_use_preview")
TOOLS: dict[str, _Row] = {
    "function": _Row(
        fields({"name": _NAME}, {"parameters": object_, "strict": boolean, **_DESCRIBED, **_DEFERRED}), _function
    ),
    "custom": _Row(fields({"name": _NAME}, {"format": _format, **_DESCRIBED, **_DEFERRED}), _custom),
    "namespace": _Row(fields({"name": _NAME, "tools": list_of(object_)}, _DESCRIBED), _namespace),
    "tool_search": _Row(
        fields({}, {"execution": one_of("server", "client"), "parameters": object_, **_DESCRIBED}), _tool_search
    ),
    "local_shell": _Row(fields({}), _local_shell),
    "shell": _Row(fields({}, {"environment": _environment}), _shell),
    "apply_patch": _Row(fields({}), _apply_patch),
    **dict.fromkeys(HOSTED, _Row(fields({}), _nothing)),
    "mcp": _Row(fields({"server_label": _NAME}, _MCP), _nothing),
    **dict.fromkeys(_SEARCHES, _Row(fields({}, _SEARCH), _nothing)),
    "file_search": _Row(fields({"vector_store_ids": list_of(_store, least=1)}, _FILES), _nothing),
    **dict.fromkeys(COMPUTERS, _Row(fields({}), _refused)),
}
