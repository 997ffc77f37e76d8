"""Convert a neutral Request to the body of a message, by the rules of the kind.

JSON schemas are fitted to what the API takes: a part of the language, and less in a schema that it enforces.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from msgspec import json

from gateway.backends.anthropic.messages import (
    JsonObject,
    message_turns,
    split_system,
    system_blocks,
    user_turn,
)
from gateway.backends.anthropic.thinking import (
    cannot_think,
    chooses_itself,
    fit_thinking,
    fitting_thinking,
    names_version,
    needs_budget,
    thinking_fields,
)
from gateway.backends.openai.body_encoder import encoded
from gateway.backends.openai.request_body import BodyTarget, upstream_messages
from gateway.backends.request_fields import request_fields
from gateway.request import Request, Tool, ToolName
from gateway.warnings import Warnings

Schema = Mapping[str, Any]

# Keywords that the API refuses in a schema that it enforces.  The gateway still checks the response against all of it.
_REFUSED_KEYWORDS = frozenset(
    ("dependentRequired", "dependentSchemas", "else", "exclusiveMaximum", "exclusiveMinimum", "if", "maxItems",
     "maxLength", "maxProperties", "maximum", "minLength", "minProperties", "minimum", "multipleOf", "not",
     "patternProperties", "prefixItems", "propertyNames", "then", "unevaluatedProperties", "uniqueItems")
)  # fmt: skip
_FORMATS = ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid")
_REFUSED_PATTERN = re.compile(r"\(\?[=!<]|\\[bB1-9]")  # a look at what is around, a word's end, a reference
_LISTS = {"allOf": "allOf", "anyOf": "anyOf", "oneOf": "anyOf"}  # lists of schemas, and the API's name of each
_MAPS = ("properties", "$defs", "definitions")
_LEAST_ITEMS = (0, 1)  # values of `minItems` that the API takes
_REFERENCE = re.compile(r"#/(\$defs|definitions)/([^/]+)")
_ANY_OBJECT = {"type": "object", "properties": {}}
_KEPT = ("description", "cache_control")
_NONE = {"type": "none"}


PATH = "/v1/messages"
_AN_OBJECT = "Answer with one JSON object and nothing else, without a code fence."
_JSON = ("json_object", "json_schema")
_SAMPLING = ("temperature", "top_k", "top_p")
_CACHE_POINT = {"type": "ephemeral"}
_CACHED_TURNS = 2  # the last turns of the user that get a cache point; the API takes four points in all
_encode = json.Encoder().encode


def fitting_schema(schema: Schema) -> dict[str, Any]:
    """Return a schema that the API can enforce: its objects have no other members than those named."""
    made = {
        _LISTS.get(name, name): _fitting_member(name, value) for name, value in schema.items() if _is_fit(name, value)
    }
    if made.get("type") == "object" or "properties" in made:
        made["additionalProperties"] = False
    return made


def has_open_objects(value: object) -> bool:
    """Return True if some object of a schema has members that the schema does not name, as a map has."""
    if isinstance(value, list):
        return any(map(has_open_objects, value))
    if not isinstance(value, dict):
        return False
    is_open = value.get("additionalProperties") or (value.get("type") == "object" and "properties" not in value)
    return bool(is_open) or any(map(has_open_objects, value.values()))


def input_schema(parameters: Schema) -> dict[str, Any]:
    """Return the schema of a tool's input: one object without alternatives, which the API refuses there.

    Properties of all alternatives are offered.  Only those are required that each alternative requires.
    """
    flat = _flat(parameters)
    return flat if flat.get("type") else {"type": "object", **flat}


def _is_fit(name: str, value: object) -> bool:
    match name:
        case "minItems":
            return value in _LEAST_ITEMS
        case "format":
            return value in _FORMATS
        case "pattern":
            return not (isinstance(value, str) and _REFUSED_PATTERN.search(value))
    return name not in _REFUSED_KEYWORDS


def _fitting_member(name: str, value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    if name in _MAPS and isinstance(value, dict):
        return {key: _fitting(one) for key, one in value.items()}
    if name in _LISTS and isinstance(value, list):
        return [_fitting(one) for one in value]
    return _fitting(value) if name == "items" else value


def _fitting(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    return fitting_schema(value) if isinstance(value, dict) else value


def _flat(schema: Schema) -> dict[str, Any]:
    """Return a schema whose alternatives are merged into it.  Takes time in proportion to its size."""
    if _LISTS.keys().isdisjoint(schema):
        return {**schema}
    made = {name: value for name, value in schema.items() if name not in _LISTS}
    found: dict[str, dict[bytes, Any]] = {}  # the different schemas of each property
    for part in _parts(schema):
        for name, value in _object(part.get("properties")).items():
            found.setdefault(name, {})[json.encode(value)] = value
    if found:
        made["properties"] = {name: _any_of([*values.values()]) for name, values in found.items()}
    if required := _required(schema):
        made["required"] = sorted(required)
    return made


def _any_of(schemas: list[Any]) -> Any:  # noqa: ANN401 - decoded JSON
    return {"anyOf": schemas} if len(schemas) > 1 else schemas[0]


def _parts(schema: Schema) -> Iterator[Schema]:
    """Yield the schema and all alternatives in it, at any depth; each definition once."""
    left, seen = deque([schema]), set[str]()
    while left:
        part = left.popleft()
        yield part
        left += (branch for name in _LISTS for branch in _branches(part.get(name)))
        reference = part.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            left.append(_resolved(part, schema))


def _branches(value: object) -> Iterator[Schema]:
    return filter(_is_object, value if isinstance(value, list) else ())


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _resolved(part: Schema, root: Schema) -> Schema:
    """Return the definition that a schema refers to; the schema itself without one."""
    found = _REFERENCE.fullmatch(str(part.get("$ref")))
    return _object(_object(root.get(found[1])).get(found[2])) if found else part


def _required(schema: Schema) -> set[str]:
    """Return the names of the properties that a schema and each of its alternatives requires."""
    names = _names(schema)
    for name in _LISTS:
        needed = [_names(_resolved(branch, schema)) for branch in _branches(schema.get(name))]
        if needed:
            names |= set.union(*needed) if name == "allOf" else set.intersection(*needed)
    return names


def _names(schema: Schema) -> set[str]:
    required = schema.get("required")
    return {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()


def _object(value: object) -> Schema:
    return value if isinstance(value, dict) else {}


def message_body(request: Request, target: BodyTarget, known: Set[str], ledger: Warnings) -> bytes:
    """Return the body of a message.

    known: the fields of the client's API.
    ledger: receives a warning for each field that is not sent unchanged.

    Raises BadRequest for message parts that the API does not accept.
    """
    data = request_fields(request, target.kind, known, ledger)
    leading, conversation = split_system(upstream_messages(request, target, ledger))
    system, turns = system_blocks(leading), message_turns(conversation, ledger)
    if turns[-1]["role"] == "assistant":
        turns += _turns_behind_prefill(request, target.model, ledger)
    limit = data.pop("max_tokens", None)
    data.pop("continue_final_message", None)  # the API always continues
    fields: JsonObject = {
        "model": target.model,
        "max_tokens": 0,
        "messages": turns,
        **tool_fields(request, target, turns, ledger, parallel=data.pop("parallel_tool_calls", True) is not False),
        **_stops(data.pop("stop", None), ledger),
    }
    _add_config(fields, _format(data.pop("response_format", None), system, ledger))
    own = thinking_fields(data, target.model, ledger)
    _add_config(fields, own.pop("output_config", {}))
    if isinstance(data.get("output_config"), dict):  # the backend refuses anything else
        _add_config(fields, data.pop("output_config"))
    fields |= data | own
    if system:
        fields["system"] = system
    _fit_sampling(fields, target.model, ledger)
    fields["max_tokens"] = fit_thinking(fields, limit, turns, ledger)
    if target.caches:
        _cache_prompt(fields)
    fields["stream"] = request.stream
    return encoded(fields) if request.large else _encode(fields)


def client_body(request: Request, target: BodyTarget, ledger: Warnings) -> bytes:
    """Return the body as a client of the same API sent it, for the backend's model.

    What the API is known to refuse is changed, with a warning.
    """
    sent = request.sent
    assert sent and sent.fields
    ledger.put(sent.notes)
    fields: JsonObject = {**sent.fields, "model": target.model}
    if cannot_think(fields):
        ledger.add("unenforced", "thinking")
        fields |= _without_thinking(fields)
    if chooses_itself(target.model) and names_version(target.model):
        _fit_sampling(fields, target.model, ledger)
        if thinking := fields.get("thinking"):
            fields["thinking"] = fitting_thinking(thinking, None, target.model, ledger)
    limit, given = request.max_tokens, fields.get("max_tokens")
    if limit and given:  # 0 only fills the cache
        fields["max_tokens"] = limit
        if limit < given:
            fit_thinking(fields, limit, fields["messages"], ledger)
    return encoded(fields) if request.large else _encode(fields)


def _turns_behind_prefill(request: Request, model: str, ledger: Warnings) -> list[JsonObject]:
    """Return what follows a last message of the assistant: nothing, if the model is to continue it and can."""
    if not request.fresh and needs_budget(model):
        return []
    if not request.fresh:
        ledger.add("unenforced", "prefill")
    return [user_turn(ledger)]


def _without_thinking(fields: JsonObject) -> JsonObject:
    """Return the members that turn reasoning off; the API then refuses edits of it."""
    edits = (fields.get("context_management") or {}).get("edits") or []
    kept = [edit for edit in edits if not edit["type"].startswith("clear_thinking_")]
    return {"thinking": {"type": "disabled"}, **({"context_management": {"edits": kept}} if edits else {})}


def _add_config(fields: JsonObject, more: Mapping[str, Any]) -> None:
    """Add members of `output_config`; later ones win."""
    if more:
        fields["output_config"] = {**fields.get("output_config", {}), **more}


def _format(format: Any, system: list[JsonObject], ledger: Warnings) -> JsonObject:  # noqa: ANN401 - decoded JSON
    """Return the format for `output_config`; without a schema the instructions demand an object."""
    match format:
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            fitting = fitting_schema(schema)
            if fitting != schema:
                ledger.add("translated", "response_format")
            return {"format": {"type": "json_schema", "schema": fitting}}
        case {"type": type} if type in _JSON:
            ledger.add("translated", "response_format")
            system.append({"type": "text", "text": _AN_OBJECT})
        case {"type": type} if type != "text":
            ledger.add("dropped", "response_format")
    return {}


def _stops(given: Any, ledger: Warnings) -> JsonObject:  # noqa: ANN401 - decoded JSON
    """Return the stop sequences, without those that are white space, which the API refuses."""
    items = [given] if isinstance(given, str) else given or []
    stops = [text for text in items if text.strip()]
    if len(stops) < len(items):
        ledger.add("dropped", "stop")
    return {"stop_sequences": stops} if stops else {}


def _fit_sampling(fields: JsonObject, model: str, ledger: Warnings) -> None:
    """Keep the temperature within the API's range, and without a top_p, as newer models refuse both together.

    The newest models refuse all parameters of sampling, but for the temperature that they have.
    """
    temperature = fields.get("temperature")
    if temperature is not None and temperature > 1:
        temperature = fields["temperature"] = 1
        ledger.add("translated", "temperature")
    itself = chooses_itself(model)
    refused = {"temperature": itself and temperature != 1, "top_k": itself, "top_p": itself or temperature is not None}
    for name in filter(refused.get, _SAMPLING):
        if name in fields:
            del fields[name]
            ledger.add("dropped", name)


def _cache_prompt(fields: JsonObject) -> None:
    """Set the points of the prompt cache, for clients that cannot.

    Mark the last tool, the instructions and the last turns of the user, unless the client set a point itself.
    """
    users = [turn for turn in fields["messages"] if turn["role"] == "user"][-_CACHED_TURNS:]
    lists: list[list[Any]] = [fields.get("tools") or [], fields.get("system") or []]
    lists += [turn["content"] for turn in users]
    turns = [block for turn in fields["messages"] for block in turn["content"]]
    if "cache_control" in fields or any("cache_control" in one for one in [*lists[0], *lists[1], *turns]):
        return
    for blocks in filter(None, lists):
        blocks[-1] = {**blocks[-1], "cache_control": _CACHE_POINT}


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
