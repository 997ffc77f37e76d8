"""Test the parameters of /v1/messages: validation, and the request that they become.

https://platform.claude.com/docs/en/api/messages
"""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.api import messages
from gateway.api.body import decode_body
from gateway.errors import BadRequest
from gateway.request import ToolName
from gateway.warnings import Warnings
from support.messages import (
    QUESTION,
    SERVES,
    SETTINGS,
    TOOL,
    assistant,
    parsed,
    refusal_message,
    refusal_of,
    result,
    text,
    use,
    user,
    warnings_of,
)
from support.paths import TESTS
from support.sampling import examples

SENT = json.loads((TESTS / "backends" / "requests" / "clients" / "messages_api.json").read_text())
CAPTURED = {name: (messages.parse_message, {"model": "m", **case["asks"]}) for name, case in SENT.items()} | {
    name: (messages.parse_token_count, body)
    for name, body in json.loads((TESTS / "api" / "messages" / "captured_counts.json").read_text()).items()
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA, "strict": True}}
PREFILL = {"continue_final_message": True, "add_generation_prompt": False}


def rest_of(**fields):
    return parsed(**fields).request.rest


def test_body_becomes_a_request():
    request = parsed(stream=True, system="be brief").request
    assert request.messages == ({"role": "system", "content": "be brief"}, QUESTION)
    assert (request.model, request.max_tokens, request.stream, request.generates, request.fresh) == (
        "m", 100, True, True, True,
    )  # fmt: skip
    assert (request.tools, request.tool_choice, request.rest, request.n) == ((), None, {}, 1)


FIELDS = {
    "sampling": ({"temperature": 1.5, "top_p": 0.9, "top_k": 40}, {"temperature": 1.5, "top_p": 0.9, "top_k": 40}),
    "stop sequences": ({"stop_sequences": ["a", " b"]}, {"stop": ["a", " b"]}),
    "no stop sequences": ({"stop_sequences": []}, {}),
    "effort": ({"output_config": {"effort": "xhigh"}}, {"reasoning_effort": "xhigh"}),
    "thinking off wins over effort": (
        {"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}},
        {"reasoning_effort": "none"},
    ),
    "thinking off": ({"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}),
    "adaptive": ({"thinking": {"type": "adaptive"}}, {"thinking": {"type": "enabled"}}),
    "between tools": ({"thinking": {"type": "between_tools"}}, {"thinking": {"type": "enabled"}}),
    "adaptive with effort": (
        {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "low"}},
        {"reasoning_effort": "low"},
    ),
    "budget": (
        {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    ),
    "budget with effort": (
        {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "low"}},
        {"reasoning_effort": "low", "thinking": {"type": "enabled", "budget_tokens": 1024}},
    ),
    "budget below the least": ({"thinking": {"type": "enabled", "budget_tokens": -1}}, {"thinking": {"type": "enabled"}}),
    "budget not below max_tokens": (
        {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 2000}},
        {"thinking": {"type": "enabled"}},
    ),
    "format": ({"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, {"response_format": RESPONSE_FORMAT}),
    "format of llama.cpp": (
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}},
    ),
    "older format": ({"output_format": {"type": "json_schema", "schema": SCHEMA}}, {"response_format": RESPONSE_FORMAT}),
    "no format": ({"output_config": {"format": None}}, {}),
    "one call at a time": (
        {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"parallel_tool_calls": False},
    ),
    "prefill": ({"messages": [QUESTION, assistant(text("a "))]}, PREFILL),
    "calls at the end": ({"messages": [QUESTION, assistant(use())]}, {}),
    "what no local model needs": (
        {
            "cache_control": {"type": "ephemeral"}, "service_tier": "auto", "speed": "fast", "inference_geo": "us",
            "user_profile_id": "u", "workspace_id": "w", "diagnostics": {}, "metadata": {"user_id": "u"},
        },
        {},
    ),
    "of a chat completion": ({"seed": 1, "min_p": 0.1}, {"seed": 1, "min_p": 0.1}),
    "unknown": ({"unheard_of": {"a": 1}}, {"unheard_of": {"a": 1}}),
    "own words win": ({"stop": "x", "stop_sequences": ["y"]}, {"stop": ["y"]}),
}  # fmt: skip


@pytest.mark.parametrize("fields, rest", FIELDS.values(), ids=FIELDS)
def test_parameter_becomes_that_of_a_chat_completion(fields, rest):
    assert rest_of(**fields) == rest
    assert warnings_of(**fields) == []


LOST = {
    "container": ({"container": "c"}, ["dropped:container"]),
    "fallbacks": ({"fallbacks": [{"model": "n"}]}, ["dropped:fallbacks"]),
    "task budget": ({"task_budget": {"total": 1}}, ["dropped:task_budget"]),
    "n": ({"n": 2}, ["dropped:n"]),
    "logprobs": ({"logprobs": True}, ["dropped:logprobs"]),
    "an edit of the context": (
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}, {"type": "clear_thinking_20251015"}]}},
        ["dropped:context_management.clear_tool_uses_20250919"],
    ),
    "max_tokens 0": ({"max_tokens": 0}, ["emulated:max_tokens"]),
    "unknown members": (
        {"output_config": {"effort": "low", "tone": "dry"}, "thinking": {"type": "adaptive", "depth": 2}},
        ["dropped:output_config.tone", "dropped:thinking.depth"],
    ),
    "prefill with thinking": (
        {"messages": [QUESTION, assistant(text("a"))], "thinking": {"type": "adaptive"}}, ["unenforced:prefill"],
    ),
    "MCP server": ({"mcp_servers": [{"type": "url", "url": "http://a", "name": "s"}]}, ["dropped:mcp_servers"]),
}  # fmt: skip


@pytest.mark.parametrize("fields, warnings", LOST.values(), ids=LOST)
def test_parameter_without_effect_is_reported(fields, warnings):
    assert warnings_of(**fields) == warnings


def test_max_tokens_0_only_fills_the_cache():
    request = parsed(max_tokens=0).request
    assert (request.generates, request.max_tokens) == (False, 1)


def test_prefill_continues_the_last_message():
    assert parsed(messages=[QUESTION, assistant(text("a"))]).request.fresh is False
    assert parsed(messages=[QUESTION, assistant(text("a"))], thinking={"type": "adaptive"}).request.fresh is True
    assert parsed(messages=[QUESTION, assistant(use())]).request.fresh is True
    # The result moves to its call, so the text comes last.
    assert parsed(messages=[QUESTION, assistant(use()), assistant(text("a")), user(result())]).request.fresh is True


SESSION = json.dumps({"device_id": "d", "session_id": "s"})
STICKY = {
    "session": (SESSION, "s"), "plain": ("u-1", "u-1"), "number": ("17", "17"), "empty": ("", None),
    "without a session": ('{"a":1}', '{"a":1}'), "deep": ("[" * 100_000, "[" * 100_000),
}  # fmt: skip


@pytest.mark.parametrize("user_id, sticky", STICKY.values(), ids=STICKY)
def test_user_id_names_the_session(user_id, sticky):
    assert parsed(metadata={"user_id": user_id}).sticky == sticky


def test_params_hold_what_the_encoder_needs():
    params = parsed(stop_sequences=["a"], thinking={"type": "adaptive", "display": "omitted"})
    assert (params.stop_sequences, params.shows_thinking) == ({"a"}, False)
    assert (parsed().stop_sequences, parsed().shows_thinking, parsed().sticky) == (frozenset(), True, None)
    assert parsed(thinking={"type": "adaptive", "display": "updates"}).shows_thinking


REFUSED = {
    "model": ({"model": None}, "model: Field required"),
    "max_tokens": ({"max_tokens": None}, "max_tokens: Field required"),
    "messages": ({"messages": None}, "messages: Field required"),
    "no messages": (
        {"messages": []},
        "messages: empty array. Expected an array with minimum length 1, but got an empty array instead.",
    ),
    "system messages only": (
        {"messages": [{"role": "system", "content": "s"}]}, "messages: at least one message must have content",
    ),
    "type": ({"max_tokens": "1"}, "max_tokens: expected an integer, but got a string instead."),
    "negative": (
        {"max_tokens": -1}, "max_tokens: integer below minimum value. Expected a value >= 0, but got -1 instead.",
    ),
    "role": (
        {"messages": [{"role": "tool", "content": "a"}]},
        "messages.0.role: Invalid value: 'tool'. Supported values are: 'user', 'assistant', and 'system'.",
    ),
    "content": (
        {"messages": [QUESTION, {"role": "user", "content": 1}]},
        "messages.1.content: expected one of a string or array of objects, but got an integer instead.",
    ),
    "no content": ({"messages": [{"role": "user"}]}, "messages.0.content: Field required"),
    "system": ({"system": 1}, "system: expected one of a string or array of objects, but got an integer instead."),
    "blank stop sequence": (
        {"stop_sequences": ["a", " \n"]}, "stop_sequences.1: each stop sequence must contain non-whitespace",
    ),
    "long stop sequence": (
        {"stop_sequences": ["x" * 16_385]},
        "stop_sequences: the stop sequences have 16385 characters in total. Send at most 16384.",
    ),
    "stop sequence": ({"stop_sequences": "x"}, "stop_sequences: expected an array, but got a string instead."),
    "temperature": (
        {"temperature": 3}, "temperature: decimal above maximum value. Expected a value <= 2, but got 3 instead.",
    ),
    "thinking": (
        {"thinking": {"type": "often"}},
        "thinking.type: Invalid value: 'often'. Supported values are: 'enabled', 'adaptive', 'between_tools', and 'disabled'.",
    ),
    "of a chat completion": ({"seed": "x"}, "seed: expected an integer, but got a string instead."),
}  # fmt: skip


@pytest.mark.parametrize("fields, message", REFUSED.values(), ids=REFUSED)
def test_parameter_is_refused(fields, message):
    assert refusal_message(**fields) == message


def test_thread_is_refused_with_the_code_that_clients_know():
    status, error, param = refusal_of(thread={"type": "create"})
    assert (status, error["type"], param) == (400, "invalid_request_error", "thread")
    assert error["details"] == {"error_code": "thread_unsupported_request"}


@pytest.mark.parametrize(("parse", "body"), CAPTURED.values(), ids=CAPTURED)
def test_request_of_a_real_client_is_read(parse, body):
    body = decode_body(json.dumps(body).encode())
    ledger = Warnings()
    if "thread" in body:
        with pytest.raises(BadRequest, match="Message threads are not supported"):
            messages.parse_message(body, SETTINGS, ledger)
        return
    params = parse(body, SETTINGS, ledger)
    known = {"reasoning_effort", "thinking", "response_format"}
    assert params.request.rest.keys() <= known
    assert {entry.partition(":")[0] for entry in ledger.entries()} <= {"dropped"}
    assert "billing" not in str(params.request.messages[0])
    assert params.sticky in (None, "s-1")
    roles = [message["role"] for message in params.request.messages]
    called = [call["id"] for message in params.request.messages for call in message.get("tool_calls") or ()]
    answered = [message["tool_call_id"] for message in params.request.messages if message["role"] == "tool"]
    assert called == answered and len(answered) == roles.count("tool")


# Any body


JUNK = st.sampled_from(
    [None, True, 0, -1, 1.5, "", "x", [], [1], [[]], [{}], {}, {"type": "text"}, {"type": "x"}, "a" * 200]
)


def places(value, path=()):
    """Yield the path of each value in a body."""
    yield path
    if isinstance(value, dict | list):
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for name, member in members:
            yield from places(member, (*path, name))


def with_junk(value, path, junk):
    """Return the body with something else at this path."""
    if not path:
        return junk
    copied = {**value} if isinstance(value, dict) else [*value]
    copied[path[0]] = with_junk(value[path[0]], path[1:], junk)
    return copied


EVERYTHING = json.loads((Path(__file__).parent / "everything.json").read_text())
PLACES = [path for path in places(EVERYTHING) if path]


def test_body_with_everything_is_read():
    ledger = Warnings()
    messages.parse_message(EVERYTHING, SERVES, ledger)
    assert ledger.entries()


@settings(max_examples=examples(1500), deadline=None)
@given(paths=st.lists(st.sampled_from(PLACES), min_size=1, max_size=2), junk=JUNK)
def test_body_with_junk_is_read_or_refused(paths, junk):
    body = EVERYTHING
    for path in paths:
        try:
            body = with_junk(body, path, junk)
        except (KeyError, IndexError, TypeError):  # there is junk at the beginning of that path
            continue
    try:
        messages.parse_message(decode_body(json.dumps(body).encode()), SERVES, Warnings())
    except BadRequest as error:
        assert messages.error_message(error.problem)


# Counting


def test_count_needs_no_limit():
    body = {"model": "m", "messages": [QUESTION], "tools": []}
    ledger = Warnings()
    request = messages.parse_token_count(body, SETTINGS, ledger).request
    assert (request.generates, request.max_tokens, ledger.entries()) == (False, None, [])


def test_count_is_checked_like_a_message():
    with pytest.raises(BadRequest) as caught:
        messages.parse_token_count({"model": "m"}, SETTINGS, Warnings())
    assert messages.error_message(caught.value.problem) == "messages: Field required"


def test_tools_of_the_gateway_are_named():
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    params = parsed(SERVES, tools=tools, tool_choice={"type": "tool", "name": "web_search"})
    assert params.hosted.definitions == ({"type": "web_search"},)
    assert params.request.tool_choice == ToolName("", "web_search")
    assert params.hosted.pauses and params.hosted.max_calls is None
