"""Test grammars made of schemas: a real llama.cpp takes them and writes text that fits the schema."""

import json

import httpx
import jsonschema_rs
import pytest

from gateway import demo
from gateway.backends.kinds.llamacpp import schema_to_gbnf

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
    with demo.start_demo("--threads", "1", "--skip-chat-parsing", "--reasoning-format", "none") as url:
        yield url


@pytest.mark.parametrize("name", SCHEMAS)
def test_grammar_makes_a_real_server_fit_the_schema(server, name):
    body = {
        "messages": [{"role": "user", "content": "Write JSON."}],
        "grammar": schema_to_gbnf(SCHEMAS[name]),
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


def inside(schema, depth, **more):
    """Return a schema with objects nested to this depth."""
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, **more}
    return schema


N = 20_000
LARGE = {
    "types without number": inside({}, 30, type=["object", "object", "array", ["object"]]),
    "alternatives in alternatives": {"$defs": {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(N)}, "$ref": "#/$defs/a0"},
    "many members, all needed": {"type": "object", "properties": {f"p{i}": {} for i in range(N)}, "required": [f"p{i}" for i in range(N)]},
    "one definition by many names": {"$defs": {"a": {"enum": ["x" * 100] * 1000}}, "anyOf": [{"$ref": "#" + "/" * i + "/$defs/a"} for i in range(500)]},
    "all levels of one": {"$defs": {"a": inside({"enum": ["x" * 1000] * 100}, 30)}, "anyOf": [{"$ref": "#/$defs/a" + "/properties/a" * i} for i in range(30)]},
    "a long list of values": {"enum": [f"x{i}" for i in range(N)]},
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_grammar_has_a_bounded_size(name):
    written = schema_to_gbnf(LARGE[name])
    assert len(written) < (4 << 20) and written.startswith("root ::= ")
