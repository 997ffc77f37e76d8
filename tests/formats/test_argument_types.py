"""Test the conversion of a parameter's text to the JSON that its schema wants."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.formats.argument_types import ANY, JSON, STRING, argument_types, has_parameter, to_json, type_named
from gateway.formats.parser import ParseContext
from support.format_events import text_events, written

STRINGS = {"type": "string"}
INTEGER, NUMBER, BOOLEAN = {"type": "integer"}, {"type": "number"}, {"type": "boolean"}
ARRAY, OBJECT = {"type": "array"}, {"type": "object"}
WITH_DEFINITIONS = {
    "$defs": {"Count": INTEGER, "a/b~c": BOOLEAN, "Round": {"anyOf": [{"$ref": "#/$defs/Round"}, NUMBER]}}
}


def either(*types):
    return {"type": list(types)}


# text → JSON, or None if the value stays a string
TABLE = [
    # a string is a string
    (STRINGS, "12345", None),
    (STRINGS, "true", None),
    (STRINGS, "null", None),
    (STRINGS, "   ", None),
    (STRINGS, "", None),
    (STRINGS, '{"this": "is", "just": "a string"}', None),
    (STRINGS, 'She said "hello"\n\tand left \\ é 😀 \x00', None),
    # integers
    (INTEGER, "42", "42"),
    (INTEGER, " -100\n", "-100"),
    (INTEGER, "0", "0"),
    (INTEGER, "007", "7"),
    (INTEGER, "+5", "5"),
    (INTEGER, "-007", "-7"),
    (INTEGER, "2147483648", "2147483648"),
    (INTEGER, "123456789012345678901234567890", "123456789012345678901234567890"),
    (INTEGER, "3.0", None),
    (INTEGER, "1e3", None),
    (INTEGER, "twelve", None),
    (INTEGER, "", None),
    (INTEGER, "true", None),
    (INTEGER, "[1]", None),
    (INTEGER, '"5"', None),
    (INTEGER, "NULL", "null"),
    (INTEGER, "None", "null"),
    # numbers
    (NUMBER, "123", "123"),
    (NUMBER, "3.14", "3.14"),
    (NUMBER, "-273.15", "-273.15"),
    (NUMBER, "100.0", "100.0"),
    (NUMBER, "1.23e5", "1.23e5"),
    (NUMBER, "1.5E-3", "1.5E-3"),
    (NUMBER, "00.5", "0.5"),
    (NUMBER, "3.14.159", None),
    (NUMBER, "1e999", None),
    (NUMBER, "NaN", None),
    (NUMBER, "Infinity", None),
    (NUMBER, "-inf", None),
    (NUMBER, "1_000", None),
    # booleans
    (BOOLEAN, "true", "true"),
    (BOOLEAN, "True", "true"),
    (BOOLEAN, "FALSE", "false"),
    (BOOLEAN, "1", "true"),
    (BOOLEAN, "0", "false"),
    (BOOLEAN, "yes", None),
    (BOOLEAN, "2", None),
    # lists and objects
    (ARRAY, '["foo", "bar"]', '["foo", "bar"]'),
    (ARRAY, "[1, 2.50,\n 3]", "[1, 2.50,\n 3]"),
    (ARRAY, "[]", "[]"),
    (ARRAY, "['it''s', True, None, (1, 2)]", '["its", true, null, [1, 2]]'),
    (ARRAY, "(1, 'é')", '[1, "é"]'),
    (ARRAY, "[1, 2, unclosed", None),
    (ARRAY, "[1e999]", None),
    (ARRAY, "['\\ud800']", None),
    (ARRAY, r"['\d']", r'["\\d"]'),
    (ARRAY, "{1, 2}", None),
    (ARRAY, '{"a": 1}', None),
    (ARRAY, "[" * 100_000, None),
    (OBJECT, '{"outer": {"inner": "value"}}', '{"outer": {"inner": "value"}}'),
    (OBJECT, "{}", "{}"),
    (OBJECT, "{'a': True, 1: {'b': [None]}}", '{"a": true, "1": {"b": [null]}}'),
    (OBJECT, "{'a': 1, 'b'}", None),
    (OBJECT, "{(1, 2): 3}", None),
    (OBJECT, '{"key": unclosed', None),
    (OBJECT, "null", "null"),
    # unions: other types come before strings
    (either("string", "number"), "42.5", "42.5"),
    (either("string", "number"), "hello", None),
    (either("number", "string"), "42.5", "42.5"),
    (either("string", "integer"), "123", "123"),
    (either("string", "integer"), "00123", None),
    (either("string", "integer"), "1.5", None),
    (either("integer", "null"), "123", "123"),
    (either("integer", "null"), "null", "null"),
    (either("string", "null"), "Null", "null"),
    (either("string", "null"), "None", None),
    (either("string", "integer"), "null", None),
    (either("boolean", "string"), "true", "true"),
    (either("boolean", "string"), "yes", None),
    (either("boolean", "string"), "1", None),
    (either("boolean", "integer"), "1", "1"),
    (either("integer", "number"), "42", "42"),
    (either("integer", "number"), "42.5", "42.5"),
    (either("array", "object"), "[1]", "[1]"),
    (either("array", "object"), '{"k": 1}', '{"k": 1}'),
    (either("string", "number", "boolean", "null"), "3.14", "3.14"),
    (either("array", "string"), '[{"id": "1"}]', '[{"id": "1"}]'),
    (either("array", "string"), "Error: could not load", None),
    (either("integer", None, 5), "5", "5"),
    ({"anyOf": [INTEGER, {"type": "null"}]}, "None", "null"),
    ({"anyOf": [STRINGS, INTEGER, 7]}, "5", "5"),
    ({"oneOf": [ARRAY, OBJECT]}, "[]", "[]"),
    ({"allOf": [INTEGER, {"minimum": 3}]}, "5", "5"),
    ({"allOf": [STRINGS, {"minLength": 3}]}, "5", None),
    ({"type": "integer", "nullable": True}, "null", "null"),
    ({"type": "string", "nullable": True}, "null", "null"),
    # types derived from values or members
    ({"enum": [1, "one"]}, "1", "1"),
    ({"enum": [1, "one"]}, "one", None),
    ({"enum": ["1", "2"]}, "1", None),
    ({"enum": [True, None]}, "None", "null"),
    ({"enum": 5}, "5", "5"),
    ({"const": 5}, "5", "5"),
    ({"const": "5"}, "5", None),
    ({"type": "string", "enum": [1]}, "1", None),
    ({"properties": {"k": STRINGS}}, "{'k': 'v'}", '{"k": "v"}'),
    ({"items": STRINGS}, "['v']", '["v"]'),
    # references
    ({"$ref": "#/$defs/Count"}, "5", "5"),
    ({"$ref": "#/$defs/Count"}, "x", None),
    ({"$ref": "#/$defs/a~1b~0c"}, "True", "true"),
    ({"$ref": "#/$defs/Round"}, "5.5", "5.5"),
    ({"$ref": "#/$defs/Count/deeper"}, "5", "5"),
    ({"$ref": "#/$defs/missing"}, "[5]", "[5]"),
    ({"$ref": "https://example.com/schema"}, "5", "5"),
    ({"$ref": 5}, "5", "5"),
    # any type
    ({}, "5", "5"),
    ({}, "True", "true"),
    ({}, "null", "null"),
    ({}, "007", None),
    ({}, "hello", None),
    ({}, '"hello"', None),
    ({"type": "any"}, "[1]", "[1]"),
    ({"description": "anything"}, "1e999", None),
    # words of programming languages
    ({"type": "str"}, "5", None),
    ({"type": "Text"}, "5", None),
    ({"type": "int32"}, "5", "5"),
    ({"type": "uint64"}, "5", "5"),
    ({"type": "float"}, "5.5", "5.5"),
    ({"type": "double"}, "5", "5"),
    ({"type": "bool"}, "True", "true"),
    ({"type": "list[str]"}, "['a']", '["a"]'),
    ({"type": "Dict[str, int]"}, "{'a': 1}", '{"a": 1}'),
    ({"type": "NoneType"}, "None", "null"),
    # no schema at all
    (7, "5", None),
    (None, "[5]", None),
]


@pytest.mark.parametrize(("schema", "text", "wanted"), TABLE, ids=str)
def test_schema_decides_the_json_of_a_text(schema, text, wanted):
    tool = {"properties": {"p": schema}, **WITH_DEFINITIONS}
    value = to_json(text, argument_types(tool, "p"))
    assert value == wanted if wanted is not None else json.loads(value) == text


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        ('"hello"', JSON, '"hello"'),
        ("hello", JSON, '"hello"'),
        ("5", JSON, "5"),
        ("[1,  2]", JSON, "[1,  2]"),
        ('"hello"', ANY, '"\\"hello\\""'),
        ("5", STRING, '"5"'),
    ],
)
def test_schema_json_parameter_may_be_a_quoted_string(text, wanted, value):
    assert to_json(text, wanted) == value


def test_schema_of_an_unknown_parameter_is_a_string_by_default():
    for tool in ({}, {"properties": {}}, {"properties": []}):
        assert argument_types(tool, "p") == STRING and argument_types(tool, "p", JSON) == JSON
    assert (
        has_parameter({}, "p") and has_parameter({"properties": []}, "p") and not has_parameter({"properties": {}}, "p")
    )


def test_schema_type_that_is_unknown_means_any():
    assert type_named("widget") == type_named("") == ANY


def test_schema_with_circles_is_read_fast():
    options = {"anyOf": [{"$ref": f"#/$defs/S{i}"} for i in range(200)]}
    tool = {"properties": {"p": options}, "$defs": {f"S{i}": options for i in range(200)}}
    assert argument_types(tool, "p") == ANY


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from([schema for schema, _, _ in TABLE]))
def test_schema_makes_json_of_any_text(text, schema):
    json.loads(to_json(text, argument_types({"properties": {"p": schema}}, "p")))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("some-string", "some-string"),
        ("\nsome-string\n", "some-string"),
        ("\n\nsome-string\n\n", "\nsome-string\n"),
        (" \nsome-string\n ", " \nsome-string\n "),
        ("\n", ""),
        ("\r\nsome\r\nstring\r\n", "some\r\nstring"),
        ("/usr/local/bin/test-file_v2.0.sh", "/usr/local/bin/test-file_v2.0.sh"),
        ("if (a < b && c > d) {\n}", "if (a < b && c > d) {\n}"),
        ("if x < 5 and\n    y > 3:\n", "if x < 5 and\n    y > 3:"),
        ('<div class="c">&amp;</div>', '<div class="c">&amp;</div>'),
        ("</parameter>", "</parameter>"),
        ("x\n</function>\n", "x\n</function>"),
    ],
)
def test_parameter_value_loses_one_line_end_on_each_side(text, value):
    events = text_events(
        [f"<function=f><parameter=p>{text}</parameter></function>"], "qwen_xml", ParseContext({"f": {}})
    )
    [(_, _, arguments)] = written(events)
    assert json.loads(arguments) == {"p": value}
