"""Schemas, values that fit them, and the dirty forms in which models write such values as tool call arguments."""

import json

from hypothesis import strategies as st

KEYS = ("city", "days", "a_b", "on", "x-y", "é", "end.time")
WORDS = ("Oslo", "New York", "naïve", "tomorrow", "日本")
STRINGS = st.one_of(
    st.sampled_from(
        (*WORDS, "", "5", "true", "null", "a\nb\t", "\\d+\\.", 'say "hi"', "it's", "{}", "[1]", "```", "x, y: z", "</a>", "😀", "\\n", '{"a": 1', "[1", "[a]", "{1}", "{}}", "[[")
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)  # fmt: skip
SCALARS = {
    "string": STRINGS,
    "integer": st.one_of(st.integers(-5, 2000), st.just(2**70)),
    "number": st.one_of(st.integers(-5, 99), st.sampled_from([0.5, -2.25, 1e21, 100.0, 3.0])),
    "boolean": st.booleans(),
    "null": st.none(),
}
ROOT = {"Count": {"type": "integer"}, "Either": {"anyOf": [{"$ref": "#/$defs/Count"}, {"type": "null"}]}}
JSON_ESCAPES = "\"\\/bfnrtu'"


def leaves():
    """Return a strategy for schemas of scalar values."""
    types = st.sampled_from(sorted(SCALARS))
    return st.one_of(
        types.map(lambda kind: {"type": kind}),
        st.lists(types, min_size=2, max_size=3, unique=True).map(lambda kinds: {"type": kinds}),
        st.lists(types, min_size=2, max_size=2, unique=True).map(lambda kinds: {"anyOf": [{"type": k} for k in kinds]}),
        types.map(lambda kind: {"type": kind, "nullable": True}),
        st.sampled_from([{"$ref": f"#/$defs/{name}"} for name in ROOT]),
        st.sampled_from([{"enum": [1, "one"]}, {"const": 5}, {"enum": ["a", "b"]}, {}]),
    )


def objects(inner):
    """Return a strategy for schemas of objects."""
    return st.dictionaries(st.sampled_from(KEYS), inner, max_size=4).map(
        lambda members: {"type": "object", "properties": members}
    )


SCHEMAS = st.recursive(
    leaves(),
    lambda inner: st.one_of(inner.map(lambda item: {"type": "array", "items": item}), objects(inner)),
    max_leaves=6,
)
TOOLS = objects(SCHEMAS).map(lambda tool: {**tool, "$defs": ROOT})


def resolved(schema):
    """Return a schema without a reference at its top."""
    while "$ref" in schema:
        schema = ROOT[schema["$ref"].removeprefix("#/$defs/")]
    return schema


def types_of(schema):
    """Return the JSON types that a schema allows; None: any."""
    schema = resolved(schema)
    if "anyOf" in schema:
        sets = [types_of(option) for option in schema["anyOf"]]
        return frozenset().union(*sets)
    if "enum" in schema or "const" in schema:
        return frozenset("string" if isinstance(one, str) else "integer" for one in schema.get("enum", [5]))
    if "type" not in schema:
        return None
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return frozenset(kinds) | ({"null"} if schema.get("nullable") else frozenset())


@st.composite
def fitting(draw, schema):
    """Draw a value that fits a schema."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return draw(fitting(draw(st.sampled_from(schema["anyOf"]))))
    if "enum" in schema or "const" in schema:
        return draw(st.sampled_from(schema.get("enum", [5])))
    kind = draw(st.sampled_from(sorted(types_of(schema) or SCALARS)))
    if kind == "array":
        return draw(st.lists(fitting(schema["items"]), max_size=3))
    if kind != "object":
        return draw(SCALARS[kind])
    keys = draw(st.lists(st.sampled_from(sorted(schema["properties"])), unique=True)) if schema["properties"] else []
    return {key: draw(fitting(schema["properties"][key])) for key in keys}


@st.composite
def clean(draw, value):
    """Draw a way to write a value as JSON."""
    layout = draw(st.sampled_from([{}, {"indent": 2}, {"separators": (",", ":")}, {"separators": (" , ", " : ")}]))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), **layout)


@st.composite
def dirty(draw, value, schema):
    """Draw a dirty form of a value that has only one reading which fits the schema."""
    types = types_of(schema)
    ways = [_PLAIN[type(value)]]
    if types and "string" not in types and not isinstance(value, str):
        ways.append(_in_quotes)
    if types == {"integer"}:
        ways.append(_integral)
    if types == {"array"} and len(value) == 1 and types_of(resolved(schema)["items"]) == {"object"}:
        ways.append(_one_object)
    return draw(draw(st.sampled_from(ways))(value, schema))


@st.composite
def arguments(draw, value, tool):
    """Draw a dirty form of all arguments of a call."""
    text = draw(_object(value, tool))
    ways = [
        text,
        f"```json\n{text}\n```",
        f"```{text}```",
        f"{{}}{text}",
        f"{text}}}",
        f"{{}}\n {text}",
        f" {text}\n",
        json.dumps(text),
        _python(text),
    ]
    if value:
        ways.append(draw(_parameters(value, tool)))
    return draw(st.sampled_from(ways))


@st.composite
def _parameters(draw, value, tool):
    """Write each member between tags, if a string is not read as another type and its white space stays."""
    parts = []
    for key, member in value.items():
        types = types_of(tool["properties"][key])
        text = member if isinstance(member, str) else draw(clean(member))
        readable = types == {"string"} and text == text.strip() if isinstance(member, str) else types
        if not readable:
            return draw(_object(value, tool))
        parts.append(f"<parameter={key}>{text}</parameter>")
    return draw(st.sampled_from(["", "\n"])).join(parts)


def _same(value, schema):
    return st.just(json.dumps(value, ensure_ascii=False))


def _in_quotes(value, schema):
    inner = _same(value, schema) if type(value) in (int, float) else _PLAIN[type(value)](value, schema)
    if value is None:
        inner = st.sampled_from(["null", "None", "NULL"])
    return inner.filter(lambda text: text[0] != "(").map(lambda text: json.dumps(text, ensure_ascii=False))


def _integral(value, schema):
    return st.sampled_from([f"{value}.0", f'"{value}.0"'])


def _one_object(value, schema):
    return _object(value[0], resolved(schema)["items"])


def _boolean(value, schema):
    return st.sampled_from([json.dumps(value), str(value)])


def _null(value, schema):
    return st.sampled_from(["null", "None", "undefined", "NaN"])


def _number(value, schema):
    text = json.dumps(value)
    loose = [text, text.replace("0.", ".", 1) if text.startswith("0.") else text]
    if not text.startswith("-"):
        loose += [f"+{text}", f"0{text}"]
    if text.isdecimal() and len(text) > 3:
        loose.append(f"{text[:-3]}_{text[-3:]}")
    return st.sampled_from(loose)


@st.composite
def _string(draw, value, schema):
    ways = [json.dumps(value), json.dumps(value, ensure_ascii=False), _raw(value), _python(value)]
    if value in WORDS:
        ways.append(value)
    return draw(st.sampled_from(ways))


def _raw(value):
    """Keep control characters, and backslashes that begin no escape of JSON."""
    out = []
    for i, character in enumerate(value):
        following = value[i + 1 : i + 2]
        lone = character == "\\" and following and following not in JSON_ESCAPES
        out.append(character if character not in '"\\' or lone else f"\\{character}")
    return f'"{"".join(out)}"'.replace("'", "\\'")


def _python(value):
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r") + "'"


@st.composite
def _array(draw, value, schema):
    items = [draw(dirty(item, resolved(schema).get("items", {}))) for item in value]
    begin, end = draw(st.sampled_from(["[]", "()"])) if len(items) != 1 else "[]"
    comma = "," if items and draw(st.booleans()) else ""
    return f"{begin}{', '.join(items)}{comma}{end}"


@st.composite
def _object(draw, value, schema):
    members = []
    for key, member in value.items():
        names = [json.dumps(key), json.dumps(key, ensure_ascii=False), f"'{key}'", key]
        sign = draw(st.sampled_from([": ", ":", " : ", "="]))
        members.append(draw(st.sampled_from(names)) + sign + draw(dirty(member, resolved(schema)["properties"][key])))
    text = f"{{{', '.join(members)}{',' if members and draw(st.booleans()) else ''}}}"
    return f"{{{text}}}" if members and draw(st.booleans()) else text


_PLAIN = {str: _string, bool: _boolean, int: _number, float: _number, type(None): _null, list: _array, dict: _object}
