"""Build the content of the page /docs from the description of the API."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct


class ApiField(Struct, frozen=True):
    """A parameter, or a field of a request's body.  place: path, query, header or body."""

    name: str
    place: str
    type: str
    required: bool


class ApiOperation(Struct, frozen=True):
    """A request that the gateway answers.  example: a body, as JSON; "" without one."""

    id: str
    method: str
    path: str
    summary: str
    details: str
    fields: list[ApiField]
    example: str


def read_operations(document: Mapping[str, Any]) -> dict[str, list[ApiOperation]]:
    """Return the operations of an OpenAPI document, by the first two parts of their paths."""
    groups: dict[str, list[ApiOperation]] = {}
    for path, methods in document["paths"].items():
        root = "/".join(path.split("/")[:3])
        groups.setdefault(root, []).extend(_operation(path, method, one) for method, one in methods.items())
    return groups


def _operation(path: str, method: str, one: Mapping[str, Any]) -> ApiOperation:
    content = one.get("requestBody", {}).get("content", {}).get("application/json", {})
    example = json.dumps(content["example"], indent=2, ensure_ascii=False) if "example" in content else ""
    summary, _, details = one["description"].partition("\n")
    fields = [*_parameters(one), *_body_fields(content.get("schema", {}))]
    return ApiOperation(one["operationId"], method.upper(), path, summary, details.strip(), fields, example)


def _parameters(one: Mapping[str, Any]) -> Iterator[ApiField]:
    for given in one.get("parameters", ()):
        yield ApiField(given["name"], given["in"], _type_of(given["schema"]), given["required"])


def _body_fields(schema: Mapping[str, Any]) -> Iterator[ApiField]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield ApiField(name, "body", _type_of(field), name in required)


def _type_of(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_type_of, schema["anyOf"]))
    return str(schema.get("type", "any"))
