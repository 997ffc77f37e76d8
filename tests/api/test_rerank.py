"""Test /v1/rerank: the documents with the best scores first, in one shape for all kinds of backends."""

import pytest

from support.app import gateway, problem
from support.upstream import whole

BAD, LOST = "invalid_request_error", (502, "server_error", "upstream_error", None)
COUNTS = {"prompt_tokens": 9, "total_tokens": 9}
DOCUMENTS = ["Bananas are yellow.", "Oslo is the capital.", "Norway is cold."]
RESULTS = [
    {"index": 0, "relevance_score": -3.5},
    {"index": 2, "relevance_score": 0},
    {"index": 1, "relevance_score": 0.9},
]


async def rank(site, *, headers=None, **fields):
    body = {"model": "m", "query": "Norway", "documents": DOCUMENTS, **fields}
    return await site.client.post("/v1/rerank", json=body, headers=headers)


def order(answer):
    return [(one["index"], one["relevance_score"]) for one in answer.json()["results"]]


@pytest.mark.parametrize("kind", ["openai", "vllm", "llamacpp", "sglang"])
async def test_rerank_results_are_sorted_by_score(kind):
    async with gateway(whole({"results": RESULTS, "usage": COUNTS, "id": "x"}), backend={"kind": kind}) as site:
        answer = await rank(site)
        (post,) = site.upstream.posts
        assert (post.path, post.json) == ("/v1/rerank", {"model": "m", "query": "Norway", "documents": DOCUMENTS})
    assert answer.json() == {
        "object": "list",
        "model": "m",
        "results": [{"index": i, "relevance_score": score} for i, score in ((1, 0.9), (2, 0), (0, -3.5))],
        "usage": COUNTS,
    }
    assert "x-gateway-warnings" not in answer.headers


@pytest.mark.parametrize(
    "body",
    [
        {"data": [{"index": one["index"], "score": one["relevance_score"]} for one in RESULTS]},
        [{"index": one["index"], "score": one["relevance_score"], "document": "x"} for one in RESULTS],
    ],
)
async def test_rerank_response_in_another_shape_is_read(body):
    async with gateway(whole(body)) as site:
        answer = await rank(site)
    assert order(answer) == [(1, 0.9), (2, 0), (0, -3.5)]
    assert answer.headers["x-gateway-warnings"] == "estimated:usage" and answer.json()["usage"]["total_tokens"] == 18


async def test_rerank_returns_top_n_with_their_documents():
    documents = [{"text": DOCUMENTS[0]}, DOCUMENTS[1], {"text": DOCUMENTS[2], "title": "N"}]
    async with gateway(whole({"results": RESULTS, "usage": COUNTS})) as site:
        answer = await rank(site, documents=documents, top_n=2, return_documents=True)
        assert site.upstream_body["documents"] == [DOCUMENTS[0], DOCUMENTS[1], documents[2]]
        assert site.upstream_body["top_n"] == 2 and "return_documents" not in site.upstream_body
    assert [one["document"] for one in answer.json()["results"]] == [{"text": DOCUMENTS[1]}, documents[2]]
    assert answer.headers["x-gateway-warnings"] == "translated:documents"


async def test_rerank_field_unknown_to_the_api_is_forwarded_with_a_warning():
    async with gateway(whole({"results": RESULTS, "usage": COUNTS})) as site:
        answer = await rank(site, max_tokens_per_doc=5)
        assert site.upstream_body["max_tokens_per_doc"] == 5
        strict = await rank(site, max_tokens_per_doc=5, headers={"x-gateway-strict": "1"})
    assert answer.headers["x-gateway-warnings"] == "forwarded:max_tokens_per_doc"
    assert problem(strict) == (400, BAD, "unknown_parameter", "max_tokens_per_doc")


@pytest.mark.parametrize(
    "body",
    [
        {"results": [{"index": 3, "relevance_score": 1}]},
        {"results": [{"index": "0", "relevance_score": 1}]},
        {"results": [{"index": 0}]},
        {"results": [{"index": 0, "relevance_score": None}]},
        {"results": [{"index": 0, "relevance_score": True}]},
        {"results": [1]},
        {"ranks": []},
        7,
    ],
)
async def test_rerank_response_that_is_malformed_is_a_502(body):
    async with gateway(whole(body)) as site:
        assert problem(await rank(site)) == LOST


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"query": None}, "missing_required_parameter", "query"),
        ({"documents": []}, "empty_array", "documents"),
        ({"documents": [1]}, "invalid_type", "documents[0]"),
        ({"top_n": 0}, "integer_below_min_value", "top_n"),
        ({"return_documents": 1}, "invalid_type", "return_documents"),
    ],
)
async def test_rerank_request_that_is_invalid_is_refused(fields, code, param):
    async with gateway(whole({"results": []})) as site:
        assert problem(await rank(site, **fields)) == (400, BAD, code, param)


@pytest.mark.parametrize("kind", ["ollama", "lmstudio", "transformers"])
async def test_kind_without_rerank_is_an_error(kind):
    async with gateway(whole({"results": []}), backend={"kind": kind}) as site:
        assert problem(await rank(site)) == (400, BAD, "unsupported_value", "model")
        assert site.upstream.posts == []


async def test_rerank_of_a_backend_not_started_for_it_is_an_error():
    refusal = {"error": {"code": 501, "message": "Start it with `--reranking`", "type": "not_supported_error"}}
    async with gateway(whole(refusal, status=501), backend={"kind": "llamacpp"}) as site:
        answer = await rank(site)
    assert problem(answer) == (400, BAD, "unsupported_value", None) and "--reranking" in answer.text


async def rank_texts(site, **fields):
    body = {"model": "m", "query": "Norway", "texts": DOCUMENTS, **fields}
    return await site.client.post("/rerank", json=body)


async def test_rerank_in_the_shape_of_tei_gets_its_response():
    async with gateway(whole({"results": RESULTS, "usage": COUNTS})) as site:
        answer = await rank_texts(site, raw_scores=True)
        with_texts = await rank_texts(site, return_text=True, texts=[*DOCUMENTS[:2], {"text": DOCUMENTS[2]}])
        first, second = (post.json for post in site.upstream.posts)
    assert answer.json() == [{"index": i, "score": score} for i, score in ((1, 0.9), (2, 0), (0, -3.5))]
    assert [one["text"] for one in with_texts.json()] == [DOCUMENTS[1], {"text": DOCUMENTS[2]}, DOCUMENTS[0]]
    assert first == {"model": "m", "query": "Norway", "documents": DOCUMENTS, "raw_scores": True}
    assert second["documents"] == DOCUMENTS and "return_text" not in second
    assert answer.headers["x-gateway-warnings"] == "forwarded:raw_scores"
    assert with_texts.headers["x-gateway-warnings"] == "translated:texts"


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"texts": []}, "empty_array", "texts"),
        ({"texts": [1]}, "invalid_type", "texts[0]"),
        ({"return_text": 1}, "invalid_type", "return_text"),
        ({"documents": []}, "empty_array", "documents"),
    ],
)
async def test_rerank_request_in_the_shape_of_tei_that_is_invalid_is_refused(fields, code, param):
    async with gateway(whole({"results": []})) as site:
        assert problem(await rank_texts(site, **fields)) == (400, BAD, code, param)


async def test_rerank_problem_of_the_backend_names_the_texts_of_tei():
    refusal = {"error": {"message": "too long", "code": "context_length_exceeded", "param": "messages"}}
    async with gateway(whole(refusal, status=400)) as site:
        assert problem(await rank_texts(site))[3] == "texts"
        assert problem(await rank(site))[3] == "documents"


async def test_large_result_is_whole():
    padded = {"results": RESULTS, "usage": COUNTS, "padding": "a" * (1 << 20)}
    async with gateway(whole(padded)) as site:
        answer = await rank(site)
    assert order(answer) == [(1, 0.9), (2, 0), (0, -3.5)]
    assert answer.headers["content-length"] == str(len(answer.content))
