"""Test /v1/messages as clients use it: tool turns, failures of the backend, limits without room, strict mode, paths."""

import json
import logging

import pytest

from support.app import HELLO_MESSAGES, gateway
from support.messages_events import check_same, checked, checked_whole, events_of
from support.paths import TESTS
from support.upstream import DONE, END, HELLO, call, chunk, completion_body, head, stream, whole

CLIENTS = json.loads((TESTS / "backends" / "requests" / "clients" / "messages_api.json").read_text())
# A search that nothing runs, and thoughts that another service has redacted, are lost: strict mode refuses them.
PLAIN = {
    name: case["asks"]
    for name, case in CLIENTS.items()
    if name.startswith("claude-code") and name.split()[1] not in ("web", "redacted")
}
OF_THE_CLIENT = ("cache_control", "context_management", "metadata", "user_id", "output_config", "billing-header")
BASH = {"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}
ADAPTIVE = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
THINKS_AND_CALLS = [
    head(),
    chunk(reasoning_content="The user wants a list."),
    chunk(tool_calls=call("Bash", '{"command": "ls"}', id="call_1")),
    chunk(finish="tool_calls"),
    DONE,
    END,
]
WINDOW = "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 20000 "
NO_ROOM = whole({"error": {"message": f"{WINDOW}tokens and your request has 16614 input tokens."}}, 400)
TOO_LONG = whole({"error": {"message": "maximum context length is 8 tokens, 12 requested"}}, 400)


def error_of(response):
    body = response.json()
    return response.status_code, body["error"]["type"]


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_message_tool_turn_brings_its_thinking_back(streamed):
    async with gateway(THINKS_AND_CALLS, HELLO) as site:
        response = await site.message(tools=[BASH], stream=streamed, max_tokens=32_000, **ADAPTIVE)
        first = (checked if streamed else checked_whole)(response.content)
        thinking, use = first["content"]
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "a.txt", "is_error": False}
        turns = [
            *HELLO_MESSAGES,
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [result]},
        ]
        await site.message(tools=[BASH], stream=streamed, max_tokens=32_000, messages=turns, **ADAPTIVE)
        _, assistant, tool = site.upstream_body["messages"]
    assert (thinking["type"], use["input"], first["stop_reason"]) == ("thinking", {"command": "ls"}, "tool_use")
    assert assistant["reasoning_content"] == thinking["thinking"] == "The user wants a list."
    assert assistant["tool_calls"][0]["function"]["arguments"] == '{"command":"ls"}' and tool["content"] == "a.txt"


async def test_message_markup_of_a_call_is_text_without_tools():
    markup = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    script = stream(chunk(markup), chunk(finish="stop"))
    async with gateway(script, model={"format": "hermes_json"}) as site:
        streamed, at_once = [(await site.message(stream=stream)).content for stream in (True, False)]
        refused = await site.message(tools=[BASH], tool_choice={"type": "none"})
    for message in (checked(streamed), checked_whole(at_once), checked_whole(refused.content)):
        assert message["content"] == [{"type": "text", "text": markup}] and message["stop_reason"] == "end_turn"


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (whole({"error": "CUDA out of memory"}, 500), (502, "api_error")),
        (whole({"error": "invalid key"}, 401), (502, "api_error")),
        (whole({"error": "loading"}, 503), (529, "overloaded_error")),
        (whole({"error": "slow down"}, 429, retry_after="7"), (429, "rate_limit_error")),
        (TOO_LONG, (400, "invalid_request_error")),
    ],
    ids=["500", "401", "503", "429", "too long"],
)
async def test_message_failure_of_the_backend_has_a_status_of_the_api(script, expected, streamed):
    async with gateway(script, model={"retries": 0}) as site:
        response = await site.message(stream=streamed)
    assert error_of(response) == expected
    assert (response.headers.get("retry-after") == "7") is (expected[0] == 429)
    assert ("prompt is too long: 12 tokens > 8 maximum" in response.text) is (script is TOO_LONG)


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
async def test_message_limit_without_room_is_cut(streamed):
    async with gateway(NO_ROOM, HELLO) as site:
        response = await site.message(stream=streamed, max_tokens=64_000)
        limits = [post.json["max_completion_tokens"] for post in site.upstream.posts]
    assert (checked if streamed else checked_whole)(response.content)["stop_reason"] == "end_turn"
    assert limits[0] == 64_000 and limits[1] <= 20_000 - 16_614
    assert "translated:max_tokens" in response.text + response.headers.get("x-gateway-warnings", "")


@pytest.mark.parametrize("name", PLAIN)
async def test_message_of_claude_code_passes_strict_mode(name):
    fields = {**PLAIN[name], "model": "m", "stream": False}
    async with gateway(whole(completion_body("Hi")), backend={"kind": "vllm"}, model={"format": "native"}) as site:
        response = await site.message(headers={"x-gateway-strict": "1"}, **fields)
        sent = site.upstream_body
    assert response.status_code == 200, response.text
    assert not {"thinking", "system"} & sent.keys()
    assert [name for name in OF_THE_CLIENT if name in json.dumps(sent)] == []


async def test_message_beta_query_is_ignored_and_the_alias_echoed():
    async with gateway(HELLO, model={"aliases": ["claude-haiku-*"]}) as site:
        body = {"model": "claude-haiku-9-20990101", "max_tokens": 9, "messages": HELLO_MESSAGES, "stream": True}
        response = await site.client.post("/v1/messages?beta=true", json=body, headers={"anthropic-beta": "x-1, y-2"})
        begun, *_ = events_of(response.content)
    assert begun["message"]["model"] == "claude-haiku-9-20990101"


async def test_message_is_the_same_streamed_and_whole_for_thinking_and_calls():
    async with gateway(THINKS_AND_CALLS) as site:
        streamed, at_once = [(await site.message(stream=stream, tools=[BASH])).content for stream in (True, False)]
    messages = [checked(streamed), checked_whole(at_once)]
    for message in messages:
        message["id"] = message["content"][0]["signature"] = ""
    check_same(*messages)


async def test_message_clients_probe_the_root_without_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        async with gateway(HELLO) as site:
            probed = await site.client.head("/")
    assert probed.status_code in (200, 404) and not caplog.records


async def test_message_body_without_json_is_refused():
    async with gateway(HELLO) as site:
        response = await site.client.post("/v1/messages", content=b"{", headers={"content-type": "application/json"})
    assert error_of(response) == (400, "invalid_request_error") and "JSON" in response.json()["error"]["message"]


async def test_message_path_with_a_doubled_prefix_names_the_right_one():
    async with gateway(HELLO) as site:
        response = await site.client.post("/v1/v1/messages", json={}, headers={"anthropic-version": "2023-06-01"})
    assert error_of(response) == (404, "not_found_error") and "/v1/messages" in response.json()["error"]["message"]
