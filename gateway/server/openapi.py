"""What `/docs` says of the bodies that are read before the framework sees them."""

from typing import Any


def _body(description: str, required: list[str], properties: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    shared = {
        "model": {"type": "string"},
        "stream": {"type": "boolean"},
        "tools": {"type": "array", "items": {"type": "object"}},
    }
    schema = {
        "type": "object",
        "required": required,
        "description": f"{description}; fields that the API does not know go to the backend.",
        "properties": properties | shared,
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


CHAT = _body(
    "OpenAI's chat completion",
    ["model", "messages"],
    {"messages": {"type": "array", "items": {"type": "object"}, "minItems": 1}},
    {"model": "smollm2", "messages": [{"role": "user", "content": "Hello!"}]},
)
RESPONSES = _body(
    "OpenAI's response",
    ["model", "input"],
    {
        "input": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "instructions": {"type": "string"},
    },
    {"model": "smollm2", "input": "Hello!"},
)
