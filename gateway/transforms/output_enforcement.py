"""Enforce `tool_choice` and `response_format` at a backend whose API has no field for them.

If the backend has grammars, a schema forces JSON with a name and arguments, which the response's format reads as a
tool call.  Otherwise the prompt demands the output, and output_validation.py checks the response.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import json
from msgspec.structs import replace

from gateway.backends import Kind
from gateway.backends.extra_fields import FORMS, requested_response_format, without_response_format
from gateway.backends.field_rules import EmulatedRule
from gateway.request import Message, Request, Tool, ToolChoice, ToolName, insert_after_system
from gateway.warnings import Warnings

EnforcementMeans = Literal["own", "schema", "words"]
_DEFINITIONS = ("$defs", "definitions")
_REFERENCE = re.compile(r'"\$ref":("(?:[^"\\]|\\.)*")')


def enforcement_means(kind: Kind, *, mute: bool, again: bool) -> EnforcementMeans:
    """Return the means of forcing a tool call.

    mute: the backend cannot force one by `tool_choice`.
    again: the last attempt did not call a tool.
    """
    own = not (mute or ignores_field(kind, "tool_choice"))
    if own and not again:
        return "own"
    if not ignores_field(kind, "response_format"):
        return "schema"
    return "own" if own else "words"


def is_enforced(request: Request) -> bool:
    """Return False if the request demands no tool call and no format, as most."""
    return request.tool_choice not in (None, "auto") or not FORMS.isdisjoint(request.rest)


def enforce_output(request: Request, kind: Kind, how: EnforcementMeans, ledger: Warnings) -> Request:
    """Return the request with its demand in a form that the backend can enforce."""
    if request.is_tool_forced:
        return _forced(request, how, ledger)
    form = requested_response_format(request) or {}
    if form.get("type") in ("json_object", "json_schema") and ignores_field(kind, "response_format"):
        ledger.add("emulated", "response_format")
        return replace(
            request, messages=_with_demand(request, _shape(form, request)), rest=without_response_format(request)
        )
    return request


def demand_text(choice: ToolChoice | None) -> str:
    """Return the demand to call a tool, in words.  The choice names the tool as the backend knows it."""
    which = f"the tool '{choice.name}'" if isinstance(choice, ToolName) else "one of the tools"
    return f"Answer with a call of {which}, and with nothing else."


def ignores_field(kind: Kind, field: str) -> bool:
    """Return True if the backend ignores a field, so that the gateway has to enforce it."""
    return isinstance(kind.fields[field], EmulatedRule)


def _forced(request: Request, how: EnforcementMeans, ledger: Warnings) -> Request:
    if how == "own":
        return request
    ledger.add("emulated", "tool_choice")
    rest = without_response_format(request)
    if len(rest) < len(request.rest):
        ledger.add("dropped", "response_format")
    words = demand_text(request.tool_choice)
    if how == "words":
        return replace(request, messages=_with_demand(request, words), rest=rest)
    words += ' Write it as JSON: {"name": <function-name>, "arguments": <arguments-object>}'
    form = {"type": "json_schema", "json_schema": {"name": "call", "schema": _calls(request)}}
    return replace(request, messages=_with_demand(request, words), rest={**rest, "response_format": form}, guided=True)


def _with_demand(request: Request, words: str) -> tuple[Message, ...]:
    return insert_after_system(request.messages, {"role": "system", "content": words})


def _shape(form: Mapping[str, Any], request: Request) -> str:
    schema = (form.get("json_schema") or {}).get("schema")
    fitting = f" that fits this JSON Schema: {_text(schema)}" if schema else ": one object."
    answer = "Unless you call a tool, answer" if request.callable_tools else "Answer"
    return f"{answer} with nothing but JSON{fitting}"


def _calls(request: Request) -> dict[str, Any]:
    """Return the schema of one tool call, or of a list of them if the client requests parallel calls."""
    choice = request.tool_choice
    tools = [tool for tool in request.callable_tools if not isinstance(choice, ToolName) or tool.name == choice.name]
    definitions: dict[str, Any] = {}
    calls = [_call(tool, f"tool{place}", definitions) for place, tool in enumerate(tools)]
    one = calls[0] if len(calls) == 1 else {"anyOf": calls}
    several = request.rest.get("parallel_tool_calls") is True and not isinstance(choice, ToolName)
    schema = {"type": "array", "items": one, "minItems": 1} if several else one
    return {**schema, "$defs": definitions} if definitions else schema


def _call(tool: Tool, prefix: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a call.  Definitions of its parameters move to those of the whole schema."""
    parameters = tool.definition.get("parameters") or {"type": "object"}
    places = [place for place in _DEFINITIONS if isinstance(parameters.get(place), dict)]
    names = {(place, name): f"{prefix}_{place.strip('$')}_{name}" for place in places for name in parameters[place]}
    if names:
        parameters = _referring(parameters, {f"#/{place}/{name}": there for (place, name), there in names.items()})
        definitions |= {there: parameters[place][name] for (place, name), there in names.items()}
    arguments = {name: value for name, value in parameters.items() if name not in places}
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _referring(schema: Mapping[str, Any], names: Mapping[str, str]) -> Any:  # noqa: ANN401 - decoded JSON
    """Return the schema with renamed references.  It is edited as text, which has no limit of depth."""
    there = {_text(path): _text(f"#/$defs/{name}") for path, name in names.items()}
    return json.decode(_REFERENCE.sub(lambda found: f'"$ref":{there.get(found[1], found[1])}', _text(schema)))


def _text(value: object) -> str:
    return json.encode(value).decode()
