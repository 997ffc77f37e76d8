"""Test several vectors for each input: they pass as they came, in each shape that servers have for them."""

import json

import openai
import pytest

from support.app import gateway, problem
from support.backends import circuit_state, fleet
from support.embedding_servers import MARKER, LlamaCppEmbeddings, VllmEmbeddings, embedding_site, packed
from support.upstream import whole
from support.wait import DEADLINE

TOKENS = [[[0.5, -0.25], [1.0, 2.0], [0.125, 3.0]], [[4.0, 5.0]]]
PACKED = [[packed(vector) for vector in one] for one in TOKENS]
USAGE = {"prompt_tokens": 3, "total_tokens": 3}


def answer_of(*vectors, name="embedding"):
    return whole({"data": [{"index": i, name: one} for i, one in enumerate(vectors)], "usage": USAGE})


async def embed(site, **fields):
    return await site.client.post("/v1/embeddings", json={"model": "m", "input": ["Hi", "you"], **fields})


def vectors(answer):
    return [entry["embedding"] for entry in answer.json()["data"]]


@pytest.mark.parametrize("theirs", [TOKENS, PACKED])
async def test_several_vectors_of_an_input_pass_as_they_came(theirs):
    async with gateway(answer_of(*theirs)) as site:
        answer = await embed(site, encoding_format="base64" if theirs is PACKED else "float")
    assert answer.json()["data"] == [{"object": "embedding", "index": i, "embedding": theirs[i]} for i in range(2)]
    assert answer.json()["usage"] == USAGE and "x-gateway-warnings" not in answer.headers


async def test_numbers_of_several_vectors_keep_their_digits():
    text = b'{"data": [{"embedding": [[0.1234567890123456789, 1e-45], [3]]}]}'
    async with gateway(whole(text)) as site:
        assert b"[[0.1234567890123456789, 1e-45], [3]]" in (await embed(site, input="Hi")).content


@pytest.mark.parametrize(("theirs", "wanted"), [(TOKENS, "base64"), (PACKED, "float"), (PACKED, None)])
async def test_several_vectors_in_another_encoding_are_reported(theirs, wanted):
    async with gateway(answer_of(*theirs)) as site:
        answer = await embed(site, encoding_format=wanted)
    assert vectors(answer) == theirs
    assert answer.headers["x-gateway-warnings"] == "unenforced:encoding_format"


@pytest.mark.parametrize("theirs", [TOKENS, PACKED])
async def test_several_vectors_are_not_shortened(theirs):
    encoding = "base64" if theirs is PACKED else "float"
    async with gateway(answer_of(*theirs)) as site:
        short, exact = [await embed(site, dimensions=size, encoding_format=encoding) for size in (1, 2)]
    assert vectors(short) == vectors(exact) == theirs
    assert short.headers["x-gateway-warnings"] == "unenforced:dimensions"
    assert "x-gateway-warnings" not in exact.headers


async def test_several_vectors_are_in_the_order_of_their_inputs():
    data = [{"index": 1, "embedding": TOKENS[1]}, {"index": 0, "embedding": TOKENS[0]}]
    async with gateway(whole({"data": data, "usage": USAGE})) as site:
        assert vectors(await embed(site)) == TOKENS


async def test_several_vectors_stay_beside_single_ones():
    async with gateway(answer_of(TOKENS[0], [0.5, 0.5])) as site:
        assert vectors(await embed(site)) == [TOKENS[0], [0.5, 0.5]]


async def test_several_vectors_of_jina_keep_their_name():
    async with gateway(answer_of(*TOKENS, name="embeddings")) as site:
        answer = await embed(site, return_multivector=True)
        assert site.upstream_body["return_multivector"] is True
    assert [entry["embeddings"] for entry in answer.json()["data"]] == TOKENS
    assert not any("embedding" in entry for entry in answer.json()["data"])
    assert answer.headers["x-gateway-warnings"] == "forwarded:return_multivector"


@pytest.mark.parametrize(
    ("field", "value", "vector"),
    [
        ("embedding_type", "binary", [-3, 7, 100]),
        ("embedding_type", "ubinary", "AAECAw=="),
        ("embedding_type", ["float", "binary"], {"float": [0.5], "binary": [1]}),
        ("output_dtype", "int8", [1, 2, 3]),
        ("embed_dtype", "float16", "AAA="),
        ("endianness", "big", "PwAAAD8AAAA="),
    ],
)
async def test_vectors_in_a_form_of_the_server_pass_as_they_came(field, value, vector):
    async with gateway(answer_of(vector, vector)) as site:
        for more in ({}, {"dimensions": 2}, {"encoding_format": "base64"}):
            answer = await embed(site, **{field: value}, **more)
            assert vectors(answer) == [vector, vector]
    async with gateway(answer_of(None)) as site:
        assert problem(await embed(site, input="Hi", **{field: value}))[0] == 502


async def test_large_responses_of_several_vectors_pass():
    many = [[[i + k / 1024 for k in range(128)] for i in range(300)] for _ in range(4)]
    async with gateway(answer_of(*many)) as site:
        assert vectors(await embed(site, input=["a"] * 4)) == many


# llama.cpp without pooling


@pytest.mark.parametrize("encoding", ["float", None])
async def test_llamacpp_without_pooling_has_a_vector_for_each_token(encoding):
    given = ["Hi", {"prompt_string": f"you{MARKER}", "multimodal_data": ["iVBORw0KGgo="]}]
    async with embedding_site(LlamaCppEmbeddings("none"), "llamacpp") as site:
        answer = await embed(site, input=given, encoding_format=encoding)
        assert site.server.paths == ["/v1/embeddings", "/embeddings"]
        assert site.server.bodies[0] == site.server.bodies[1]
    assert vectors(answer) == [[[2.0, 0.0]] * 2, [[3.0, 1.0]] * 3]
    assert answer.json()["usage"]["prompt_tokens"] == 4  # an estimate, from the marker as well
    assert answer.headers["x-gateway-warnings"] == "estimated:usage"


async def test_sdk_gets_a_vector_for_each_token():
    async with embedding_site(LlamaCppEmbeddings("none"), "llamacpp") as site:
        url = f"{site.client.base_url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=DEADLINE, max_retries=0) as client:
            made = await client.embeddings.create(model="m", input=["Hi", "you"])
            extra = {"return_multivector": True}
            wanted = await client.embeddings.create(model="m", input="Hi", encoding_format="float", extra_body=extra)
    assert [one.embedding for one in made.data] == [[[2.0, 0.0]] * 2, [[3.0, 0.0]] * 3]
    assert wanted.data[0].embedding == [[2.0, 0.0]] * 2


async def test_refusal_without_a_redirect_is_told():
    async with embedding_site(LlamaCppEmbeddings("none"), "vllm") as site:
        answer = await embed(site)
        assert problem(answer)[0] == 400 and "Pooling type 'none'" in answer.text
        assert site.server.paths == ["/v1/embeddings"]


async def test_redirect_is_no_failure_of_the_backend():
    refusal = whole({"error": {"code": 400, "message": LlamaCppEmbeddings.refusal}}, status=400)
    tokens = whole([{"index": 0, "embedding": TOKENS[0]}])
    async with fleet([refusal, tokens], [tokens], backends=[{"kind": "llamacpp"}] * 2) as site:
        assert vectors(await embed(site, input="Hi")) == [TOKENS[0]]
        assert site.posts() == [2, 0] and circuit_state(site) == "closed"
        assert [post.path for post in site.upstreams["b0"].posts] == ["/v1/embeddings", "/embeddings"]


async def test_failure_behind_a_redirect_is_retried_elsewhere():
    refusal = whole({"error": {"code": 400, "message": LlamaCppEmbeddings.refusal}}, status=400)
    tokens = whole([{"index": 0, "embedding": TOKENS[0]}])
    async with fleet([refusal, whole("no", 503)], [tokens], backends=[{"kind": "llamacpp"}] * 2) as site:
        assert vectors(await embed(site, input="Hi")) == [TOKENS[0]]
        assert site.posts() == [2, 1]


# vLLM's /pooling, which is passed on


@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize(
    "given", [{"input": ["Hi", "you"]}, {"messages": [{"role": "query", "content": [{"type": "text", "text": "Hi"}]}]}]
)
async def test_pooling_of_tokens_passes_as_it_came(encoding, given):
    body = {"model": "m", "task": "token_embed", "encoding_format": encoding, **given}
    async with embedding_site(VllmEmbeddings(), "vllm") as site:
        answer = await site.client.post("/v1/pooling", json=body)
        assert site.server.bodies == [body] and site.server.paths == ["/pooling"]
        direct = site.server.embed("/pooling", body)
    assert json.loads(answer.content) == direct
    first = direct["data"][0]["data"]
    assert first == ([[2, 0], [2, 0]] if encoding == "float" else packed([2, 0, 2, 0]))
