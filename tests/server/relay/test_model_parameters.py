"""Test the operator's parameters of a model in the requests of each API, and the warning of a short context."""

import pytest

from gateway.server.relay.attempts import warn_of_short_window
from gateway.server.upstream.model_registry import ModelRegistry, context_length, remembered
from support.app import HELLO_MESSAGES, gateway, settings
from support.upstream import HELLO, whole

USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
TEXT = whole({"choices": [{"text": "Hi", "finish_reason": "stop"}], "usage": USAGE})
TOO_LONG = whole({"error": {"message": "max_tokens 4096 is too large: 100 tokens are left (context length 4096)"}}, 400)
TOOL = {"type": "function", "function": {"name": "f"}}
MODEL = {
    "defaults": {"temperature": 0.5, "max_tokens": 77, "chat_template_kwargs": {"style": "plain"}, "num_ctx": 9},
    "overrides": {"top_p": 0.9},
}
PATHS = {
    "/v1/chat/completions": ({"messages": HELLO_MESSAGES}, HELLO),
    "/v1/responses": ({"input": "Hello"}, HELLO),
    "/v1/messages": ({"max_tokens": 77, "messages": HELLO_MESSAGES}, HELLO),
    "/v1/completions": ({"prompt": "Hello"}, TEXT),
}


@pytest.mark.parametrize("path", PATHS)
async def test_model_parameters_reach_the_backend_from_each_api(path):
    fields, script = PATHS[path]
    async with gateway(script, model=MODEL) as site:
        plain = await site.client.post(path, json={"model": "m", **fields})
        first = site.upstream_body
        response = await site.client.post(path, json={"model": "m", **fields, "temperature": 1, "top_p": 0.1})
        second = site.upstream_body
        strict = await site.client.post(path, json={"model": "m", **fields}, headers={"x-gateway-strict": "1"})
        refused = {"json": {"model": "m", **fields, "top_p": 0.1}, "headers": {"x-gateway-strict": "1"}}
        refused = await site.client.post(path, **refused)
    assert {name: first[name] for name in ("temperature", "top_p", "num_ctx")} == {
        "temperature": 0.5, "top_p": 0.9, "num_ctx": 9,
    }  # fmt: skip
    assert 77 in (first.get("max_tokens"), first.get("max_completion_tokens"))
    assert first["chat_template_kwargs"] == {"style": "plain"}
    assert (second["temperature"], second["top_p"]) == (1, 0.9)
    assert "x-gateway-warnings" not in plain.headers, "the client sent nothing that is lost"
    assert response.headers["x-gateway-warnings"] == "dropped:top_p"
    assert (strict.status_code, refused.status_code) == (200, 400) and "'top_p'" in refused.text


async def test_model_parameters_apply_to_a_count_of_tokens():
    async with gateway(HELLO, backend={"kind": "llamacpp"}, model={"overrides": {"top_p": 0.9}}) as site:
        site.upstream.shown["/v1/chat/completions/input_tokens"] = whole({"input_tokens": 42})
        body = {"model": "m", "input": "Hello", "top_p": 0.1}
        response = await site.client.post("/v1/responses/input_tokens", json=body)
        sent = site.upstream.aside[-1].json
    assert sent["top_p"] == 0.9 and response.headers["x-gateway-warnings"] == "dropped:top_p"


async def test_model_parameter_yields_to_the_limit_that_the_backend_allows():
    async with gateway(TOO_LONG, HELLO, model={"overrides": {"max_tokens": 4096}}) as site:
        response = await site.chat()
        limits = [post.json.get("max_completion_tokens") for post in site.upstream.posts]
    assert response.status_code == 200 and limits[0] == 4096 and limits[1] != 4096


async def test_completion_without_a_limit_has_that_of_the_api():
    async with gateway(TEXT) as site:
        await site.client.post("/v1/completions", json={"model": "m", "prompt": "Hello"})
        assert site.upstream_body["max_tokens"] == 16


# The context


def route_of(kind, window=None, **model):
    """Return a route to a backend that lists this context."""
    registry = ModelRegistry(settings("http://h", backend={"kind": kind}, model=model), lambda *_: None)
    (route,) = registry._served["m"].routes.values()
    route.backend.listed_window = lambda _: window
    return route


@pytest.mark.parametrize(
    ("kind", "window", "model", "message"),
    [
        ("ollama", 4096, {}, "the context of model m has 4096 tokens, too few for tools; set models.m.defaults: {num_ctx: 32768}"),
        ("vllm", 2048, {}, "the context of model m has 2048 tokens, too few for tools; start backend up with a longer one (`gateway doctor` says how)"),
        ("ollama", 8192, {}, None),
        ("ollama", 4096, {"defaults": {"num_ctx": 8192}}, None),
        ("ollama", 8192, {"overrides": {"num_ctx": 4096}}, "the context of model m has 4096 tokens, too few for tools; set models.m.defaults: {num_ctx: 32768}"),
    ],
)  # fmt: skip
def test_short_context_is_reported_once(kind, window, model, message, caplog):
    route = route_of(kind, window, **model)
    for _ in range(2):
        warn_of_short_window(route)
    assert caplog.messages == ([message] if message else [])


def test_unknown_context_is_reported_when_it_becomes_known(caplog):
    route = route_of("ollama")
    warn_of_short_window(route)
    assert not caplog.messages
    route.backend.listed_window = lambda _: 4096
    warn_of_short_window(route)
    assert len(caplog.messages) == 1


async def test_configured_context_of_ollama_is_that_of_the_model():
    route = route_of("ollama", 4096, defaults={"num_ctx": 16384})
    assert remembered(route) == await context_length(route) == 16384
    assert route_of("vllm", 4096).configured_window is None


async def test_short_context_is_reported_for_a_request_with_tools(caplog):
    async with gateway(HELLO, backend={"kind": "llamacpp"}, model={"format": "native"}) as site:
        site.upstream.shown["/props"] = whole({"default_generation_settings": {"n_ctx": 4096}})
        await site.client.get("/v1/models")  # the gateway learns the context
        await site.chat()
        assert not caplog.messages
        await site.chat(tools=[TOOL])
        assert ["too few for tools" in message for message in caplog.messages] == [True]
