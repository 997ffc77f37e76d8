"""Test completions, embeddings and tokens with the openai SDK and a llama.cpp server that runs a small model."""

import io
import math

import httpx
import pytest
from openai import BadRequestError, OpenAI

from gateway import demo
from gateway.config import parse
from gateway.formats import format_names
from support.threaded_gateway import served

PROMPT = "The capital of France is"
CONFIG = """
backends: {{local: {{kind: llamacpp, url: "{url}"}}}}
models: {{m: {{upstream_model: smollm2}}}}
"""


@pytest.fixture(scope="module")
def url():
    with (
        demo.start_demo("--threads", "1", "--embeddings", out=io.StringIO()) as server,
        served(parse(CONFIG.format(url=server), "real.yaml", {}, format_names())) as url,
    ):
        yield url


@pytest.fixture
def client(url):
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def dot(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_completion_is_the_same_streamed_and_whole(client):
    request = {"model": "m", "prompt": PROMPT, "max_tokens": 3, "temperature": 0}
    whole = client.completions.create(**request)
    (choice,) = whole.choices
    assert choice.text.startswith(" Paris") and choice.finish_reason == "length"
    assert (whole.model, whole.usage.prompt_tokens, whole.usage.completion_tokens) == ("m", 5, 3)
    chunks = [*client.completions.create(**request, stream=True, stream_options={"include_usage": True})]
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == choice.text
    assert chunks[-2].choices[0].finish_reason == "length" and chunks[-1].usage.completion_tokens == 3
    assert {chunk.id for chunk in chunks} == {chunks[0].id} and chunks[0].id.startswith("cmpl-")


def test_completion_has_the_default_token_limit_of_the_api(client):
    assert client.completions.create(model="m", prompt=PROMPT, temperature=0).usage.completion_tokens <= 16


def test_completion_of_several_prompts_has_a_choice_each(client):
    request = {"model": "m", "prompt": ["One two", "Three four"], "max_tokens": 3, "temperature": 0}
    whole = [choice.text for choice in client.completions.create(**request).choices]
    streamed = {0: "", 1: ""}
    for chunk in client.completions.create(**request, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert [*streamed.values()] == whole and all(whole)


def test_completion_has_logprobs_and_echo(client):
    request = {"model": "m", "prompt": PROMPT, "max_tokens": 2, "temperature": 0}
    chances = client.completions.create(**request, logprobs=2).choices[0].logprobs
    assert chances.tokens[0] == " Paris" and chances.text_offset == [0, 6]
    assert [len(top) for top in chances.top_logprobs] == [2, 2] and max(chances.token_logprobs) < 0
    assert client.completions.create(**request, echo=True).choices[0].text.startswith(PROMPT + " Paris")


def test_prompt_too_long_is_refused(client):
    for streamed in (False, True):
        with pytest.raises(BadRequestError) as refusal:
            client.completions.create(model="m", prompt="a b " * 6000, stream=streamed)
        assert (refusal.value.code, refusal.value.param) == ("context_length_exceeded", "prompt")


def test_embedding_is_the_same_in_both_encodings(client):
    texts = ["Oslo is a city.", "Rome is a city.", "x = y + 1"]
    packed = client.embeddings.create(model="m", input=texts)
    plain = client.embeddings.create(model="m", input=texts, encoding_format="float")
    for one, other in zip(packed.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
    first, second, third = [one.embedding for one in plain.data]
    assert dot(first, second) > dot(first, third)
    assert packed.model == "m" and packed.usage.prompt_tokens > 10
    short = client.embeddings.create(model="m", input=texts[0], dimensions=8).data[0].embedding
    assert len(short) == 8 and math.hypot(*short) == pytest.approx(1, abs=1e-3)


def test_embedding_of_an_object_is_that_of_its_text(client):
    one, other = [
        client.embeddings.create(model="m", input=given, encoding_format="float").data[0].embedding
        for given in ("Oslo is a city.", {"prompt_string": "Oslo is a city."})
    ]
    assert one == pytest.approx(other, abs=1e-5) and len(one) == 576


def test_tokenize_round_trip_and_the_context_length_of_the_model(url):
    with httpx.Client(base_url=url, timeout=60) as client:
        tokens = client.post("/v1/tokenize", json={"model": "m", "prompt": PROMPT}).json()
        assert tokens["count"] == len(tokens["tokens"]) == 5
        back = client.post("/v1/detokenize", json={"model": "m", "tokens": tokens["tokens"]}).json()
        assert back == {"prompt": PROMPT}
        ranks = client.post("/v1/rerank", json={"model": "m", "query": "x", "documents": ["y"]})
        assert ranks.status_code == 400 and "--reranking" in ranks.text
        assert client.get("/v1/models/m").json()["context_length"] == 4096
