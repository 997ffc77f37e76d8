"""Describe for OpenAPI the bodies of requests that FastAPI does not parse."""

from typing import Any

_STREAM: dict[str, Any] = {"stream": {"type": "boolean"}}
_CHATS = {**_STREAM, "tools": {"type": "array", "items": {"type": "object"}}}
_TEXTS = {"anyOf": [{"type": "string"}, {"type": "array"}]}
_EMBEDDED = {"anyOf": [*_TEXTS["anyOf"], {"type": "object"}]}
_CONVERSATION = {"type": "array", "items": {"type": "object"}, "minItems": 1}
_TOKENS = {"type": "array", "items": {"type": "integer"}}


def _body(description: str, required: list[str], properties: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    optional = {name: {"anyOf": [data, {"type": "null"}]} for name, data in properties.items() if name not in required}
    schema = {
        "type": "object",
        "required": required,
        "description": f"{description}; fields that the API does not know go to the backend.",
        "properties": {"model": {"type": "string"}, **properties, **optional},
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


CHAT = _body(
    "OpenAI's chat completion",
    ["model", "messages"],
    {"messages": _CONVERSATION, **_CHATS},
    {"model": "smollm2", "messages": [{"role": "user", "content": "Hello!"}]},
)
RESPONSES = _body(
    "OpenAI's response",
    ["model", "input"],
    {
        "input": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "instructions": {"type": "string"},
        **_CHATS,
    },
    {"model": "smollm2", "input": "Hello!"},
)
COMPLETIONS = _body(
    "OpenAI's legacy completion",
    ["model", "prompt"],
    {"prompt": _TEXTS, "max_tokens": {"type": "integer", "default": 16}, **_STREAM},
    {"model": "smollm2", "prompt": "The capital of Norway is"},
)
_MESSAGES: dict[str, Any] = {
    "messages": _CONVERSATION,
    "max_tokens": {"type": "integer", "minimum": 0},
    "system": _TEXTS,
    **_CHATS,
}
_PROMPT: dict[str, Any] = {"model": "smollm2", "messages": [{"role": "user", "content": "Hello!"}]}
MESSAGES = _body("Anthropic's message", ["model", "messages", "max_tokens"], _MESSAGES, {**_PROMPT, "max_tokens": 100})
MESSAGE_COUNT = _body("The prompt of Anthropic's message", ["model", "messages"], _MESSAGES, _PROMPT)
EMBEDDINGS = _body(
    "OpenAI's embeddings, with `messages` in place of `input` for models that take images",
    ["model"],
    {
        "input": _EMBEDDED,
        "messages": _CONVERSATION,
        "dimensions": {"type": "integer"},
        "encoding_format": {"enum": ["float", "base64"]},
    },
    {"model": "nomic-embed", "input": "Hello!"},
)
RERANK = _body(
    "Cohere's and Jina's ranks",
    ["model", "query", "documents"],
    {"query": {"type": "string"}, "documents": {"type": "array"}, "top_n": {"type": "integer"}},
    {"model": "bge-reranker", "query": "Norway", "documents": ["Oslo is its capital.", "Bananas are yellow."]},
)
TOKENIZE = _body("A text", ["model"], {"prompt": {"type": "string"}}, {"model": "smollm2", "prompt": "Hello!"})
DETOKENIZE = _body("Tokens", ["model", "tokens"], {"tokens": _TOKENS}, {"model": "smollm2", "tokens": [19556, 17]})


def _form(file: str, properties: dict[str, Any]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": [file, *properties],
        "properties": {file: {"type": "string", "format": "binary"}, **properties},
    }
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


FILE = _form("file", {"purpose": {"type": "string"}})
PART = _form("data", {})
