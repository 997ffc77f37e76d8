"""Test /v1/embeddings: vectors in the requested encoding, whatever the backend sends.

https://platform.openai.com/docs/api-reference/embeddings
"""

import asyncio
import base64
import json
import struct

import openai
import pytest

from gateway.server.routes import model_services
from support.app import bearer, gateway, listening, problem
from support.upstream import CLOSE, END, HANG, KEY, head, whole
from support.wait import DEADLINE, until

BAD, LOST = "invalid_request_error", (502, "server_error", "upstream_error", None)
COUNTS = {"prompt_tokens": 3, "total_tokens": 3}
VECTORS = ([0.5, -0.25, 2.0], [1, 0, -1.5])


def packed(numbers):
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def embeddings_of(*vectors, **more):
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    return whole({"object": "list", "data": data, "model": "theirs", "usage": COUNTS, **more})


async def embed(site, *, headers=None, **fields):
    return await site.client.post("/v1/embeddings", json={"model": "m", "input": "Hi", **fields}, headers=headers)


def vectors(answer):
    return [entry["embedding"] for entry in answer.json()["data"]]


@pytest.mark.parametrize("kind", ["openai", "vllm", "llamacpp", "ollama", "lmstudio", "sglang"])
async def test_embedding_response_has_the_shape_of_the_api(kind):
    async with gateway(embeddings_of(*VECTORS), backend={"kind": kind}, model={"upstream_model": "bge"}) as site:
        answer = await embed(site, input=["Hi", "you"], user="me")
        (post,) = site.upstream.posts
        assert post.path == "/v1/embeddings" and post.headers["authorization"] == f"Bearer {KEY}"
        user = {"user": "me"} if kind == "openai" else {}
        assert post.json == {"model": "bge", "input": ["Hi", "you"], **user}
    assert answer.json() == {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": [*map(float, VECTORS[i])]} for i in range(2)],
        "model": "m",
        "usage": COUNTS,
    }
    assert "x-gateway-warnings" not in answer.headers


@pytest.mark.parametrize("theirs", ["float", "base64"])
@pytest.mark.parametrize("wanted", ["float", "base64", None])
async def test_embedding_has_the_requested_encoding(theirs, wanted):
    script = embeddings_of(*([packed(vector) for vector in VECTORS] if theirs == "base64" else VECTORS))
    async with gateway(script) as site:
        answer = await embed(site, input=["a", "b"], encoding_format=wanted)
        assert site.upstream_body.get("encoding_format") == wanted
    shown = [packed(vector) for vector in VECTORS] if wanted == "base64" else [*map(list, VECTORS)]
    assert vectors(answer) == shown


@pytest.mark.parametrize("theirs", ["float", "base64"])
@pytest.mark.parametrize("wanted", ["float", "base64"])
async def test_embedding_dimensions_are_emulated_if_the_backend_ignores_them(theirs, wanted):
    vector = [3.0, 4.0, 100.0]
    async with gateway(embeddings_of(packed(vector) if theirs == "base64" else vector)) as site:
        answer = await embed(site, dimensions=2, encoding_format=wanted)
        assert site.upstream_body["dimensions"] == 2
        longer = await embed(site, dimensions=4)
        exact = await embed(site, dimensions=3, encoding_format=wanted)
    cut = [3 / 5, 4 / 5]
    assert vectors(answer) == ([packed(cut)] if wanted == "base64" else [cut])
    assert answer.headers["x-gateway-warnings"] == "emulated:dimensions"
    assert vectors(longer) == [vector] and longer.headers["x-gateway-warnings"] == "unenforced:dimensions"
    assert vectors(exact) == ([packed(vector)] if wanted == "base64" else [vector])
    assert "x-gateway-warnings" not in exact.headers


@pytest.mark.parametrize("wanted", ["float", "base64"])
async def test_embedding_numbers_are_kept_exactly(wanted):
    many = [[i + k / 1024 for k in range(1024)] for i in range(200)]
    async with gateway(embeddings_of(*many)) as site:
        answer = await embed(site, input=["a"] * 200, encoding_format=wanted)
    assert vectors(answer) == (many if wanted == "float" else [packed(vector) for vector in many])


@pytest.mark.parametrize("vector", [b"[ 1.50, -2e0 ,\n0.1000]", b"[]", b"[ ]"])
@pytest.mark.parametrize("dimensions", [None, 3])
async def test_embedding_passes_unchanged_if_nothing_has_to_change(vector, dimensions):
    body = b'{"data":[{"embedding":%b}],"usage":{"total_tokens":1}}' % vector
    async with gateway(whole(body)) as site:
        answer = await embed(site, dimensions=dimensions)
    shown = vector if dimensions is None or dimensions == len(json.loads(vector)) else b"[]"
    assert b'"embedding":%b}' % shown in answer.content


async def test_embedding_of_zeros_can_be_shortened():
    async with gateway(embeddings_of([0.0, 0.0])) as site:
        assert vectors(await embed(site, dimensions=1)) == [[0.0]]


async def test_embeddings_are_in_the_order_of_their_inputs():
    data = [{"index": 1, "embedding": [1.0]}, {"index": 0, "embedding": [0.0]}]
    async with gateway(whole({"data": data})) as site:
        answer = await embed(site, input=["a" * 4, [1, 2]])
    assert vectors(answer) == [[0.0], [1.0]]
    assert answer.json()["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert answer.headers["x-gateway-warnings"] == "estimated:usage"


async def test_embeddings_without_an_index_keep_their_order():
    async with gateway(
        whole({"data": [{"embedding": [0.0]}, {"embedding": [1.0]}], "usage": {"total_tokens": 2}})
    ) as site:
        answer = await embed(site, input=["a", "b"], truncate="END")
        assert site.upstream_body["truncate"] == "END"
    assert vectors(answer) == [[0.0], [1.0]] and answer.json()["usage"]["prompt_tokens"] == 2
    assert answer.headers["x-gateway-warnings"] == "forwarded:truncate"


@pytest.mark.parametrize(
    "body",
    [
        {"object": "list"},
        {"data": ["x"]},
        {"data": []},
        {"data": [{"index": 0, "embedding": [0.0]}, {"index": 0, "embedding": [0.0]}]},
        {"data": [{"index": 7, "embedding": [0.0]}]},
        {"data": [{"embedding": None}]},
        {"data": [{"embedding": [None]}]},
        {"data": [{"embedding": [0.5, True]}]},
        {"data": [{"embedding": [False]}]},
        {"data": [{"embedding": [0.5, {}]}]},
        {"data": [{"embedding": ["0.5"]}]},
        {"data": [{"embedding": {"0": 0.5}}]},
        {"data": [{"embedding": [[0.0], [None]]}]},
        {"data": [{"embedding": [[0.0], 1.0]}]},
        {"data": [{"embedding": [[[0.0]]]}]},
        {"data": [{"embedding": ["no base64"]}]},
        {"data": [{"embedding": ["QUJD"]}]},
        {"data": [{"embedding": {"float": [0.0]}}]},
        {"data": [{"embeddings": None}]},
        {"data": [{"embedding": "no base64"}]},
        {"data": [{"embedding": "QUJD"}]},
        {"data": [{"embedding": [1e300]}]},
        "text",
        b"<html>",
        {"error": "it broke"},
    ],
)
async def test_embedding_response_that_is_malformed_is_a_502(body):
    async with gateway(whole(body)) as site:
        answer = await embed(
            site, encoding_format="base64" if "1e300" in str(body) or "1e+300" in str(body) else "float"
        )
    assert problem(answer) == LOST


@pytest.mark.parametrize(
    ("script", "known"),
    [
        (whole({"error": {"message": "This server does not support embeddings"}}, status=501), (400, BAD, "unsupported_value", None)),
        (whole({"error": {"message": 'model "m" not found, try pulling it'}}, status=404), (404, BAD, "model_not_found", "model")),
        (whole({"detail": "Not Found"}, status=404), (400, BAD, "unsupported_value", "model")),
        (whole({"detail": "no"}, status=401), (502, "server_error", "upstream_auth_error", None)),
        (whole({"error": {"message": "input is too long"}}, status=400), (400, BAD, "context_length_exceeded", "input")),
        (whole({"error": {"code": 400, "message": "input is too long"}}), (400, BAD, "context_length_exceeded", "input")),
        ([head(type="application/json"), b"{", CLOSE], (502, "server_error", "upstream_lost", None)),
        ([CLOSE], (502, "server_error", "upstream_lost", None)),
    ],
)  # fmt: skip
async def test_backend_error_becomes_an_error_of_the_api(script, known):
    async with gateway(script) as site:
        assert problem(await embed(site)) == known


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": None}, "missing_required_parameter", "input"),
        ({"input": ""}, "empty_string", "input"),
        ({"input": ["a", ""]}, "empty_string", "input[1]"),
        ({"input": []}, "empty_array", "input"),
        ({"input": [[1, -1]]}, "integer_below_min_value", "input[0][1]"),
        ({"input": 7}, "invalid_type", "input"),
        ({"input": ["a"] * 2049}, "array_above_max_length", "input"),
        ({"dimensions": 0}, "integer_below_min_value", "dimensions"),
        ({"encoding_format": "hex"}, "invalid_value", "encoding_format"),
        ({"model": None}, "missing_required_parameter", "model"),
    ],
)
async def test_request_not_allowed_by_the_api_is_refused(fields, code, param):
    async with gateway(embeddings_of([0.0])) as site:
        assert problem(await embed(site, **fields)) == (400, BAD, code, param)
        assert site.upstream.posts == []


async def test_kind_without_embeddings_is_an_error():
    async with gateway(embeddings_of([0.0]), backend={"kind": "transformers"}) as site:
        assert problem(await embed(site)) == (400, BAD, "unsupported_value", "model")


async def test_embedding_request_obeys_keys_strict_mode_debug_and_body_limit():
    keys = {"keys": [{"name": "one", "key": "k1"}, {"name": "other", "key": "k2", "models": ["z"]}]}
    async with gateway(embeddings_of([0.0]), auth=keys) as site:
        mine = bearer("k1")
        assert problem(await embed(site))[0] == 401
        assert problem(await embed(site, headers=bearer("k2")))[2] == "model_not_allowed"
        assert problem(await embed(site, odd=1, headers={**mine, "x-gateway-strict": "1"}))[2] == "unknown_parameter"
        assert problem(await embed(site, model="none", headers=mine))[2] == "model_not_found"
        answer = await embed(site, headers={**mine, "x-gateway-debug": "1"})
    assert answer.headers["x-gateway-backend"] == "up"
    async with gateway(embeddings_of([0.0]), limits={"body_bytes": 20}) as site:
        assert problem(await embed(site))[2] == "request_too_large"


async def test_client_disconnect_ends_the_upstream_call():
    script = [head(type="application/json"), b"{", HANG]
    async with listening(script) as site:
        request = asyncio.create_task(embed(site))
        await until(lambda: site.upstream.sent, sum(map(len, script[:-1])))
        request.cancel()
        await until(site.upstream.gone.is_set)


async def test_client_disconnect_message_ends_the_upstream_call():
    """The connection stays open; the ASGI server sends http.disconnect."""
    async with gateway([head(type="application/json"), b"{", HANG]) as site:
        body, sent = json.dumps({"model": "m", "input": "x"}).encode(), []
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if messages:
                return messages.pop()
            await site.upstream.arrived.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/v1/embeddings", "raw_path": b"/v1/embeddings", "headers": [],
            "query_string": b"", "http_version": "1.1", "scheme": "http", "server": ("g", 80), "root_path": "",
        }  # fmt: skip
        await site.app(scope, receive, send)
        await until(site.upstream.gone.is_set)
    assert sent[0]["type"] == "http.response.start"


@pytest.mark.parametrize("theirs", ["float", "base64"])
async def test_sdk_gets_embeddings_in_both_encodings(theirs):
    """The SDK requests base64 and decodes it, unless the caller names an encoding."""
    script = embeddings_of(*([packed(vector) for vector in VECTORS] if theirs == "base64" else VECTORS))
    async with listening(script) as site:
        url = f"{site.client.base_url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=DEADLINE, max_retries=0) as client:
            implied = await client.embeddings.create(model="m", input=["a", "b"])
            assert site.upstream_body["encoding_format"] == "base64"
            plain = await client.embeddings.create(model="m", input=["a", "b"], encoding_format="float")
    for answer in (implied, plain):
        assert [entry.embedding for entry in answer.data] == [*map(list, VECTORS)]
        assert (answer.model, answer.usage.prompt_tokens) == ("m", 3)


async def test_embedding_response_in_chunks_is_read_to_its_end():
    body = json.dumps({"data": [{"embedding": [1.0]}]}).encode()
    async with gateway([head(type="application/json"), body[:5], body[5:], END]) as site:
        assert vectors(await embed(site)) == [[1.0]]


@pytest.mark.parametrize(("wanted", "warnings"), [({}, None), ({"dimensions": 2}, "emulated:dimensions")])
async def test_large_response_has_all_vectors(wanted, warnings):
    vector = [1.0, 0.0, *[0.5] * 300_000]
    async with gateway(embeddings_of([1, 0, 7], vector)) as site:
        answer = await embed(site, input=["a", "b"], **wanted)
    assert vectors(answer) == ([[1, 0]] * 2 if wanted else [[1, 0, 7], vector])
    assert answer.json()["usage"] == COUNTS and answer.headers["content-length"] == str(len(answer.content))
    assert answer.headers.get("x-gateway-warnings") == warnings


async def test_larger_response_than_any_is_refused(monkeypatch):
    monkeypatch.setattr(model_services, "_MAX", 1000)
    async with gateway(embeddings_of([0.5] * 1000)) as site:
        assert problem(await embed(site)) == (502, "server_error", "frame_too_long", None)
