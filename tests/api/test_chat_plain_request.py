"""Test that the short check of a plain chat request accepts and refuses the same as the full check."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from gateway.api.chat.parse import parse_chat
from gateway.api.chat.schema import OPTIONAL
from gateway.api.validation import object_of
from gateway.errors import BadRequest
from gateway.request import are_text_only

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"role": st.sampled_from(("user", "assistant", "system", "developer")), "content": st.just("Hi")}
        ),
        st.fixed_dictionaries(
            {},
            optional={
                "role": st.sampled_from(("user", "assistant", "tool", "function", "poet", 1, [], None)),
                "content": st.sampled_from(("Hi", "", None, 1, [], [{"type": "text", "text": "Hi"}], [{}])),
                "name": st.sampled_from(("f", 1)),
                "tool_call_id": st.sampled_from(("c", "d")),
                "tool_calls": st.sampled_from(([], [CALL], [{}])),
                "function_call": st.sampled_from((CALL["function"], {})),
            },
        ),
        st.sampled_from(("Hi", None)),
    ),
    max_size=4,
)
VALUES = (True, 1, -1.5, "", "x" * 200, [], [1], {}, {"type": 1}, None)


def messages_or_problem(messages):
    """Return the messages of the parsed request, or the problem of a refused one."""
    try:
        parsed = parse_chat(json.encode({"model": "m", "messages": messages})).request.messages
    except BadRequest as error:
        return error.problem
    return [{name: value for name, value in message.items() if name != "beside"} for message in parsed]


def problem_of(check, value, place):
    """Return the problem that a check finds with a value, or None."""
    try:
        check(value, place)
    except BadRequest as error:
        return error.problem
    return None


@given(MESSAGES)
def test_message_is_read_alike_by_the_short_and_the_full_check(messages):
    longer = [{**one, "beside": 1} if isinstance(one, dict) else one for one in messages]
    assert not are_text_only(longer) or not longer
    assert messages_or_problem(messages) == messages_or_problem(longer)


@pytest.mark.parametrize("name", OPTIONAL)
def test_field_check_by_type_finds_what_the_full_check_finds(name):
    check = OPTIONAL[name]
    for value in VALUES:
        expected = None if value is None else problem_of(check, value, name)
        assert problem_of(object_of({}, {name: check}), {name: value}, "") == expected
        inside = None if value is None else problem_of(check, value, f"body.{name}")
        assert problem_of(object_of({}, {name: check}), {name: value}, "body") == inside


@pytest.mark.parametrize(
    ("given", "usual"),
    [
        ({"type": "json_object", "schema": {"type": "array"}}, {"type": "array"}),
        ({"type": "json_schema", "schema": {"type": "object"}}, {"type": "object"}),
        ({"type": "json_schema", "schema": {}, "json_schema": None}, {}),
    ],
)
def test_chat_format_with_a_schema_beside_its_type_is_a_json_schema(given, usual):
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "response_format": given}
    parsed = parse_chat(json.encode(body)).request.rest["response_format"]
    assert parsed == {"type": "json_schema", "json_schema": {"name": "answer", "schema": usual}}


@pytest.mark.parametrize(
    "format",
    [
        {"type": "json_object"},
        {"type": "json_object", "schema": None},
        {"type": "json_schema", "json_schema": {"name": "x"}, "schema": {}},
        {"type": "structural_tag", "schema": {}},
    ],
)
def test_chat_format_of_another_form_stays(format):
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "response_format": format}
    assert parse_chat(json.encode(body)).request.rest["response_format"] == format


@pytest.mark.parametrize(
    ("given", "limit", "rest"),
    [
        ({"max_tokens": -1}, None, {}),
        ({"max_completion_tokens": -1}, None, {}),
        ({"max_tokens": -1, "max_completion_tokens": 5}, 5, {"max_completion_tokens": 5}),
    ],
)
def test_chat_limit_of_minus_one_is_none(given, limit, rest):
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **given}
    request = parse_chat(json.encode(body)).request
    assert (request.max_tokens, request.rest) == (limit, rest)
