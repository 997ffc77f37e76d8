"""Test /v1/responses/input_tokens: the backend counts the prompt if it can, otherwise the gateway estimates.

https://platform.openai.com/docs/api-reference/responses/input-tokens
"""

import asyncio
import json

import openai
import pytest

from support.app import bearer, gateway, listening, problem
from support.upstream import CLOSE, HANG, HELLO, KEY, completion_body, head, whole
from support.wait import DEADLINE

BAD = "invalid_request_error"
LLAMACPP, VLLM = "/v1/chat/completions/input_tokens", "/tokenize"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
COUNTERS = {"llamacpp": (LLAMACPP, {"input_tokens": 42}), "vllm": (VLLM, {"count": 42, "tokens": [1] * 42})}
MISCOUNTS = {
    "an error": whole({"error": "no"}, status=500),
    "no such place": None,
    "another field": whole({"tokens": 42}),
    "no number": whole({"input_tokens": "42"}),
    "no object": whole([42]),
    "no JSON": whole(b"42 tokens"),
    "half an answer": [head(type="application/json"), b'{"input_tokens": 4', CLOSE],
}


def kind(name):
    return {"backend": {"kind": name}, "model": {"format": "native"}}


async def count(site, *, headers=None, **fields):
    body = {"model": "m", "input": "Hello", **fields}
    return await site.client.post("/v1/responses/input_tokens", json=body, headers=headers)


@pytest.mark.parametrize("name", COUNTERS)
async def test_input_tokens_are_counted_by_the_backend_for_the_same_body(name):
    path, answer = COUNTERS[name]
    fields = {"input": [{"role": "user", "content": "q"}], "instructions": "Be brief.", "tools": [TOOL]}
    async with gateway(whole(completion_body("Hi")), **kind(name)) as site:
        site.upstream.shown[path] = whole(answer)
        counted = await count(site, **fields)
        assert site.upstream.posts == []
        await site.respond(**fields)
        (post,) = site.upstream.aside
        assert post.path == path and post.json == site.upstream_body
        assert post.headers["authorization"] == f"Bearer {KEY}"
    assert counted.json() == {"object": "response.input_tokens", "input_tokens": 42}
    assert counted.status_code == 200 and "x-gateway-warnings" not in counted.headers


@pytest.mark.parametrize("name", MISCOUNTS)
async def test_input_tokens_are_estimated_with_a_warning_if_not_counted(name):
    async with gateway(HELLO, **kind("llamacpp")) as site:
        if MISCOUNTS[name]:
            site.upstream.shown[LLAMACPP] = MISCOUNTS[name]
        short, long = await count(site), await count(site, input="Hello" * 100, tools=[TOOL])
    assert short.headers["x-gateway-warnings"] == long.headers["x-gateway-warnings"] == "estimated:input_tokens"
    assert 0 < short.json()["input_tokens"] < 20 and 125 < long.json()["input_tokens"] < 200


async def test_input_tokens_are_not_requested_from_a_kind_that_cannot_count():
    async with gateway(HELLO, **kind("ollama")) as site:
        counted = await count(site)
        assert site.upstream.aside == site.upstream.posts == []
    assert counted.headers["x-gateway-warnings"] == "estimated:input_tokens"


async def test_input_tokens_include_the_previous_response():
    async with gateway(whole(completion_body("Hello you")), **kind("llamacpp")) as site:
        site.upstream.shown[LLAMACPP] = whole({"input_tokens": 7})
        first = (await site.respond(input="Hello")).json()
        assert (await count(site, input="And?", previous_response_id=first["id"])).status_code == 200
        chained = [message["content"] for message in site.upstream.aside[-1].json["messages"]]
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        assert (await count(site, input=[reference])).status_code == 200
        assert site.upstream.aside[-1].json["messages"][0] == {"role": "assistant", "content": "Hello you"}
        again = (await site.respond(input="And?", previous_response_id=first["id"])).json()
    assert chained == ["Hello", "Hello you", "And?"]
    assert again["previous_response_id"] == first["id"]


async def test_input_tokens_of_a_conversation_are_counted_during_a_response():
    async with gateway([head(), HANG], **kind("llamacpp")) as site:
        site.upstream.shown[LLAMACPP] = whole({"input_tokens": 7})
        items = [{"role": "user", "content": "Hello"}]
        conversation = (await site.client.post("/v1/conversations", json={"items": items})).json()["id"]
        answering = asyncio.create_task(site.respond(input="Go on.", conversation=conversation))
        await site.upstream.arrived.wait()
        assert problem(await site.respond(input="x", conversation=conversation))[2] == "conversation_locked"
        counted = await count(site, input="And?", conversation=conversation)
        answering.cancel()
        kept = await site.client.get(f"/v1/conversations/{conversation}/items")
    assert counted.json()["input_tokens"] == 7
    assert [message["content"] for message in site.upstream.aside[-1].json["messages"]] == ["Hello", "And?"]
    assert len(kept.json()["data"]) == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": None}, (400, BAD, "missing_required_parameter", "model")),
        ({"model": "other"}, (404, BAD, "model_not_found", "model")),
        ({"input": []}, (400, BAD, "missing_required_parameter", "input")),
        ({"input": 1}, (400, BAD, "invalid_type", "input")),
        ({"truncation": "some"}, (400, BAD, "invalid_value", "truncation")),
        ({"previous_response_id": "resp_x"}, (400, BAD, "previous_response_not_found", "previous_response_id")),
        ({"conversation": "conv_x"}, (404, BAD, None, "conversation")),
        ({"tools": [{"type": "web_search"}]}, (400, BAD, "unsupported_parameter", "tools.web_search")),
    ],
)
async def test_input_tokens_of_an_invalid_request_are_refused(fields, expected):
    async with gateway(HELLO) as site:
        assert problem(await count(site, **fields, headers={"x-gateway-strict": "1"})) == expected


async def test_input_tokens_error_names_the_path_in_its_input():
    part = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,###"}
    async with gateway(HELLO) as site:
        status, _, _, param = problem(await count(site, input=[{"role": "user", "content": [part]}]))
    assert status == 400 and param == "input[0].content[0].file_data"


async def test_input_tokens_require_an_api_key():
    keys = [{"name": "ann", "key": "k" * 20, "models": ["other"]}]
    async with gateway(HELLO, auth={"keys": keys}) as site:
        assert (await count(site)).status_code == 401
        assert problem(await count(site, headers=bearer("k" * 20)))[0] == 403


async def test_input_tokens_require_a_post():
    async with gateway(HELLO) as site:
        assert (await site.client.delete("/v1/responses/input_tokens")).status_code == 404
        paths = (await site.client.get("/openapi.json")).json()["paths"]
    assert "post" in paths["/v1/responses/input_tokens"]


async def test_input_tokens_are_counted_for_the_sdk():
    async with listening(HELLO, **kind("llamacpp")) as site:
        site.upstream.shown[LLAMACPP] = whole({"input_tokens": 42})
        async with openai.AsyncOpenAI(
            base_url=f"{site.client.base_url}/v1", api_key="none", timeout=DEADLINE
        ) as client:
            result = await client.responses.input_tokens.count(
                model="m",
                input=[{"role": "user", "content": "q"}],
                instructions="Be brief.",
                tools=[TOOL],
                tool_choice="auto",
                parallel_tool_calls=True,
                personality="friendly",
                reasoning={"effort": "low"},
                text={"verbosity": "low"},
                truncation="auto",
            )
    assert (result.object, result.input_tokens) == ("response.input_tokens", 42)
    assert json.loads(site.upstream.aside[-1].body)["messages"][0]["content"] == "Be brief."
