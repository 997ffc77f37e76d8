"""Test how messages and tools are read from the requests of each API."""

import json

import pytest
from msgspec import to_builtins

from gateway.server.admin.conversation import read_request

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def read(**fields):
    return to_builtins(read_request(json.dumps(fields).encode()))


def message(role, text="", **more):
    empty = {"role": role, "text": text, "reasoning": "", "tool_calls": [], "call_id": None, "other": []}
    return {**empty, **more}


CALL = {"id": "c", "name": "f", "arguments": '{"city":"Oslo"}'}
CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image_url"}, {"type": "text"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"city":"Oslo"}'}},
                {"id": "d", "type": "custom", "custom": {"name": "g", "input": "x"}},
                {"id": "e"},
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "7 °C"},
    ]
}
MESSAGES = {
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm."},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"city": "Oslo"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "7 °C"}]},
    ],
}
RESPONSES = {
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"city":"Oslo"}'},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "x"},
        {"type": "function_call_output", "call_id": "c", "output": "7 °C"},
        {"type": "item_reference", "id": "1"},
    ],
}
CUSTOM = {"id": "d", "name": "g", "arguments": "x"}


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        (
            CHAT,
            [
                message("system", "Be brief."),
                message("user", "Look: ", other=["image_url"]),
                message("assistant", reasoning="Hm.", tool_calls=[CALL, CUSTOM]),
                message("tool", "7 °C", call_id="c"),
            ],
        ),
        (
            MESSAGES,
            [
                message("system", "Be brief."),
                message("user", "Hi"),
                message("assistant", reasoning="Hm.", tool_calls=[CALL]),
                message("tool", "7 °C", call_id="c"),
            ],
        ),
        (
            RESPONSES,
            [
                message("system", "Be brief."),
                message("user", "Hi"),
                message("assistant", tool_calls=[CALL]),
                message("assistant", tool_calls=[CUSTOM]),
                message("tool", "7 °C", call_id="c"),
                message("item_reference"),
            ],
        ),
        ({"prompt": "Once"}, [message("user", "Once")]),
        ({"input": "Hi"}, [message("user", "Hi")]),
        ({"messages": "no list"}, []),
    ],
    ids=["chat", "messages", "responses", "completions", "text", "odd"],
)
def test_conversation_has_the_messages_of_each_api(fields, messages):
    assert read(**fields)["messages"] == messages


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (
            {"type": "function", "function": {"name": "f", "description": "Look.", "parameters": SCHEMA}},
            ("f", "function", "Look.", SCHEMA),
        ),
        ({"type": "function", "name": "f", "parameters": SCHEMA}, ("f", "function", "", SCHEMA)),
        ({"name": "f", "input_schema": SCHEMA}, ("f", "function", "", SCHEMA)),
        ({"type": "custom", "custom": {"name": "g"}}, ("g", "custom", "", {})),
        ({"type": "web_search"}, ("web_search", "web_search", "", {})),
    ],
)
def test_conversation_has_the_tools_of_each_api(tool, expected):
    (found,) = read(tools=[tool, "odd"])["tools"]
    assert tuple(found.values()) == expected


def test_conversation_has_the_parameters_that_steer_the_model():
    found = read(temperature=0, max_tokens=5, user="ann")
    assert found["parameters"] == {"temperature": 0, "max_tokens": 5} and found["readable"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_conversation_of_an_unreadable_body_says_so(body):
    found = read_request(body)
    assert not found.readable and found.messages == found.tools == []
