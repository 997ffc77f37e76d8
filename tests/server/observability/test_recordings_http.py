"""Test recorded model servers behind a gateway: their metadata is read, and equal requests get equal responses."""

import json
from contextlib import asynccontextmanager

import pytest

from gateway.server.upstream.discovery import DiscoveredServer, discover
from support.app import gateway
from support.pipeline import payloads
from support.recorded_servers import CHAT, EXCHANGES
from support.upstream import Upstream, whole

RAW = {"format": "hermes_json"}
OPEN = {**RAW, "thought": "open"}
TOKENS = [19556, 2067, 17400, 46, 47526]

# Exchanges that the tests below use.
USED = {
    "llamacpp/apply_template", "llamacpp/count_input_tokens", "llamacpp/get_props", "llamacpp/get_v1_models",
    "llamacpp/tokenize", "llamacpp-nojinja/get_props", "llamacpp-raw/apply_template", "llamacpp-raw/get_props",
    "llamacpp-raw-open/get_props", "vllm/detokenize", "vllm/get_v1_models", "vllm/tokenize",
}  # fmt: skip


def played(name):
    """Return the script of a recorded response."""
    exchange = EXCHANGES[name]
    return whole(exchange.body, exchange.status, exchange.content_type)


def aside(server):
    """Return the script of each path at which a server describes itself."""
    names = [name for name in EXCHANGES if name.startswith(f"{server}/") and EXCHANGES[name].path != CHAT]
    return {EXCHANGES[name].path: played(name) for name in names if not EXCHANGES[name].unread}


@asynccontextmanager
async def behind(server, scenario="chat_nonstream", **model):
    """Start a gateway in front of a recorded server."""
    shown, kind = aside(server), server.partition("-")[0]
    script = played(f"{server}/{scenario}") if f"{server}/{scenario}" in EXCHANGES else whole({})
    async with gateway(script, models=shown.pop("/v1/models", ()), backend={"kind": kind}, model=model) as site:
        site.upstream.shown = shown
        yield site


def test_recorded_server_exchanges_are_read_or_marked_as_unread():
    rest = {name for name, exchange in EXCHANGES.items() if exchange.status == 200 and not exchange.answers}
    unread = {name for name in rest if EXCHANGES[name].unread}
    assert rest - unread == USED
    assert all(not EXCHANGES[name].body for name in unread)


@pytest.mark.parametrize(
    ("server", "metadata"),
    [
        ("llamacpp", {"context_length": 4096, "max_model_len": 4096, "capabilities": ["tools"]}),
        ("llamacpp-raw", {"context_length": 4096, "max_model_len": 4096, "capabilities": ["tools"]}),
        ("llamacpp-raw-open", {"context_length": 4096, "max_model_len": 4096, "capabilities": ["tools"]}),
        ("llamacpp-nojinja", {"context_length": 4096, "max_model_len": 4096, "capabilities": []}),
        ("vllm", {"context_length": 4096, "max_model_len": 4096}),
        ("transformers", {}),
    ],
)
async def test_recorded_server_metadata_is_in_the_model_list(server, metadata):
    async with behind(server, upstream_model="smollm2") as site:
        entry = (await site.client.get("/v1/models/m")).json()
    assert {
        name: value for name, value in entry.items() if name not in ("id", "object", "created", "owned_by")
    } == metadata


@pytest.mark.parametrize("kind", ["llamacpp", "vllm"])
async def test_recorded_server_is_discovered_by_its_model_list(kind):
    async with Upstream([whole({})], played(f"{kind}/get_v1_models")).serving() as upstream:
        port = int(upstream.url.rpartition(":")[2])
        assert await discover({port: "ollama"}, seconds=60) == [DiscoveredServer(kind, upstream.url, ("smollm2",))]


async def test_recorded_server_without_a_model_list_is_not_discovered():
    async with Upstream([whole({})], played("transformers/get_v1_models")).serving() as upstream:
        assert await discover({int(upstream.url.rpartition(":")[2]): "vllm"}, seconds=60) == []


@pytest.mark.parametrize(("kind", "longest", "count"), [("llamacpp", {}, 16), ("vllm", {"max_model_len": 4096}, 5)])
async def test_recorded_server_tokenizes_and_counts_input_tokens(kind, longest, count):
    async with behind(kind) as site:
        tokens = await site.client.post("/v1/tokenize", json={"model": "m", "prompt": "Hello"})
        counted = await site.client.post("/v1/responses/input_tokens", json={"model": "m", "input": "Hello"})
    assert tokens.json() == {"tokens": TOKENS, "count": 5, **longest}
    assert counted.json() == {"object": "response.input_tokens", "input_tokens": count}


async def test_recorded_server_detokenizes():
    async with behind("vllm", "detokenize") as site:
        answer = await site.client.post("/v1/detokenize", json={"model": "m", "tokens": [1, 4093, 198]})
    assert answer.json() == {"prompt": "<|im_start|>user\n"}


@pytest.mark.parametrize(
    ("server", "model", "format"),
    [
        ("llamacpp", {}, 'hermes_json; its chat template has <tool_call> and {"name":'),
        ("llamacpp", RAW, "hermes_json; configured"),
        ("llamacpp-nojinja", {}, "auto; its name is unknown, so its output decides"),
        ("llamacpp-nojinja", RAW, "hermes_json; configured"),
        ("llamacpp-raw", RAW, "hermes_json; configured"),
        ("llamacpp-raw-open", OPEN, "hermes_json; configured; responses start inside a thought"),
        ("vllm", {}, "auto; its name is unknown, so its output decides"),
        ("vllm-raw", {}, "auto; its name is unknown, so its output decides"),
        ("transformers", {}, "auto; its name is unknown, so its output decides"),
    ],
)
async def test_recorded_server_responses_have_the_same_text_and_reasoning(server, model, format):
    async with behind(server, "reasoning_stream", **model) as site:
        answer = await site.chat(headers={"x-gateway-debug": "1"})
        response = (await site.respond()).json()
    message = answer.json()["choices"][0]["message"]
    assert message["content"].lstrip() == "4 + 3 = 7."  # vLLM leaves white space behind the thought
    assert message["reasoning_content"].strip() == "The user wants 4 + 3. That is 7."
    assert answer.headers["x-gateway-format"] == format
    thought, item = response["output"]
    assert thought["summary"][0]["text"] == message["reasoning_content"]
    assert item["content"][0]["text"] == message["content"]


@pytest.mark.parametrize(
    ("server", "model"),
    [("llamacpp", {}), ("llamacpp-raw", RAW), ("llamacpp-raw-open", OPEN), ("transformers", {}), ("vllm", {})],
)
@pytest.mark.parametrize("scenario", ["reasoning_then_tool_stream", "tools_parallel_stream"])
async def test_recorded_server_responses_have_the_same_tool_calls(server, model, scenario):
    cities = ["Paris", "Tokyo"] if "parallel" in scenario else ["Paris"]
    names = {"llamacpp-raw-open/tools_parallel_stream": "reasoning_then_parallel_tools_stream"}
    async with behind(server, names.get(f"{server}/{scenario}", scenario), **model) as site:
        tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
        choice = (await site.chat(tools=tools)).json()["choices"][0]
    calls = [call["function"] for call in choice["message"]["tool_calls"]]
    assert [call["name"] for call in calls] == ["get_weather"] * len(cities)
    assert [json.loads(call["arguments"]) for call in calls] == [{"city": city, "unit": "celsius"} for city in cities]
    assert not (choice["message"]["content"] or "").strip() and choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
async def test_recorded_server_usage_of_only_one_choice_adds_a_warning(stream):
    scenario, count = ("chat_stream_n2", 16) if stream else ("chat_nonstream_n2", 8)
    async with behind("llamacpp", scenario) as site:
        answer = await site.chat(n=2, stream=stream, **({"stream_options": {"include_usage": True}} if stream else {}))
    payload = payloads(answer.content)[-1] if stream else answer.json()
    assert payload["usage"]["completion_tokens"] == count
    assert ("estimated:usage" in answer.headers.get("x-gateway-warnings", "")) is not stream
