"""Test what a backend gets for the parameters of /v1/messages, and what the members of its response become."""

import asyncio

import pytest

from support.app import HELLO_MESSAGES, gateway, listening
from support.messages_events import checked, checked_whole
from support.upstream import COUNTS, DONE, END, call, chunk, completion_body, frame, head, stream, whole
from support.wait import DEADLINE

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
BASH = {"name": "Bash", "description": "Runs a command.", "input_schema": SCHEMA}
FUNCTION = {"name": "Bash", "description": "Runs a command.", "parameters": SCHEMA}
FORMAT = {"type": "json_schema", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
NAMED = {"type": "function", "function": {"name": "Bash"}}
# By subject: the fields of a message, and those that a vLLM gets for them; None: it does not get the field.
CONVERTED_FIELDS = {
    "limit": ({"max_tokens": 4096}, {"max_completion_tokens": 4096, "max_tokens": None}),
    "sampling": (
        {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop_sequences": ["END"]},
        {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop": ["END"], "stop_sequences": None},
    ),
    "system": (
        {"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"system": None, "messages": [{"role": "system", "content": "a\n\nb"}, *HELLO_MESSAGES]},
    ),
    "tools": ({"tools": [BASH]}, {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": None}),
    "auto": ({"tools": [BASH], "tool_choice": {"type": "auto"}}, {"tool_choice": None}),
    "any": ({"tools": [BASH], "tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
    "tool": ({"tools": [BASH], "tool_choice": {"type": "tool", "name": "Bash"}}, {"tool_choice": NAMED}),
    "none": ({"tools": [BASH], "tool_choice": {"type": "none"}}, {"tool_choice": None, "tools": None}),
    "one at a time": (
        {"tools": [BASH], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"parallel_tool_calls": False, "tool_choice": None},
    ),
    "format": (
        {"output_config": {"format": FORMAT}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": FORMAT["schema"], "strict": True}}},
    ),
    "effort": ({"output_config": {"effort": "high"}}, {"reasoning_effort": "high", "output_config": None}),
    "thinking off": (
        {"thinking": {"type": "disabled"}},
        {"reasoning_effort": "none", "thinking": None},
    ),
    "thinking on": ({"thinking": {"type": "adaptive"}}, {"chat_template_kwargs": {"enable_thinking": True}, "thinking": None}),
    "budget": (
        {"max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": 2048}},
        {"thinking_token_budget": 2048, "chat_template_kwargs": {"enable_thinking": True}, "thinking": None},
    ),
    "nothing": ({}, {"reasoning_effort": None, "chat_template_kwargs": None, "thinking": None, "temperature": None}),
}  # fmt: skip


async def test_message_parameters_reach_the_backend():
    found = {}
    async with gateway(whole(completion_body("{}")), backend={"kind": "vllm"}, model={"format": "native"}) as site:
        for name, (fields, expected) in CONVERTED_FIELDS.items():
            known = len(site.upstream.posts)
            await site.message(**fields)
            upstream_body = site.upstream.posts[known].json  # a tool call that is missing is requested again
            found[name] = {field: upstream_body.get(field) for field in expected}
    assert found == {name: expected for name, (_, expected) in CONVERTED_FIELDS.items()}


async def test_message_that_only_fills_the_cache_is_empty():
    async with gateway(stream(chunk("Hi"), chunk(finish="length"), frame(choices=[], usage=COUNTS))) as site:
        streamed, at_once = [await site.message(max_tokens=0, stream=stream) for stream in (True, False)]
        limit = site.upstream_body["max_completion_tokens"]
    for message in (checked(streamed.content), checked_whole(at_once.content)):
        assert (message["content"], message["stop_reason"]) == ([], "max_tokens")
    assert limit == 1 and at_once.headers["x-gateway-warnings"] == "emulated:max_tokens"


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    "backend", [{"kind": "transformers"}, {"kind": "vllm", "ignores": ["stop"]}], ids=["kind", "ignores"]
)
async def test_message_names_the_stop_sequence_at_which_the_gateway_cuts(backend, streamed):
    script = stream(chunk("one, tw"), chunk("o, three"), chunk(finish="stop"))
    async with gateway(script, backend=backend, model={"format": "native"}) as site:
        ended, went_on = [
            (checked if streamed else checked_whole)(
                (await site.message(stop_sequences=stops, stream=streamed)).content
            )
            for stops in (["four", "two"], ["four"])
        ]
        chat = (await site.chat(stop="two")).json()["choices"][0]
    assert (ended["content"], ended["stop_reason"], ended["stop_sequence"]) == (
        [{"type": "text", "text": "one, "}], "stop_sequence", "two",
    )  # fmt: skip
    assert (went_on["stop_reason"], went_on["stop_sequence"]) == ("end_turn", None)
    assert chat["message"]["content"] == "one, " and "stop_reason" not in chat


# The response


def ended(choice, **usage):
    """Return a streamed response whose last choice has these members."""
    counts = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, **usage}
    last = frame(choices=[{"index": 0, "delta": {}, **choice}], usage=counts)
    return stream(chunk("Hello"), last)


CACHED = {"prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 3}}
SAME_ID = stream(
    chunk(tool_calls=call("Bash", "{}", id="call_1")),
    chunk(tool_calls=call("Bash", '{"command": "ls"}', id="call_1", place=1)),
    chunk(tool_calls=call("Bash", "{}", place=2)),
    chunk(finish="stop"),
)
BAD_ARGUMENTS = stream(chunk(tool_calls=call("Bash", '{"command": nothing', id="call_1")), chunk(finish="tool_calls"))
CUT_ARGUMENTS = stream(chunk(tool_calls=call("Bash", '{"command": "l', id="call_1")), chunk(finish="length"))


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_message_members_of_the_response_are_those_of_the_api(streamed):
    scripts = [
        ended({"finish_reason": "stop", "stop_reason": "END"}),
        ended({"finish_reason": "stop", "stop_reason": 7}),
        ended({"finish_reason": "stop"}, **CACHED),
        ended({"finish_reason": "content_filter"}),
        ended({"finish_reason": "tool_calls"}),
        SAME_ID,
        CUT_ARGUMENTS,
        BAD_ARGUMENTS,
    ]  # fmt: skip
    read = checked if streamed else checked_whole
    async with gateway(*scripts, model={"format": "native", "retries": 0}) as site:
        answers = [await site.message(stream=streamed, tools=[BASH], stop_sequences=["END"]) for _ in scripts]
    matched, token, cached, filtered, wrong, calls, cut, bad = [read(one.content) for one in answers]
    assert (matched["stop_reason"], matched["stop_sequence"]) == ("stop_sequence", "END")
    assert (token["stop_reason"], wrong["stop_reason"], filtered["stop_reason"]) == ("end_turn", "end_turn", "refusal")
    counts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    assert [cached["usage"][name] for name in counts] == [1, 6, 3, 2]
    assert len({use["id"] for use in calls["content"]}) == 3 and calls["stop_reason"] == "tool_use"
    assert (cut["stop_reason"], cut["content"][0]["input"]) == ("max_tokens", {})
    assert [block["type"] for block in bad["content"]] == ["tool_use"] and bad["stop_reason"] == "end_turn"
    assert "invalid:tool_calls.function.arguments" in answers[-1].text + answers[-1].headers.get(
        "x-gateway-warnings", ""
    )


async def test_message_pings_fill_silence_of_the_backend():
    go, data = asyncio.Event(), b""
    script = [head(), chunk("Hel"), go, chunk("lo"), chunk(finish="stop"), DONE, END]
    body = {"model": "m", "max_tokens": 100, "messages": HELLO_MESSAGES, "stream": True}
    async with (
        listening(script, stream={"grace_seconds": DEADLINE, "keepalive_seconds": 0.02}) as site,
        site.client.stream("POST", "/v1/messages", json=body) as answer,
    ):
        async for piece in answer.aiter_bytes():
            data += piece
            if data.count(b"event: ping\n") >= 2:
                go.set()
    assert data.startswith(b"event: message_start\n")
    assert checked(data)["content"] == [{"type": "text", "text": "Hello"}]
