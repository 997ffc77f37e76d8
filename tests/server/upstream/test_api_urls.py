"""Test backends whose URL names their API instead of the root of a server with `/v1`."""

import asyncio

import pytest

from gateway.config import BackendSettings
from gateway.server.upstream.backend_check import check_backend
from support.app import gateway
from support.upstream import HELLO, Upstream, completion_body, list_of, whole

API, CHAT = "/api/paas/v4", "/proxy/chat/completions"


@pytest.mark.parametrize(
    ("path", "chat", "models"),
    [
        (API, f"{API}/chat/completions", f"{API}/models"),
        (CHAT, CHAT, "/proxy/models"),
        ("/v4/ai/v1", "/v4/ai/v1/chat/completions", "/v4/ai/v1/models"),
        ("/proxy/v1", "/proxy/v1/chat/completions", "/proxy/v1/models"),
    ],
)
async def test_backend_is_called_below_the_url_of_its_api(path, chat, models):
    async with gateway(HELLO, whole(completion_body()), models=("m",), path=path, model=False) as site:
        assert "Hi" in (await site.chat(stream=True)).text
        assert (await site.respond()).json()["status"] == "completed"
        ids = [one["id"] for one in (await site.client.get("/v1/models")).json()["data"]]
    assert [one.path for one in site.upstream.posts] == [chat, chat]
    assert ids == ["m"] and {one.path for one in site.upstream.gets} == {models}


async def test_other_endpoints_are_below_the_url_of_an_api():
    speech = {"model": "m", "input": "Hello", "voice": "v"}
    async with gateway(whole({"text": "Hi"}), path=API) as site:
        await site.client.post("/v1/embeddings", json={"model": "m", "input": "Hello"})
        await site.client.post("/v1/audio/speech", json=speech)
        await site.client.post("/v1/audio/transcriptions", data={"model": "m"}, files={"file": b"x"})
    paths = [one.path for one in site.upstream.posts]
    assert paths == [f"{API}/embeddings", f"{API}/audio/speech", f"{API}/audio/transcriptions"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (list_of("a"), ""),
        (whole(b"<html>"), "/models returned no JSON; is it a model server?"),
        (whole({}), "/models returned no list of models; is it a model server?"),
        (whole({}, 404), "the server has no /models (HTTP 404); name its models in 'models', or check backends.up.url"),
    ],
)
async def test_check_asks_for_the_models_below_the_url_of_an_api(script, words):
    async with Upstream([], ()).serving() as upstream:
        upstream.answer_lists_with(script)
        check = await asyncio.to_thread(check_backend, "up", BackendSettings(url=upstream.url + CHAT))
    assert check.problem == words
    assert [one.path for one in upstream.gets] == ["/proxy/models"]
