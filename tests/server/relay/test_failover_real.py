"""Test sticky keys and failover with two llama.cpp servers and a small model."""

import io
from contextlib import ExitStack

import pytest
from openai import OpenAI

from gateway import demo
from gateway.config import parse
from gateway.formats import format_names
from support.threaded_gateway import served

CONFIG = """
backends:
  b0: {{kind: llamacpp, url: "{0}", probe_seconds: 1}}
  b1: {{kind: llamacpp, url: "{1}", probe_seconds: 1}}
models:
  m: {{backends: [b0, b1], upstream_model: smollm2}}
"""
INSTRUCTIONS = " ".join(f"Rule {i}: be brief, be kind, and never say the number {i}." for i in range(6))
DEBUG = {"x-gateway-debug": "1"}


@pytest.fixture(scope="module")
def fleet():
    """Yield the servers by name, each with its own exit stack, and a client of the gateway."""
    with ExitStack() as stack:
        servers = {name: stack.enter_context(ExitStack()) for name in ("b0", "b1")}
        urls = [one.enter_context(demo.start_demo("--threads", "1", out=io.StringIO())) for one in servers.values()]
        url = stack.enter_context(served(parse(CONFIG.format(*urls), "real.yaml", {}, format_names())))
        yield servers, stack.enter_context(OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0))


def ask(client, key, question, **fields):
    """Return the backend that answered, its text, and the number of cached prompt tokens."""
    messages = [{"role": "system", "content": f"For {key}. {INSTRUCTIONS}"}, {"role": "user", "content": question}]
    raw = client.chat.completions.with_raw_response.create(
        model="m", messages=messages, max_tokens=8, prompt_cache_key=key, extra_headers=DEBUG, **fields
    )
    answer = raw.parse()
    cached = answer.usage.prompt_tokens_details.cached_tokens
    return raw.headers["x-gateway-backend"], answer.choices[0].message.content, cached


def test_sticky_key_hits_its_prompt_cache_and_survives_a_failure(fleet):
    servers, client = fleet
    places = {}
    for key in ("a", "b", "c", "d"):
        place, _, _ = ask(client, key, "What is your name?")
        again, _, cached = ask(client, key, "And how are you?")
        assert again == place and cached > 60
        places.setdefault(place, []).append(key)
    assert places.keys() == {"b0", "b1"}
    servers["b0"].close()
    for key in places["b0"]:
        place, words, _ = ask(client, key, "Are you still there?")
        assert place == "b1" and words
        place, _, cached = ask(client, key, "And now?")
        assert place == "b1" and cached > 60
    chunks = [
        *client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Count!"}], max_tokens=8, stream=True
        )
    ]
    assert chunks[-1].choices[0].finish_reason in ("length", "stop")
