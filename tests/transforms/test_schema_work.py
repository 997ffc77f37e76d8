"""Test that checks of a response against a schema end; most of these would take years."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.transforms.schema_validator import FormatValidator, compile_budget, is_affordable


def lattice(depth, word="anyOf"):
    """Return a schema in which each definition refers to the next one twice."""
    steps = {f"a{i}": {word: [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(depth)}
    return {"$defs": {**steps, f"a{depth}": {"type": "null"}}, "$ref": "#/$defs/a0"}


def nested(depth, inside=1):
    for _ in range(depth):
        inside = {"x": inside}
    return inside


def doubling(word, depth):
    inside = {"type": "null"}
    for _ in range(depth):
        inside = {word: [inside, inside]}
    return inside


def unevaluated(depth):
    inside = {"unevaluatedProperties": False, "properties": {"a": True}}
    for _ in range(depth):
        inside = {"unevaluatedProperties": False, "allOf": [inside]}
    return inside


TREE = {"properties": {"x": {"$ref": "#"}}}
SLOW = r"^(?:(?=a)a+)+$"
TOO_LONG = {
    **{f"a lattice of {word}": (lattice(40, word), 1) for word in ("allOf", "anyOf", "oneOf")},
    "twice into each member": ({"$defs": {"a": {"anyOf": [{"properties": {"x": {"$ref": "#/$defs/a"}}}] * 2}}, "$ref": "#/$defs/a"}, nested(60)),
    "what is left, again and again": (unevaluated(40), {"a": 1}),
    "a long list of values": ({"items": {"enum": [{"a": i} for i in range(20_000)]}}, [{"a": -1}] * 1000),
    "many values": ({"items": {"type": "integer"}}, [1] * 200_000),
    "one great many times": ({"allOf": [{"pattern": "(a+)+b"}] * 200}, "a" * 100_000),
    "itself": ({"$ref": "#"}, 1),
    "a circle": ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}}, 1),
    "another name": ({"$defs": {"a": {"$anchor": "b"}}, "$ref": "#b"}, 1),
    "a name that says where it is": ({"properties": {"a": {"$id": "http://x/", "type": "null"}}}, {"a": 1}),
    "what is decided later": ({"properties": {"a": {"$dynamicRef": "#"}}}, {"a": 1}),
}  # fmt: skip
TOO_MUCH = {
    "another's": {"$ref": "http://127.0.0.1:1/schema.json"},
    "a file's": {"$ref": "file:///etc/passwd"},
    "nothing": {"$ref": "#/$defs/none"},
    "a large one": {"enum": ["x" * 1000] * 1000},
    "patterns without number": {"properties": {f"p{i}": {"pattern": f"{i}"} for i in range(201)}},
    "a large pattern": {"pattern": r"(?:\p{L}{100}){50}"},
    "large patterns": {"allOf": [{"pattern": rf"\p{{L}}{{{i}}}"} for i in range(1, 150)]},
    "pattern in pattern": {"pattern": "^((a{0,99}){0,99}){0,99}$"},
    "no pattern": {"pattern": "("},
    "a deep one": doubling("allOf", 1) | {"not": nested(400)},
}  # fmt: skip


def form_of(schema):
    return FormatValidator(schema)


def check_of(schema, text):
    """Return whether the schema is checked at all, and why a text does not fit."""
    found = form_of(schema)
    return found.has_schema, found.mismatch(text)


@pytest.mark.parametrize("case", TOO_LONG)
def test_schema_check_that_takes_too_long_is_given_up(case):
    schema, value = TOO_LONG[case]
    assert check_of(schema, json.dumps(value)) == (True, "it takes too long to check")


@pytest.mark.parametrize("case", TOO_MUCH)
def test_schema_that_is_too_large_is_not_checked(case):
    assert check_of(TOO_MUCH[case], "1") == (False, None)


def test_schema_pattern_with_backtracking_does_not_match():
    known, misfit = check_of({"items": {"pattern": SLOW}}, json.dumps(["a" * 60 + "c"] * 4000))
    assert known and misfit == "it does not match its schema"
    known, misfit = check_of({"pattern": r"^(a+)+\1$"}, json.dumps("a" * 5000 + "b"))
    assert known and misfit


@pytest.mark.parametrize(
    "schema, good, bad",
    [
        (TREE | {"type": "object"}, nested(200, {}), nested(200)),
        (doubling("oneOf", 6), None, None),
        ({"type": "object", "properties": {"x": {"type": "string"}}}, {"x": "x" * 3_000_000}, [1]),
        ({"pattern": "^(?!\\.)[a-z.]+@[a-z.]+$"}, "me@x.org", ".me@x.org"),
        ({"prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "uniqueItems": True}, [None, 1, 2], [1, 1]),
        ({"items": {"type": "object", "required": ["a"], "properties": {"a": {"enum": [1, 2]}}}}, [{"a": 1}] * 5000, [{"a": 3}] * 5000),
        ({"allOf": [{"$ref": "#/allOf/1"}, {"type": "integer"}]}, 1, "1"),
        ({"propertyNames": {"maxLength": 1}, "patternProperties": {"a": {"const": 1}}, "additionalProperties": {"type": "null"}}, {"a": 1, "b": None}, {"ab": 1}),
        ({"dependentSchemas": {"a": {"required": ["b"]}}, "dependentRequired": {"b": ["a"]}}, {"a": 1, "b": 1}, {"a": 1}),
        ({"$defs": {"a/b~": True}, "properties": {"x": {"$ref": "#/$defs/a~1b~0"}, "y": False}}, {"x": 1}, {"y": 1}),
        ({"if": {"type": "null"}, "then": True, "else": {"contains": {"const": 1}}}, [1], [2]),
    ],
)  # fmt: skip
def test_schema_of_usual_size_is_checked(schema, good, bad):
    assert check_of(schema, json.dumps(good)) == (True, None) or good is None
    known, misfit = check_of(schema, json.dumps(bad))
    assert known and misfit and "too long" not in misfit


WORDS = st.sampled_from(
    ["$ref", "allOf", "items", "properties", "enum", "if", "additionalProperties", "$defs", "x", "type"]
)
ANY = st.recursive(
    st.sampled_from(["#", "#/x", "#/$defs/x", "#/allOf/0", "null", "", 1, None, True]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, ANY, max_size=4), ANY)
def test_schema_check_ends_for_any_schema(schema, value):
    assert is_affordable(schema, value, 1000) in (True, False) and compile_budget(schema) > 0
    assert is_affordable(schema, value, 0) is False
