"""Test that no body holds more values than the gateway allows, and that others are served while a large one is read."""

import asyncio
import json
import threading

import pytest

from gateway.server.worker_thread import parse_body
from support.app import gateway, problem
from support.upstream import HELLO, chunk, stream

HI = {"role": "user", "content": "hi"}
ITEMS, PARTS = "array_above_max_length", [{"type": "input_text", "text": "a"}] * 3
LIMITS = {"items": 3, "parts": 2}
REFUSED = [
    ("chat/completions", {"messages": [HI] * 4}, 400, ITEMS, "messages"),
    ("chat/completions", {"messages": [HI], "x": [[[]] * 30]}, 413, "request_too_large", None),
    ("responses", {"input": [HI] * 4}, 400, ITEMS, "input"),
    ("responses", {"input": [{**HI, "content": PARTS}]}, 400, ITEMS, "input[0].content"),
    ("responses/compact", {"input": [HI] * 4}, 400, ITEMS, "input"),
    ("responses/input_tokens", {"input": [HI] * 4}, 400, ITEMS, "input"),
    ("conversations", {"items": [HI] * 4}, 400, ITEMS, "items"),
    ("conversations", {"items": [{**HI, "content": PARTS}]}, 400, ITEMS, "items[0].content"),
    ("completions", {"prompt": ["a"] * 4}, 400, ITEMS, "prompt"),
    ("embeddings", {"input": ["a"] * 4}, 400, ITEMS, "input"),
    ("rerank", {"query": "q", "documents": ["a"] * 4}, 400, ITEMS, "documents"),
    ("tokenize", {"messages": [HI] * 4}, 400, ITEMS, "messages"),
    ("detokenize", {"tokens": ["a"] * 30}, 413, "request_too_large", None),
]


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"), REFUSED, ids=[f"{row[0]}: {row[3]}, {row[4]}" for row in REFUSED]
)
async def test_body_of_too_many_values_is_refused(path, body, status, code, param):
    async with gateway(HELLO, limits=LIMITS) as site:
        answer = await site.client.post(f"/v1/{path}", json={"model": "m", **body})
        assert problem(answer) == (status, "invalid_request_error", code, param)
        assert "limits." in answer.json()["error"]["message"] and not site.upstream.posts


async def test_body_with_a_long_history_of_escaped_json_is_served():
    async with gateway(HELLO, limits=LIMITS) as site:
        text = json.dumps({f"a{number}": [number] for number in range(50)})
        assert (await site.chat(messages=[{**HI, "content": text}])).status_code == 200


async def test_large_body_is_parsed_while_the_event_loop_goes_on():
    went_on = threading.Event()
    asyncio.get_running_loop().call_soon(went_on.set)
    assert await parse_body(lambda _: went_on.wait(20), bytes(256 << 10))


async def test_small_body_is_parsed_at_once():
    asyncio.get_running_loop().call_soon(later := threading.Event().set)
    thread = await parse_body(lambda _: threading.current_thread(), b"{}")
    assert thread is threading.current_thread() and later


async def test_large_requests_reach_the_backend_whole():
    text, calls = (
        'é\n"\\' * 300_000,
        [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
    )
    messages = [
        {**HI, "content": text},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "a" * 1_400_000},
    ]
    async with gateway(stream(chunk("Hi", finish="stop"))) as site:
        assert (await site.chat(messages=messages, stream=True)).status_code == 200
        assert site.upstream_body["messages"] == messages
        many = [{**HI, "content": str(number)} for number in range(1500)]
        assert (await site.respond(input=many, store=False)).status_code == 200
        assert site.upstream_body["messages"] == many


async def test_input_of_many_items_is_stored_in_their_order():
    async with gateway(HELLO) as site:
        many = [{**HI, "content": str(number)} for number in range(1200)]
        id = (await site.respond(input=many)).json()["id"]
        page = (await site.client.get(f"/v1/responses/{id}/input_items?order=asc&limit=100")).json()
        assert [item["content"][0]["text"] for item in page["data"]] == [str(number) for number in range(100)]
        last = (await site.client.get(f"/v1/responses/{id}/input_items?order=desc&limit=1")).json()
        assert last["data"][0]["content"][0]["text"] == "1199"
