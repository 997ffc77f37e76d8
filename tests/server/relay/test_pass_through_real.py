"""Test the endpoints of llama.cpp that are passed on, and the services, with a real server and a small model."""

import io
from contextlib import ExitStack
from math import sqrt

import httpx
import pytest
from openai import OpenAI

from gateway import demo
from gateway.config import parse
from gateway.formats import format_names
from support.app import problem
from support.threaded_gateway import served

CONFIG = """
backends:
  up: {{kind: llamacpp, url: "{0}"}}
models:
  m: {{backends: [up], upstream_model: smollm2}}
"""


@pytest.fixture(scope="module")
def url():
    """Yield the URL of a gateway in front of the demo's server with embeddings."""
    with ExitStack() as stack:
        server = stack.enter_context(demo.start_demo("--threads", "1", "--embeddings", out=io.StringIO()))
        yield stack.enter_context(served(parse(CONFIG.format(server), "real.yaml", {}, format_names())))


def test_slots_and_properties_of_llamacpp(url):
    slots = httpx.get(f"{url}/slots?model=m").json()
    assert len(slots) == 4 and {"id", "n_ctx"} <= slots[0].keys()
    properties = httpx.get(f"{url}/props", params={"model": "m"}).json()
    assert properties["total_slots"] == 4 and "chat_template" in properties


def test_infill_of_llamacpp_reports_that_the_model_cannot(url):
    answer = httpx.post(f"{url}/infill", json={"model": "m", "input_prefix": "def f(", "input_suffix": "): pass"})
    assert problem(answer) == (400, "invalid_request_error", "unsupported_value", None)
    assert "Infill is not supported by this model" in answer.text


def test_tokens_of_llamacpp_lead_back_to_their_text(url):
    tokens = httpx.post(f"{url}/tokenize", json={"model": "m", "prompt": "Hello, world"}).json()["tokens"]
    answer = httpx.post(f"{url}/detokenize", json={"model": "m", "tokens": tokens})
    assert tokens and answer.json()["prompt"] == "Hello, world"


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings_of_llamacpp_are_unit_vectors(url, encoding):
    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    made = client.embeddings.create(model="m", input=["Oslo", "Norway"], dimensions=64, encoding_format=encoding)
    assert [one.index for one in made.data] == [0, 1]
    if encoding == "float":
        assert [len(one.embedding) for one in made.data] == [64, 64]
        assert [sqrt(sum(x * x for x in one.embedding)) for one in made.data] == pytest.approx([1, 1], abs=1e-3)
    assert made.usage.prompt_tokens > 1


def test_rerank_of_llamacpp_needs_a_model_for_it(url):
    answer = httpx.post(f"{url}/v1/rerank", json={"model": "m", "query": "Norway", "documents": ["Oslo", "Paris"]})
    assert problem(answer) == (400, "invalid_request_error", "unsupported_value", None)
    assert "does not support reranking" in answer.text
