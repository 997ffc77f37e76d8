"""Test several vectors for each input with a real llama.cpp that runs a small model without pooling."""

import io

import httpx
import pytest
from openai import OpenAI

from gateway import demo
from gateway.config import parse
from gateway.formats import format_names
from support.app import problem
from support.threaded_gateway import served

CONFIG = """
backends: {{local: {{kind: llamacpp, url: "{url}"}}}}
models: {{m: {{upstream_model: smollm2}}}}
"""
TEXTS = ["Oslo is a city.", {"prompt_string": "Rome"}, [1, 2, 3]]


@pytest.fixture(scope="module")
def upstream():
    """Yield the URL of a llama.cpp without pooling."""
    with demo.start_demo("--threads", "1", "--embeddings", "--pooling", "none", out=io.StringIO()) as server:
        yield server


@pytest.fixture(scope="module")
def url(upstream):
    """Yield the URL of a gateway in front of it."""
    with served(parse(CONFIG.format(url=upstream), "real.yaml", {}, format_names())) as url:
        yield url


def numbers(entries):
    """Return the numbers of all vectors of all entries."""
    return [number for one in entries for vector in one["embedding"] for number in vector]


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_vectors_of_all_tokens_are_those_of_the_server(upstream, url, encoding):
    request = {"model": "m", "input": TEXTS, "dimensions": 8, "encoding_format": encoding}
    with httpx.Client(timeout=60) as client:
        direct = client.post(f"{upstream}/embeddings", json={**request, "model": "smollm2"}).json()
        answer = client.post(f"{url}/v1/embeddings", json=request)
        again = client.post(f"{url}/embeddings", json=request)
    made = answer.json()["data"]
    assert numbers(made) == pytest.approx(numbers(direct), abs=1e-4)
    assert [len(one["embedding"]) for one in made] == [6, 1, 3]
    assert {len(vector) for one in made for vector in one["embedding"]} == {576}
    assert [one["index"] for one in again.json()["data"]] == [0, 1, 2]
    warnings = "unenforced:dimensions, estimated:usage"
    more = "unenforced:dimensions, unenforced:encoding_format, estimated:usage"
    assert answer.headers["x-gateway-warnings"] == (warnings if encoding == "float" else more)


def test_sdk_gets_the_vectors_of_all_tokens(url):
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        made = client.embeddings.create(model="m", input=["Oslo is a city.", "Rome"])
    assert [len(one.embedding) for one in made.data] == [6, 1]
    assert all(isinstance(number, float) for one in made.data for vector in one.embedding for number in vector)


def test_image_for_a_model_of_text_is_the_fault_of_the_client(url):
    given = {"prompt_string": "<__media__>", "multimodal_data": ["iVBORw0KGgo="]}
    answer = httpx.post(f"{url}/v1/embeddings", json={"model": "m", "input": given}, timeout=60)
    assert problem(answer)[:2] == (400, "invalid_request_error") and "does not support multimodal" in answer.text
    messages = [{"role": "user", "content": "Hi"}]
    answer = httpx.post(f"{url}/v1/embeddings", json={"model": "m", "messages": messages}, timeout=60)
    assert problem(answer)[2:] == ("unsupported_value", "messages")
