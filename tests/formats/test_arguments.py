"""Test that dirty arguments come out as the JSON that was meant, and that JSON that fits comes out as it is."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.formats.arguments import Arguments
from gateway.formats.schema_types import of_tool
from support import dirty_arguments
from support.format_events import untraced
from support.pipeline import cut, singly
from support.sampling import EXAMPLES, examples

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
BOOLEAN, NULL = {"type": "boolean"}, {"type": "null"}
LIST, OBJECT = {"type": "array"}, {"type": "object"}
ROWS = {"type": "array", "items": {"type": "object", "properties": {"id": INTEGER}}}
DEFINITIONS = {
    "Count": INTEGER,
    "Same": {"$ref": "#/$defs/Same"},
    "Tree": {"properties": {"size": INTEGER, "left": {"$ref": "#/$defs/Tree"}}},
}


def passed(pieces, tool, *, limited=False):
    """Return what becomes of arguments in these pieces, whether they were repaired, and what stands behind them."""
    out = []
    arguments = Arguments(out.append, of_tool(tool))
    for piece in pieces:
        arguments.feed(piece)
    arguments.close(cut=limited)
    return "".join(out), arguments.repaired, arguments.rest


# The schema of the parameter `p`, the arguments, and what comes out; None: they stay as they are.
TABLE = [
    # strings
    ("a line end in a string", STRING, '{"p": "def f():\n\treturn 1"}', '{"p": "def f():\\n\\treturn 1"}'),
    ("a backslash that begins no escape", STRING, r'{"p": "\w+\.\s"}', r'{"p": "\\w+\\.\\s"}'),
    ("an escaped apostrophe", STRING, r'{"p": "it\'s"}', '{"p": "it\'s"}'),
    ("half of a surrogate pair", STRING, r'{"p": "\ud83d."}', r'{"p": "\ufffd."}'),
    ("a number, as a string", STRING, '{"p": "12"}', None),
    ("a number for a string", STRING, '{"p": 12}', None),
    ("a list for a string", STRING, '{"p": [1]}', None),
    # other languages
    ("quotes and words of Python", LIST, "{'p': [True, False, None]}", '{"p": [true, false, null]}'),
    ("escapes of Python in either quotes", STRING, "{'p': \"l'été\\xa0!\"}", '{"p": "l\'été\xa0!"}'),
    ("a tuple", LIST, '{"p": (1, "a")}', '{"p": [1, "a"]}'),
    ("numbers that are none", LIST, '{"p": [NaN, -Infinity]}', '{"p": [null, null]}'),
    ("a key without quotes", INTEGER, "{p: 5}", '{"p": 5}'),
    ("a key with an equals sign", INTEGER, '{"p" = 5}', '{"p" : 5}'),
    ("a word without quotes", STRING, '{"p": Bergen}', '{"p": "Bergen"}'),
    ("several words without quotes", STRING, '{"p": New York , "q": 1}', '{"p": "New York", "q": 1}'),
    ("a word where no string fits", INTEGER, '{"p": many}', None),
    ("a plus sign and zeros", NUMBER, '{"p": +007.50}', '{"p": 7.50}'),
    ("a number without digits before its point", NUMBER, '{"p": -.5}', '{"p": -0.5}'),
    ("a number without digits behind its point", NUMBER, '{"p": 5.}', '{"p": 5.0}'),
    ("a number in groups", INTEGER, '{"p": 10_000}', '{"p": 10000}'),
    ("a comma before a bracket", LIST, '{"p": [1, 2, ], }', '{"p": [1, 2]}'),
    # the object
    ("doubled braces", INTEGER, '{{"p": 5}}', '{"p": 5}'),
    ("an empty object before it", INTEGER, '{} {"p": 5}', '{"p": 5}'),
    ("an empty object", INTEGER, "{ }", None),
    ("a fence", INTEGER, '```json\n{"p": 5}\n```', '{"p": 5}'),
    ("a string that holds it", INTEGER, '"{\\"p\\": 5}"', '{"p": 5}'),
    ("a string of Python that holds it", INTEGER, "'{\"p\": \"5\"}'", '{"p": 5}'),
    ("a string that holds no object", STRING, '"paris"', None),
    ("a string of Python that holds no object", STRING, "'paris'", '"paris"'),
    ("an empty string", STRING, '""', ""),
    ("a string that holds it and a brace too many", INTEGER, r'"{\"p\": 5}}"', '{"p": 5}'),
    ("a string that holds it and text", INTEGER, r'"{\"p\": 5} so"', '{"p": 5} so'),
    ("a string that holds text with a space before it", STRING, '" go"', " go"),
    ("a string that holds a fence", INTEGER, r'"\n```json\n{\"p\": \"5\"}\n```"', '{"p": 5}'),
    ("parameters in tags", INTEGER, "<parameter=p>5</parameter>\n<parameter=q>a b</parameter>", '{"p": 5, "q": "a b"}'),
    ("parameters in tags with names", LIST, "<parameter name=\"p\">['a']</parameter>", '{"p": ["a"]}'),
    ("a parameter in tags twice", INTEGER, "<parameter=p>4</parameter><parameter=p>5</parameter>", '{"p": 5}'),
    ("a tag without an end behind a parameter", STRING, "<parameter=p>x</parameter>\n<parameter=q>y", None),
    ("a tag without a key", STRING, "<parameter>x</parameter>", None),
    ("a tag without an end", STRING, "<parameter=p>x", None),
    ("a bracket that is missing before a fence", LIST, '```{"p": [1```', '{"p": [1]}'),
    # another type than the schema's
    ("a number in quotes", INTEGER, '{"p": "-3"}', '{"p": -3}'),
    ("a number in quotes with a fraction of zeros", INTEGER, '{"p": "3.0"}', '{"p": 3}'),
    ("a fraction for an integer", INTEGER, '{"p": 3.5}', None),
    ("a fraction of zeros for an integer", INTEGER, '{"p": 40.00}', '{"p": 40}'),
    ("a fraction of zeros for a number", NUMBER, '{"p": 3.0}', None),
    ("a fraction in quotes", NUMBER, '{"p": "2.5"}', '{"p": 2.5}'),
    ("a word for a number", NUMBER, '{"p": "three"}', None),
    ("a truth in quotes", BOOLEAN, '{"p": "False"}', '{"p": false}'),
    ("null in quotes", {"type": ["integer", "null"]}, '{"p": "null"}', '{"p": null}'),
    ("null in quotes where a string fits", {"type": ["string", "null"]}, '{"p": "null"}', None),
    ("nothing in quotes", {**INTEGER, "nullable": True}, '{"p": "None"}', '{"p": null}'),
    ("a list in quotes", ROWS, '{"p": "[{\\"id\\": \\"1\\"}]"}', '{"p": [{"id": 1}]}'),
    ("an object in quotes", OBJECT, '{"p": " {\\"k\\": 1}"}', '{"p": {"k": 1}}'),
    ("an object in quotes that is cut", OBJECT, '{"p": "{\\"k\\": 1"}', None),
    ("an object in quotes that cannot be read", OBJECT, '{"p": "{1}"}', None),
    ("an object in quotes with more behind it", OBJECT, '{"p": "{} and more"}', None),
    ("one object for a list of objects", ROWS, '{"p": {"id": 1}}', '{"p": [{"id": 1}]}'),
    ("one object where a list of anything fits", LIST, '{"p": {"id": 1}}', None),
    ("a value in a list", {"type": "array", "items": INTEGER}, '{"p": ["1", 2]}', '{"p": [1, 2]}'),
    ("a value of any type", {}, '{"p": "5", "q": "true"}', None),
    # schemas
    ("two readings", {"anyOf": [INTEGER, BOOLEAN, NULL]}, '{"p": "0"}', '{"p": 0}'),
    ("one of several alternatives", {"oneOf": [INTEGER, {"type": "array"}]}, '{"p": "[]"}', '{"p": []}'),
    ("an alternative that may be a string", {"anyOf": [INTEGER, STRING]}, '{"p": "5"}', None),
    ("an alternative without a type", {"anyOf": [INTEGER, {}]}, '{"p": "5"}', None),
    ("an alternative that is no schema", {"anyOf": [INTEGER, 7]}, '{"p": "5"}', None),
    ("all of several conditions", {"allOf": [{"type": ["integer", "string"]}, INTEGER]}, '{"p": "5"}', '{"p": 5}'),
    ("conditions that exclude each other", {"allOf": [STRING, INTEGER]}, '{"p": "5"}', None),
    ("a type by its values", {"enum": [1, 2]}, '{"p": "1"}', '{"p": 1}'),
    ("a type by its value", {"const": True}, '{"p": "true"}', '{"p": true}'),
    ("a type by its members", {"properties": {"k": INTEGER}}, '{"p": "{\\"k\\": \\"1\\"}"}', '{"p": {"k": 1}}'),
    ("a type by its items", {"items": INTEGER}, '{"p": "[\\"1\\"]"}', '{"p": [1]}'),
    ("a type that JSON does not have", {"type": "date"}, '{"p": "5"}', None),
    ("a word of a programming language", {"type": "int32"}, '{"p": "5"}', '{"p": 5}'),
    ("a reference", {"$ref": "#/$defs/Count"}, '{"p": "5"}', '{"p": 5}'),
    ("references inside each other", {"$ref": "#/$defs/Tree"}, '{"p": {"left": {"left": {"size": "5"}}}}', '{"p": {"left": {"left": {"size": 5}}}}'),
    ("a reference in a circle", {"$ref": "#/$defs/Same"}, '{"p": "5"}', None),
    ("members of one of several alternatives", {"anyOf": [{"properties": {"k": INTEGER}}, 7]}, '{"p": {"k": "5"}}', '{"p": {"k": 5}}'),
    ("further members", {"additionalProperties": INTEGER}, '{"p": {"k": "5"}}', '{"p": {"k": 5}}'),
    ("members that are no schemas", {"properties": 7}, '{"p": {"k": "5"}}', None),
    # beyond repair
    ("text", STRING, "get the weather", None),
    ("a list", STRING, '["a"]', None),
    ("a key without a value", INTEGER, '{"p" 5}', None),
    ("a member without a key", INTEGER, '{: 5}', None),
    ("a quote in a string", STRING, '{"p": "say "hi" now"}', None),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "text", "wanted"), [pytest.param(*row, id=what) for what, *row in TABLE])
def test_arguments_fit_their_schema(schema, text, wanted):
    tool = {"properties": {"p": schema}, "$defs": DEFINITIONS}
    out, repaired, rest = passed([text], tool)
    assert out == (text if wanted is None else wanted)
    for pieces in (singly(text), *([text[:i], text[i:]] for i in range(len(text)))):
        assert passed(pieces, tool) == (out, repaired, rest)
    assert repaired or wanted is None


# The schema of the parameter `p`, arguments that end early, and what comes out; the last: if the token limit cut them.
EARLY = [
    ("in a string", STRING, '{"p": "rm -rf /t', '{"p": "rm -rf /t', '{"p": "rm -rf /t'),
    ("in a string of Python", STRING, "{'p': 'rm -rf /t", '{"p": "rm -rf /t', '{"p": "rm -rf /t'),
    ("in an escape", STRING, '{"p": "a\\', '{"p": "a\\', '{"p": "a\\'),
    ("in a string of another type", INTEGER, '{"p": "1', '{"p": "1', '{"p": "1'),
    ("in a number", INTEGER, '{"p": 1', '{"p": 1', '{"p": 1'),
    ("in a word", BOOLEAN, '{"p": tr', '{"p": tr', '{"p": tr'),
    ("in a word of Python", BOOLEAN, '{"p": Tr', '{"p": Tr', '{"p": '),
    ("in a key", STRING, '{"p', '{"p', '{"p'),
    ("in a key of Python", STRING, "{'p", '{"p', '{"p'),
    ("in a key without quotes", STRING, "{p", "{p", "{p"),
    ("behind a key", STRING, '{"p"', '{"p"', '{"p"'),
    ("behind a colon", STRING, '{"p": ', '{"p": ', '{"p": '),
    ("behind a value", LIST, '{"p": [1, "a"', '{"p": [1, "a"]}', '{"p": [1, "a"'),
    ("behind a comma", LIST, '{"p": [1,', '{"p": [1,', '{"p": [1,'),
    ("in one object for a list of objects", ROWS, '{"p": {"id": 1, "n": "a"', '{"p": [{"id": 1, "n": "a"}]}', '{"p": [{"id": 1, "n": "a"'),
    ("in a list of lists", LIST, '{"p": [["a', '{"p": [["a', '{"p": [["a'),
    ("behind the brace", STRING, "{", "{", "{"),
    ("before anything", STRING, " ", " ", " "),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "text", "ended", "limited"), [pytest.param(*row, id=what) for what, *row in EARLY])
def test_arguments_that_end_early_are_not_completed(schema, text, ended, limited):
    tool = {"properties": {"p": schema}}
    for pieces in ([text], singly(text)):
        assert passed(pieces, tool)[0] == ended
        assert passed(pieces, tool, limited=True)[0] == limited


def test_arguments_that_are_null_are_none():
    assert passed(["None"], {}) == passed(["null"], {}) == ("{}", False, "")


@settings(max_examples=examples(10 * EXAMPLES), deadline=None)
@given(tool=dirty_arguments.TOOLS, data=st.data())
@untraced
def test_dirty_arguments_are_the_value_that_was_meant(tool, data):
    value = data.draw(dirty_arguments.fitting(tool))
    text = data.draw(dirty_arguments.arguments(value, tool))
    whole = passed([text], tool)
    assert repr(json.loads(whole[0])) == repr(value)
    assert passed(cut(data, text), tool) == whole


@settings(max_examples=examples(10 * EXAMPLES), deadline=None)
@given(tool=dirty_arguments.TOOLS, data=st.data())
@untraced
def test_arguments_that_fit_stay_byte_for_byte(tool, data):
    text = data.draw(dirty_arguments.clean(data.draw(dirty_arguments.fitting(tool))))
    assert passed(cut(data, text), tool) == (text, False, "")


@settings(max_examples=examples(10 * EXAMPLES), deadline=None)
@given(tool=dirty_arguments.TOOLS, other=dirty_arguments.TOOLS, data=st.data())
@untraced
def test_arguments_that_are_json_stay_json(tool, other, data):
    text = data.draw(dirty_arguments.clean(data.draw(dirty_arguments.fitting(other))))
    out, repaired, _ = passed(cut(data, text), tool)
    assert isinstance(json.loads(out), dict) and (repaired or out == text)
