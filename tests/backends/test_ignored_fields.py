"""Test `ignores` of a backend: the gateway treats its fields as those that a kind is known to ignore."""

import json
from typing import get_args

import pytest

from gateway import formats
from gateway.backends import KINDS
from gateway.backends.ignored_fields import IGNORED, is_known_to_ignore, with_ignored_fields
from gateway.backends.kinds import ROWS
from gateway.config import ConfigError, parse
from gateway.config.backends import IgnorableField
from gateway.server.upstream.backend import Backend
from support.app import gateway
from support.sse import payloads, text_of
from support.upstream import HELLO, chunk, completion_body, stream, whole

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
JSON = {"type": "json_object"}
# A field → a value, and the code of the warning if the server ignores the field
LOST = {
    "frequency_penalty": (1, "dropped"),
    "logit_bias": ({"5": 1}, "dropped"),
    "logprobs": (True, "dropped"),
    "presence_penalty": (1, "dropped"),
    "reasoning_effort": ("low", "dropped"),
    "response_format": (JSON, "unenforced"),
    "seed": (7, "dropped"),
    "tool_choice": ("required", "unenforced"),
    "top_logprobs": (2, "dropped"),
}
DONE_HERE = {"n", "parallel_tool_calls", "stop"}
WITH = {"tool_choice": {"tools": [TOOL]}, "top_logprobs": {"logprobs": True}}


def ignoring_backend(*ignores, kind="openai"):
    return {"backend": {"kind": kind, "ignores": [*ignores]}, "model": {"format": "native"}}


def test_ignored_fields_of_the_config_are_those_of_the_table():
    assert get_args(IgnorableField) == tuple(IGNORED) == tuple(sorted({*LOST, *DONE_HERE}))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("[n, temperature]", "ignores[1]: unknown value 'temperature'; one of: 'frequency_penalty', 'logit_bias', "),
        ("n", "ignores: should be a list; write ignores: [ … ], or one `- entry` per line"),
    ],
)
def test_ignored_fields_with_invalid_values_are_refused(written, message):
    with pytest.raises(ConfigError) as caught:
        parse(f"backends: {{a: {{url: 'http://a', ignores: {written}}}}}", "x", {}, formats.format_names())
    assert str(caught.value).startswith(f"x:1: backends.a.{message}")


def test_ignored_fields_hold_if_the_server_parses_nothing():
    raw = with_ignored_fields(KINDS["llamacpp"], ["response_format"]).without_parsers()
    assert is_known_to_ignore(raw, "response_format") and is_known_to_ignore(raw, "tool_choice")
    assert not is_known_to_ignore(KINDS["llamacpp"].without_parsers(), "response_format")


@pytest.mark.parametrize("kind", KINDS)
def test_ignored_fields_change_the_kind_only_if_they_are_new(kind):
    assert with_ignored_fields(KINDS[kind], ()) == KINDS[kind]
    for name in IGNORED:
        other = with_ignored_fields(KINDS[kind], [name])
        assert is_known_to_ignore(other, name) and (other == KINDS[kind]) == is_known_to_ignore(KINDS[kind], name)


def test_ignored_fields_describe_transformers():
    known = {*LOST, *DONE_HERE} - {"frequency_penalty", "logit_bias", "reasoning_effort", "seed"}
    assert with_ignored_fields(KINDS["transformers"], known) == KINDS["transformers"]
    assert not any(is_known_to_ignore(KINDS["transformers"], name) for name in {*LOST} - known)


@pytest.mark.parametrize("name", LOST)
async def test_ignored_field_is_not_sent_and_is_a_warning(name):
    value, code = LOST[name]
    fields = {name: value, **WITH.get(name, {})}
    async with gateway(HELLO, **ignoring_backend()) as site:
        assert (await site.chat(**fields)).status_code == 200
        assert site.upstream.posts[0].json[name] == value
    async with gateway(HELLO, **ignoring_backend(name)) as site:
        response = await site.chat(**fields)
        assert name not in site.upstream.posts[0].json
        assert f"{code}:{name}" in response.headers["x-gateway-warnings"].split(", ")
        refused = await site.chat(**fields, headers={"x-gateway-strict": "1"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)


async def test_ignored_logprobs_drop_top_logprobs():
    async with gateway(HELLO, **ignoring_backend("logprobs")) as site:
        response = await site.chat(logprobs=True, top_logprobs=2)
        assert not site.upstream_body.keys() & {"logprobs", "top_logprobs"}
    assert response.headers["x-gateway-warnings"] == "dropped:logprobs, dropped:top_logprobs"


@pytest.mark.parametrize(("ignores", "formed"), [(["tool_choice"], True), (["tool_choice", "response_format"], False)])
async def test_ignored_tool_choice_is_enforced_by_other_means(ignores, formed):
    async with gateway(HELLO, **ignoring_backend(*ignores)) as site:
        await site.chat(tools=[TOOL], tool_choice="required")
        upstream_body = site.upstream.posts[0].json
    assert upstream_body["messages"][0]["content"].startswith(
        "Answer with a call of one of the tools, and with nothing else."
    )
    assert ("response_format" in upstream_body) == formed


@pytest.mark.parametrize("kind", ["openai", "llamacpp"])
async def test_ignored_n_makes_a_request_for_each_choice(kind):
    async with gateway(
        whole(completion_body("A")), whole(completion_body("B")), **ignoring_backend("n", kind=kind)
    ) as site:
        response = await site.chat(n=2)
        assert ["n" in post.json for post in site.upstream.posts] == [False, False]
    assert {choice["message"]["content"] for choice in response.json()["choices"]} == {"A", "B"}
    assert response.json()["usage"]["completion_tokens"] == 4
    assert response.headers["x-gateway-warnings"] == "emulated:n"


async def test_ignored_parallel_tool_calls_drops_further_calls():
    calls = [
        {"id": f"call_{name}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in ("a", "b")
    ]
    async with gateway(
        whole(completion_body(None, tool_calls=calls)), **ignoring_backend("parallel_tool_calls")
    ) as site:
        response = await site.chat(tools=[TOOL], parallel_tool_calls=False)
        assert "parallel_tool_calls" not in site.upstream_body
    assert [call["id"] for call in response.json()["choices"][0]["message"]["tool_calls"]] == ["call_a"]


@pytest.mark.parametrize(("ignores", "text"), [((), "a=b"), (("stop",), "a")])
async def test_ignored_stop_is_applied_by_the_gateway(ignores, text):
    async with gateway(stream(chunk("a"), chunk("=b"), chunk(finish="stop")), **ignoring_backend(*ignores)) as site:
        response = await site.chat(stream=True, stop="=")
        assert site.upstream_body["stop"] == "="
    assert text_of(response.text) == text and payloads(response.text)[-1] == "[DONE]"


# Completions


async def complete(site, **fields):
    return await site.client.post("/v1/completions", content=json.dumps({"model": "m", "prompt": "Once", **fields}))


def completion_of(text):
    return whole({"choices": [{"index": 0, "text": text, "finish_reason": "stop"}]})


async def test_ignored_fields_hold_in_completions():
    async with gateway(
        completion_of("a=b"), completion_of("c"), **ignoring_backend("logprobs", "n", "stop", kind="vllm")
    ) as site:
        response = await complete(site, n=2, stop="=", logprobs=1)
        assert [post.json.keys() & {"n", "stop", "logprobs"} for post in site.upstream.posts] == [{"stop"}] * 2
        assert {choice["text"] for choice in response.json()["choices"]} == {"a", "c"}
        several = await complete(site, prompt=["a", "b"])
        assert (several.status_code, several.json()["error"]["param"]) == (400, "prompt")


def test_backend_without_ignored_fields_has_the_rules_of_its_kind():
    config = parse("backends: {a: {url: 'http://a', kind: vllm}}", "x", {}, formats.format_names())
    backend = Backend("a", config.backends["a"])
    assert (backend.kind, backend.services) == (KINDS["vllm"], ROWS["vllm"].services)
