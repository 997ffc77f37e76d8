"""Test how many values a body may hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api import chat
from gateway.api.body import _SLICE, Counts, _counts, decode_body
from gateway.errors import BadRequest, TooLarge

TEXTS = st.sampled_from(["", "a,b", '[{"', "\\", '\\"', "é,\n", '":', "x" * 40]) | st.text(max_size=9)
SCALARS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none() | TEXTS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=40)
HI = {"role": "user", "content": "hi"}
HIS = [HI] * 300


def counted(value):
    """Return how many members and elements a value has, and how many of them are numbers in lists."""
    if isinstance(value, dict):
        inner, numbers = [*value.values()], 0
    elif isinstance(value, list):
        inner, numbers = value, sum(isinstance(each, int | float) and not isinstance(each, bool) for each in value)
    else:
        return 0, 0
    below = [counted(each) for each in inner]
    return max(1, len(inner)) + sum(all for all, _ in below), numbers + sum(of_them for _, of_them in below)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]), st.integers(1, 60))
def test_counts_are_exact_in_any_slices(value, ascii, indent, size):
    raw = json.dumps(value, ensure_ascii=ascii, indent=indent).encode("utf-8", "surrogatepass")
    found = [*_counts(raw, size)]
    assert (sum(all for all, _ in found), sum(numbers for _, numbers in found)) == counted(value)


def elements(count, each):
    return b"[" + b",".join([each] * count) + b"]"


WITHIN = {
    "a text of commas and brackets": json.dumps(["[{,\\" * 100]).encode(),
    "numbers in a list": elements(100, b"1"),
    "as many strings as there may be": elements(15, b'"a"'),
    "as many lists as there may be": elements(8, b"[]"),
}
BEYOND = {
    "strings": elements(17, b'"a"'),
    "lists in each other": b"[" * 17,
    "objects": elements(9, b"{}"),
    "members": b"{" + b",".join(b'"%d":1' % number for number in range(17)) + b"}",
    "members whose names end in a backslash": b"{" + b",".join(b'"%d\\\\":1' % number for number in range(17)) + b"}",
    "null and numbers": elements(17, b"null,1"),
}


@pytest.mark.parametrize("raw", WITHIN.values(), ids=WITHIN)
def test_counts_let_values_within_the_limit_pass(raw):
    Counts(items=2).check_raw(raw)


@pytest.mark.parametrize("raw", BEYOND.values(), ids=BEYOND)
def test_counts_refuse_values_beyond_the_limit(raw):
    with pytest.raises(TooLarge, match=r"more than 16 values \(8 times the gateway's"):
        Counts(items=2).check_raw(raw)


def test_counts_find_values_between_long_texts_without_any():
    text = b'"%b"' % (b"A" * (_SLICE + 9))
    Counts(items=2).check_raw(elements(15, text))
    with pytest.raises(TooLarge, match="more than 16 values"):
        Counts(items=2).check_raw(elements(17, text))


def test_counts_refuse_a_million_numbers():
    Counts().check_raw(elements(1_000_000, b"1"))
    with pytest.raises(TooLarge, match="more than 1000000 numbers in lists"):
        Counts().check_raw(elements(1_000_001, b"1"))


def test_counts_refuse_more_backslashes_than_can_be_read_quickly():
    most = 8 << 20
    Counts().check_raw(b'"' + b"\\" * most + b'"')
    with pytest.raises(TooLarge, match=f"more than {most} backslashes"):
        Counts().check_raw(b'"' + b"\\" * (most + 2) + b'"')


REFUSED = [
    (
        {"messages": [*HIS, HI]},
        "messages",
        "array_above_max_length",
        "maximum length 300 (the gateway's 'limits.items')",
    ),
    (
        {"messages": [HI, {**HI, "content": [{"type": "text", "text": "a"}] * 3}]},
        "messages[1].content",
        "array_above_max_length",
        "maximum length 2 (the gateway's 'limits.parts')",
    ),
    (
        {"messages": [HI], "logit_bias": {str(token): 1 for token in range(1025)}},
        "logit_bias",
        "object_above_max_properties",
        "at most 1024, but got 1025",
    ),
    (
        {"messages": [HI], **{f"u{number}": 1 for number in range(513)}},
        None,
        "object_above_max_properties",
        "too many unknown properties. Expected an object with at most 512, but got 513",
    ),
    (
        {"messages": [{**HI, "content": [], **{f"u{number}": 1 for number in range(513)}}]},
        "messages[0]",
        "object_above_max_properties",
        "too many unknown properties",
    ),
]


@pytest.mark.parametrize(
    ("body", "param", "code", "text"), REFUSED, ids=[code + str(i) for i, (_, _, code, _) in enumerate(REFUSED)]
)
def test_chat_request_of_too_many_entries_is_refused(body, param, code, text):
    with pytest.raises(BadRequest) as raised:
        chat.parse_chat(json.dumps({"model": "m", **body}).encode(), Counts(items=len(HIS), parts=2))
    assert (raised.value.problem.param, raised.value.problem.code) == (param, code)
    assert text in raised.value.problem.message


def test_chat_request_may_have_as_many_entries_as_the_limits_say():
    parts = [{"type": "text", "text": "a"}] * 2
    body = {
        "model": "m",
        "messages": [HI, HI, {**HI, "content": parts}],
        "logit_bias": {str(token): 1 for token in range(1024)},
        **{f"u{number}": 1 for number in range(512)},
    }
    found = chat.parse_chat(json.dumps(body).encode(), Counts(items=300, parts=2))
    assert len(found.request.messages) == 3


def test_body_may_have_a_long_list_of_numbers():
    assert decode_body(b'{"input":' + elements(9, b"1") + b"}", Counts(items=2, parts=1)) == {"input": [1] * 9}


@pytest.mark.parametrize("name", ["Model", "modeL", "MODEL"])
def test_body_with_the_model_in_other_letters_is_refused(name):
    with pytest.raises(BadRequest, match=f"Unknown parameter: '{name}'") as raised:
        decode_body(json.dumps({"model": "m", name: None}).encode())
    assert (raised.value.problem.param, raised.value.problem.code) == (name, "unknown_parameter")
    assert decode_body(b'{"model":"m","Models":1,"inner":{"Model":1}}')["Models"] == 1
