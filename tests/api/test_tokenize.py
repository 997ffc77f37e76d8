"""Test /v1/tokenize and /v1/detokenize, which the backend of the model answers."""

import pytest

from support.app import gateway, problem
from support.upstream import whole

BAD, LOST = "invalid_request_error", (502, "server_error", "upstream_error", None)
BODIES = {
    "vllm": {"count": 2, "max_model_len": 4096, "tokens": [1, 2], "token_strs": None},
    "sglang": {"tokens": [1, 2], "count": 2, "max_model_len": 4096},
    "llamacpp": {"tokens": [1, 2]},
}
TEXTS = {"vllm": {"prompt": "Hi"}, "sglang": {"text": "Hi"}, "llamacpp": {"content": "Hi"}}


async def put(site, path, **fields):
    return await site.client.post(path, json={"model": "m", **fields})


@pytest.mark.parametrize("kind", BODIES)
async def test_tokenize_text_returns_tokens(kind):
    async with gateway(whole({}), backend={"kind": kind}) as site:
        site.upstream.shown["/tokenize"] = whole(BODIES[kind])
        answer = await put(site, "/v1/tokenize", prompt="Hello")
        bare = await put(site, "/v1/tokenize", prompt="Hello", add_special_tokens=False, odd=1)
        first, second = [post.json for post in site.upstream.aside]
    words = (
        {"content": "Hello", "add_special": True}
        if kind == "llamacpp"
        else {"prompt": "Hello", "add_special_tokens": True}
    )
    assert first == {"model": "m", **words}
    assert second == {**first, [*words][1]: False}
    longest = {} if kind == "llamacpp" else {"max_model_len": 4096}
    assert answer.json() == {"tokens": [1, 2], "count": 2, **longest}
    assert bare.headers["x-gateway-warnings"] == "dropped:odd"


async def test_tokenize_messages_works_if_the_kind_can():
    messages = [{"role": "user", "content": "Hi"}]
    async with gateway(whole({}), backend={"kind": "vllm"}) as site:
        site.upstream.shown["/tokenize"] = whole(BODIES["vllm"])
        assert (await put(site, "/v1/tokenize", messages=messages, add_generation_prompt=True)).status_code == 200
        (post,) = site.upstream.aside
        assert post.json == {"model": "m", "messages": messages, "add_generation_prompt": True}
    async with gateway(whole({}), backend={"kind": "llamacpp"}) as site:
        answer = await put(site, "/v1/tokenize", messages=messages)
        assert problem(answer) == (400, BAD, "unsupported_value", "messages")


@pytest.mark.parametrize("kind", TEXTS)
async def test_detokenize_returns_the_text(kind):
    async with gateway(whole(TEXTS[kind]), backend={"kind": kind}) as site:
        answer = await put(site, "/v1/detokenize", tokens=[1, 2])
        (post,) = site.upstream.posts
        assert (post.path, post.json) == ("/detokenize", {"model": "m", "tokens": [1, 2]})
    assert answer.json() == {"prompt": "Hi"}


@pytest.mark.parametrize("kind", ["openai", "ollama", "lmstudio", "transformers"])
async def test_kind_without_tokenize_is_an_error(kind):
    async with gateway(whole({}), backend={"kind": kind}) as site:
        for path, fields in (("/v1/tokenize", {"prompt": "x"}), ("/v1/detokenize", {"tokens": [1]})):
            answer = await put(site, path, **fields)
            assert problem(answer) == (400, BAD, "unsupported_value", "model")


@pytest.mark.parametrize(
    ("path", "fields", "code", "param"),
    [
        ("/v1/tokenize", {}, "missing_required_parameter", "prompt"),
        ("/v1/tokenize", {"prompt": "a", "messages": [{}]}, "invalid_value", "messages"),
        ("/v1/tokenize", {"prompt": ["a"]}, "invalid_type", "prompt"),
        ("/v1/tokenize", {"messages": []}, "empty_array", "messages"),
        ("/v1/detokenize", {}, "missing_required_parameter", "tokens"),
        ("/v1/detokenize", {"tokens": [-1]}, "integer_below_min_value", "tokens[0]"),
    ],
)
async def test_tokenize_request_that_is_invalid_is_refused(path, fields, code, param):
    async with gateway(whole({}), backend={"kind": "vllm"}) as site:
        assert problem(await put(site, path, **fields)) == (400, BAD, code, param)


@pytest.mark.parametrize("body", [{}, [], {"tokens": "x"}, {"tokens": [{"id": 1}]}])
async def test_tokenize_response_that_is_malformed_is_a_502(body):
    async with gateway(whole(body), backend={"kind": "vllm"}) as site:
        site.upstream.shown["/tokenize"] = whole(body)
        assert problem(await put(site, "/v1/tokenize", prompt="x")) == LOST
        assert problem(await put(site, "/v1/detokenize", tokens=[1])) == LOST
