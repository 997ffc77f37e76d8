"""Test the schemas that Anthropic's API gets: it takes a part of the language, and no alternatives at a tool's root."""

import pytest

from gateway.backends.anthropic.request_body import fitting_schema, has_open_objects, input_schema

CLOSED = {"additionalProperties": False}
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def test_schemas_lose_only_keywords_that_the_api_refuses():
    schema = {
        "$defs": {"a": {"type": "string", "maxLength": 3, "pattern": "a+"}},
        "anyOf": [
            {"type": "array", "items": {"type": "object"}, "minItems": 2},
            {"type": "array", "minItems": 1, "prefixItems": [TEXT]},
            True,
        ],
        "properties": 5,
        "not": {"type": "null"},
        "title": "kept",
    }
    assert fitting_schema(schema) == {
        "$defs": {"a": {"type": "string", "pattern": "a+"}},
        "anyOf": [{"type": "array", "items": {"type": "object", **CLOSED}}, {"type": "array", "minItems": 1}, True],
        "properties": 5,
        "title": "kept",
        **CLOSED,
    }


def test_schemas_have_any_of_in_the_place_of_one_of():
    schema = {"type": "object", "properties": {"a": {"oneOf": [TEXT, {"type": "integer", "minimum": 1}]}}}
    assert fitting_schema(schema) == {"type": "object", "properties": {"a": {"anyOf": [TEXT, NUMBER]}}, **CLOSED}


@pytest.mark.parametrize(
    ("schema", "fitting"),
    [
        ({"format": "email", "pattern": r"^(?!\.)(?!.*\.\.)[a-z]+@[a-z]+$"}, {"format": "email"}),  # of Zod 4
        ({"format": "password"}, {}),
        ({"format": ["date"]}, {}),
        ({"pattern": r"^(?:a|b)\d{3}$"}, {"pattern": r"^(?:a|b)\d{3}$"}),
        ({"pattern": r"\bword"}, {}),
        ({"pattern": r"(a)\1"}, {}),
        ({"pattern": 5}, {"pattern": 5}),
    ],
)
def test_schemas_of_strings_have_formats_and_patterns_of_the_api(schema, fitting):
    assert fitting_schema({**TEXT, **schema}) == {**TEXT, **fitting}


@pytest.mark.parametrize(
    ("schema", "open"),
    [
        ({"type": "object", "properties": {"a": TEXT}}, False),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, True),
        ({"anyOf": [{"type": "object", "properties": {}, "additionalProperties": TEXT}]}, True),
        ({"type": "object", "properties": {}, "additionalProperties": False}, False),
    ],
)
def test_schemas_with_maps_are_open(schema, open):
    assert has_open_objects(schema) is open


FLAT = {
    "none": ({"type": "object", "properties": {"a": {"oneOf": []}}}, {"properties": {"a": {"oneOf": []}}}),
    "without a type": ({"properties": {"a": TEXT}}, {"properties": {"a": TEXT}}),
    "names of properties": (
        {"properties": {"a": TEXT, "b": TEXT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"properties": {"a": TEXT, "b": TEXT}},
    ),
    "whole objects": (
        {
            "oneOf": [
                {"properties": {"kind": {"const": "x"}, "a": TEXT}, "required": ["kind", "a"]},
                {"properties": {"kind": {"const": "y"}, "a": TEXT}, "required": ["kind"]},
            ],
            "title": "t",
        },
        {
            "title": "t",
            "properties": {"kind": {"anyOf": [{"const": "x"}, {"const": "y"}]}, "a": TEXT},
            "required": ["kind"],
        },
    ),
    "definitions": (
        {
            "$defs": {"A": {"properties": {"a": TEXT}, "required": ["a"], "anyOf": [{"$ref": "#/$defs/A"}]}},
            "allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, {"$ref": 5}, {"$ref": "other.json"}],
            "properties": {"b": NUMBER},
            "required": ["b", 5],
        },
        {
            "$defs": {"A": {"properties": {"a": TEXT}, "required": ["a"], "anyOf": [{"$ref": "#/$defs/A"}]}},
            "properties": {"b": NUMBER, "a": TEXT},
            "required": ["a", "b"],
        },
    ),
    "nested": ({"anyOf": [{"allOf": [{"properties": {"a": TEXT}}]}, True]}, {"properties": {"a": TEXT}}),
    "no list": ({"anyOf": 5}, {}),
}


@pytest.mark.parametrize(("schema", "flat"), FLAT.values(), ids=FLAT)
def test_schemas_of_tools_have_no_alternatives_at_their_root(schema, flat):
    assert input_schema(schema) == {"type": "object", **flat}
