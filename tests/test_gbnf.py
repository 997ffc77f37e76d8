"""A schema as a grammar: a real llama.cpp takes it, and what it then writes fits the schema."""

import json

import httpx
import jsonschema_rs
import pytest

from gateway import demo
from gateway.backends.gbnf import grammar

NODE = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
    "required": ["n", "next"],
}
SCHEMAS = {
    "any": {},
    "an object": {"type": "object"},
    "members": {"type": "object", "properties": {"b": {"type": "boolean"}, "a": {"type": "integer"}}, "required": ["a", "b"]},
    "one more": {"type": "object", "properties": {"a": {"type": "null"}, "b": {"enum": ["x\"y", "\\", 3]}}, "required": ["b"]},
    "none needed": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"const": "é\n"}, "c": {"type": "null"}}},
    "a list": {"type": "array", "items": {"type": ["boolean", "null"]}},
    "a longer list": {"type": "array", "items": {"oneOf": [{"const": 1}, {"const": [2]}]}, "minItems": 1},
    "definitions": {"$defs": {"Node": NODE}, "$ref": "#/$defs/Node"},
    "nothing there": {"type": "object", "properties": {"a": {"$ref": "#/$defs/None/at/all"}}, "required": ["a"]},
    "no type": {"type": "object", "properties": {"a": {"type": "date"}, "b": {"enum": []}}, "required": ["a", "b"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def server():
    with demo.start("--threads", "1", "--skip-chat-parsing", "--reasoning-format", "none") as url:
        yield url


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_written_by_it_fits(server, name):
    body = {
        "messages": [{"role": "user", "content": "Write JSON."}],
        "grammar": grammar(SCHEMAS[name]),
        "max_tokens": 60,
        "temperature": 0,
        "logit_bias": [["n", 2]],
    }
    answer = httpx.post(f"{server}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    if choice["finish_reason"] == "stop":
        jsonschema_rs.validate(SCHEMAS[name], json.loads(choice["message"]["content"]), offline=True)
    else:
        assert choice["message"]["content"].strip()
