"""Test /v1/messages over HTTP: streams, whole messages, tools, errors in the form of the API, counts and models."""

import json

import pytest

from gateway.server.middleware.error_responses import is_messages_api
from gateway.server.relay import relay
from support.app import HELLO_MESSAGES, bearer, gateway, listening
from support.backends import fleet
from support.messages_events import check_same, checked, checked_whole, events_of
from support.upstream import CLOSE, DONE, END, HELLO, call, chunk, completion_body, frame, head, stream, whole

KEY = "sk-messages-0123456789"
TOOL = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALLED = [
    head(),
    chunk(tool_calls=call("get_weather", '{"city": "Oslo"}', id="call_1")),
    chunk(finish="tool_calls"),
    DONE,
    END,
]
PAGE = {"anthropic-version": "2023-06-01"}


async def message(site, path="/v1/messages", headers=None, **fields):
    """POST the smallest message with these fields."""
    body = {"model": "m", "max_tokens": 100, "messages": HELLO_MESSAGES, **fields}
    body = {name: value for name, value in body.items() if value is not None}
    return await site.client.post(path, json=body, headers=headers)


def error_of(response):
    """Return the status, the type and the message of an error, which names its request."""
    body = response.json()
    assert body["type"] == "error" and body["request_id"] == response.headers["request-id"]
    return response.status_code, body["error"]["type"], body["error"]["message"]


async def test_message_is_the_same_streamed_and_whole():
    async with listening(HELLO) as site:
        streamed, at_once = await message(site, stream=True), await message(site)
    folded = checked(streamed.content)
    check_same({**folded, "id": ""}, {**checked_whole(at_once.content), "id": ""})
    assert folded["content"] == [{"type": "text", "text": "Hi"}] and folded["stop_reason"] == "end_turn"
    assert streamed.headers["request-id"] == streamed.headers["x-request-id"]


async def test_message_with_tools_gives_the_call_and_takes_its_result():
    async with gateway(CALLED, HELLO) as site:
        response = await message(site, tools=[TOOL], stream=True)
        (use,) = checked(response.content)["content"]
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "3 degrees"}
        turns = [*HELLO_MESSAGES, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        answered = await message(site, tools=[TOOL], messages=turns)
        sent = site.upstream_body["messages"]
    assert (use["name"], use["input"]) == ("get_weather", {"city": "Oslo"})
    assert [one["role"] for one in sent] == ["user", "assistant", "tool"] and sent[2]["content"] == "3 degrees"
    assert checked_whole(answered.content)["content"] == [{"type": "text", "text": "Hi"}]


async def test_message_thinking_comes_back_with_its_signature():
    thinks = [head(), chunk(reasoning_content="Hm."), chunk("Hi"), chunk(finish="stop"), DONE, END]
    async with gateway(thinks, HELLO) as site:
        first = checked((await message(site, stream=True)).content)
        turns = [*HELLO_MESSAGES, {"role": "assistant", "content": first["content"]}, *HELLO_MESSAGES]
        await message(site, messages=turns)
        sent = site.upstream_body["messages"][1]
    assert [block["type"] for block in first["content"]] == ["thinking", "text"] and first["content"][0]["signature"]
    assert (sent["reasoning_content"], sent["content"]) == ("Hm.", "Hi")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": None}, (400, "invalid_request_error", "max_tokens: Field required")),
        ({"model": "x"}, (404, "not_found_error", "model: x. ")),
        (
            {"messages": [{"role": "user", "content": [{"type": "x"}]}]},
            (400, "invalid_request_error", "messages.0.content.0"),
        ),
    ],
)
async def test_message_error_has_the_form_of_the_api(fields, expected):
    async with gateway(HELLO) as site:
        response = await message(site, **fields)
    status, type, text = error_of(response)
    assert (status, type) == expected[:2] and text.startswith(expected[2])


async def test_message_error_of_the_backend_has_the_form_of_the_api():
    refused = whole({"error": {"message": "maximum context length is 8 tokens, 12 requested"}}, 400)
    async with gateway(refused, whole({"error": "loading"}, 503), [CLOSE]) as site:
        too_long, busy, lost = [await message(site) for _ in range(3)]
    assert error_of(too_long)[:2] == (400, "invalid_request_error") and "prompt is too long" in error_of(too_long)[2]
    assert error_of(busy)[:2] == (529, "overloaded_error")
    assert error_of(lost)[:2] == (502, "api_error")


async def test_message_stream_that_breaks_off_ends_with_an_error_event():
    async with listening([head(), chunk("Hi"), CLOSE]) as site:
        streamed = await message(site, stream=True)
    *_, last = events_of(streamed.content)
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")
    assert last["request_id"] == streamed.headers["request-id"]


async def test_message_of_a_full_gateway_is_an_overloaded_error():
    async with gateway(HELLO, limits={"concurrent": 1}) as site:
        with site.app.state.handler.acquire_concurrency():
            full = await message(site)
    assert error_of(full)[:2] == (529, "overloaded_error") and full.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("GET", "/v1/messages", {}, (405, "invalid_request_error")),
        ("POST", "/v1/messages/batches", {}, (404, "not_found_error")),
        ("GET", "/v1/messages/batches/msgbatch_1/results", {}, (404, "not_found_error")),
        ("POST", "/v1/complete", PAGE, (404, "not_found_error")),
        ("GET", "/v1/skills", PAGE, (404, "not_found_error")),
        ("GET", "/v1/files", PAGE, (404, "not_found_error")),
    ],
)
async def test_message_paths_that_do_not_exist_have_errors_of_the_api(method, path, headers, expected):
    async with gateway(HELLO) as site:
        response = await site.client.request(method, path, headers=headers)
    assert error_of(response)[:2] == expected


async def test_message_takes_an_api_key_in_either_header():
    auth = {"keys": [{"name": "a", "key": KEY}]}
    async with gateway(HELLO, auth=auth) as site:
        given = [{"x-api-key": KEY}, bearer(KEY), {"x-api-key": KEY, **bearer("sk-wrong-0123456789")}]
        statuses = [(await message(site, headers=one)).status_code for one in given]
        unknown = await message(site)
        models = await site.client.get("/v1/models", headers={"x-api-key": KEY})
    assert statuses == [200, 200, 200] and models.status_code == 200
    assert error_of(unknown)[:2] == (401, "authentication_error")


async def test_message_tokens_are_counted_by_the_backend_or_estimated():
    async with gateway(HELLO, backend={"kind": "llamacpp"}, model={"format": "native"}) as site:
        site.upstream.shown["/v1/chat/completions/input_tokens"] = whole({"input_tokens": 42})
        counted = await message(site, "/v1/messages/count_tokens", max_tokens=None)
    async with gateway(HELLO) as site:
        estimated = await message(site, "/v1/messages/count_tokens")
    assert counted.json() == {"input_tokens": 42} and "x-gateway-warnings" not in counted.headers
    assert estimated.json().keys() == {"input_tokens"} and estimated.json()["input_tokens"] > 0
    assert estimated.headers["x-gateway-warnings"] == "estimated:input_tokens"


async def test_message_that_fills_the_window_says_so():
    usage = {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}
    cut = stream(chunk("Hi"), chunk(finish="length"), frame(choices=[], usage=usage))
    shown = whole({"default_generation_settings": {"n_ctx": 100}})
    async with gateway(cut, backend={"kind": "llamacpp"}, model={"format": "native"}) as site:
        site.upstream.shown["/props"] = shown
        await site.client.get("/v1/models")  # the gateway learns the window
        filled = checked((await message(site, stream=True)).content)
    async with gateway(cut) as site:
        unknown = checked((await message(site, stream=True)).content)
    assert (filled["stop_reason"], unknown["stop_reason"]) == ("model_context_window_exceeded", "max_tokens")


async def test_message_error_of_the_backend_about_an_unknown_part_stays_an_error():
    error = {"message": "bad part", "param": "messages[7].content[9]", "type": "invalid_request_error"}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    async with gateway(whole({"error": error}, 400)) as site:
        text = await message(site)
        parts = await message(site, messages=[{"role": "user", "content": [picture]}])
    assert error_of(text)[:2] == error_of(parts)[:2] == (400, "invalid_request_error")


async def test_message_models_are_listed_in_the_form_of_the_api():
    async with gateway(HELLO) as site:
        listed = (await site.client.get("/v1/models", headers=PAGE)).json()
        one = (await site.client.get("/v1/models/m", headers=PAGE)).json()
        plain = (await site.client.get("/v1/models")).json()
        bad = await site.client.get("/v1/models", params={"limit": "0"}, headers=PAGE)
    assert listed["data"] == [one] and (one["type"], one["id"]) == ("model", "m")
    assert (listed["has_more"], listed["first_id"]) == (False, "m") and plain["object"] == "list"
    assert error_of(bad)[:2] == (400, "invalid_request_error")


async def test_message_picture_that_is_refused_is_named_by_its_block():
    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    turns = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}]
    async with gateway(HELLO, backend={"kind": "ollama"}) as site:
        response = await message(site, messages=turns)
    assert error_of(response)[:2] == (400, "invalid_request_error")
    assert "messages.0.content.1" in error_of(response)[2]


async def test_message_large_body_is_parsed_in_the_thread():
    turns = [{"role": "user", "content": "x" * 300_000}]
    async with gateway(stream(chunk("Hi"), chunk(finish="stop")), model={"format": "native"}) as site:
        response = await message(site, messages=turns, stream=True)
    assert checked(response.content)["content"] == [{"type": "text", "text": "Hi"}]


async def test_message_reasoning_that_the_operator_hides_is_not_shown():
    async with gateway(
        whole(completion_body("Hi", reasoning_content="Hm.")), model={"reasoning": {"as": "hidden"}}
    ) as site:
        response = checked_whole((await message(site)).content)
    assert json.dumps(response["content"]).count("Hm.") == 0


@pytest.mark.parametrize("kind", ["openai", "vllm", "llamacpp"])
async def test_message_of_the_api_passes_strict_mode(kind):
    fields = {"top_k": 5, "thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 4096}
    async with gateway(HELLO, backend={"kind": kind}, model={"format": "native"}) as site:
        response = await message(site, headers={"x-gateway-strict": "1"}, **fields)
    assert response.status_code == 200 and "forwarded" not in response.headers.get("x-gateway-warnings", "")


def test_websocket_is_not_of_the_messages_api():
    scope = {"type": "websocket", "path": "/v1/messages", "headers": [(b"anthropic-version", b"2023-06-01")]}
    assert not is_messages_api(scope) and is_messages_api({**scope, "type": "http"})


async def test_message_begins_with_an_estimate_of_the_prompt_alone():
    async with listening(stream(chunk("Hi"), chunk(finish="stop"))) as site:
        begun, *_ = events_of((await message(site, stream=True, max_tokens=32_000)).content)
    assert 0 < begun["message"]["usage"]["input_tokens"] < 10


# What depends on the backend or on the client's headers


PREFILLED = {
    "openai": ({"continue_final_message": True, "add_generation_prompt": False}, None),
    "vllm": ({"continue_final_message": True, "add_generation_prompt": False}, None),
    "sglang": ({"continue_final_message": True}, None),
    "llamacpp": ({"continue_final_message": True, "add_generation_prompt": False}, None),
    "ollama": ({}, None),
    "lmstudio": ({}, "unenforced:prefill"),
    "transformers": ({}, "unenforced:prefill"),
}


@pytest.mark.parametrize(("kind", "expected"), PREFILLED.items(), ids=PREFILLED)
async def test_message_prefill_is_continued_or_reported(kind, expected):
    turns = [*HELLO_MESSAGES, {"role": "assistant", "content": "Hel"}]
    async with gateway(whole(completion_body("lo")), backend={"kind": kind}, model={"format": "native"}) as site:
        response = await message(site, messages=turns)
        sent = {name: site.upstream_body[name] for name in PREFILLED["openai"][0] if name in site.upstream_body}
    warnings = response.headers.get("x-gateway-warnings", "")
    assert (sent, "prefill" in warnings) == (expected[0], expected[1] is not None)
    assert "continue" not in warnings and "prompt" not in warnings


@pytest.mark.parametrize(("size", "threads"), [(100, 0), (100_000, 1)])
async def test_message_prefill_is_parsed_in_the_worker_thread_if_it_is_long(size, threads, monkeypatch):
    works = []

    async def run_in_thread(work, *args):
        works.append(work.__name__)
        return work(*args)

    monkeypatch.setattr(relay, "run_in_thread", run_in_thread)
    turns = [*HELLO_MESSAGES, {"role": "assistant", "content": "<" * size}]
    script = stream(chunk("Hi"), chunk(finish="stop"))
    async with gateway(script, backend={"kind": "vllm"}, model={"format": "hermes_json"}) as site:
        events = events_of((await message(site, messages=turns, stream=True)).content)
    assert works == ["feed"] * threads
    assert [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"] == ["Hi"]


async def test_message_call_without_an_id_gets_one_of_the_api():
    calls = whole(
        completion_body(None, tool_calls=[{"type": "function", "function": {"name": "get_weather", "arguments": "{}"}}])
    )
    async with gateway(calls) as site:
        (use,) = checked_whole((await message(site, tools=[TOOL])).content)["content"]
    assert len(use["id"]) == 30 and use["id"].startswith("toolu_")


@pytest.mark.parametrize(
    ("headers", "fields", "met"),
    [
        ({"x-claude-code-session-id": "s-1"}, {}, True),
        ({}, {"metadata": {"user_id": "u-1"}}, True),
        ({}, {}, False),
    ],
    ids=["session", "user", "none"],
)
async def test_message_session_stays_at_one_backend(headers, fields, met):
    async with fleet(
        [whole(completion_body())], [whole(completion_body())], [whole(completion_body())], together=True
    ) as site:
        for _ in range(12):
            assert (await message(site, headers=headers, **fields)).status_code == 200
        assert (sorted(site.posts()) == [0, 0, 12]) == met


async def test_message_limits_are_reported_in_headers_of_the_api():
    auth = {"keys": [{"name": "a", "key": KEY, "limits": {"requests_per_minute": 1}}]}
    async with gateway(whole(completion_body("Hi")), auth=auth) as site:
        site.app.state.limits._clock = lambda: 1_800_000_000
        allowed, refused = [await message(site, headers=bearer(KEY)) for _ in range(2)]
        plain = await site.chat(headers=bearer(KEY))
    for response in (allowed, refused):
        assert response.headers["anthropic-ratelimit-requests-limit"] == "1"
        assert response.headers["anthropic-ratelimit-requests-remaining"] == "0"
        assert response.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
        assert response.headers["x-ratelimit-limit-requests"] == "1"
    assert error_of(refused)[:2] == (429, "rate_limit_error") and refused.headers["retry-after"]
    assert plain.status_code == 429 and "anthropic-ratelimit-requests-limit" not in plain.headers
