"""Convert a neutral Request to the body of a message, by the rules of the kind."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from msgspec import json

from gateway.backends.anthropic.messages import (
    JsonObject,
    message_turns,
    split_system,
    system_blocks,
    user_turn,
)
from gateway.backends.anthropic.schemas import Schema, fitting_schema, has_open_objects, input_schema
from gateway.backends.anthropic.thinking import (
    cannot_think,
    chooses_itself,
    fit_thinking,
    needs_budget,
    thinking_fields,
)
from gateway.backends.openai.body_encoder import encoded
from gateway.backends.openai.request_body import BodyTarget, upstream_messages
from gateway.backends.request_fields import request_fields
from gateway.request import Request, Tool, ToolName
from gateway.warnings import Warnings

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
    """Return the body as a client of the same API sent it, for the backend's model."""
    sent = request.sent
    assert sent and sent.fields
    ledger.put(sent.notes)
    fields: JsonObject = {**sent.fields, "model": target.model}
    if cannot_think(fields):
        ledger.add("unenforced", "thinking")
        fields |= _without_thinking(fields)
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
