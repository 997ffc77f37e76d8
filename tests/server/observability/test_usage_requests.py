"""Test that usage in the store is what the backends reported, over all APIs, workers and generations."""

import asyncio
from functools import partial

import httpx

from gateway.config import StoreSettings
from gateway.server.app import create_app
from gateway.server.observability.telemetry import Telemetry
from gateway.server.process.worker import AppReloader
from gateway.store import usage_sums
from support.app import HELLO_MESSAGES, bearer, gateway, listening, running, settings
from support.gateway_process import process
from support.serve_process import workers_of
from support.upstream import COUNTS, DONE, END, HELLO, Upstream, chunk, completion_body, frame, head, stream, whole
from support.wait import DEADLINE, now, until
from support.websocket import connected

DAY = 86_400
AUTH = {"keys": [{"name": name, "key": f"key-of-{name}"} for name in ("ann", "bob")]}
CACHED = {"prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 900}}
LONG = stream(chunk("Hi"), chunk(finish="stop"), frame(choices=[], usage=CACHED))
EMBEDDED = {"data": [{"embedding": [1.0]}], "usage": {"prompt_tokens": 5, "total_tokens": 5}}
TOKENS = "input_tokens", "cached_tokens", "output_tokens"


async def usage_in(store):
    """Return requests and tokens by key and model, and the seconds of all."""
    async with store.reading() as db:
        found = await usage_sums.read(db, 0, int(now()) // DAY, ["key", "model"])
    seconds = sum(sums.milliseconds for _, sums in found) / 1000
    return {place: (sums.requests, *(getattr(sums, name) for name in TOKENS)) for place, sums in found}, seconds


def kept_in(url):
    return {"store": {"url": url, "usage": True}}


async def test_usage_is_what_the_backends_reported(store_url, store):
    begun = now()
    scripts = (HELLO, LONG, HELLO, HELLO, HELLO, whole(EMBEDDED), whole({"error": {"message": "no"}}, 400))
    async with listening(*scripts, auth=AUTH, **kept_in(store_url)) as site:
        ann, bob = (bearer(key["key"]) for key in AUTH["keys"])
        assert (await site.chat(headers=ann)).status_code == 200
        assert (await site.chat(headers=ann, stream=True)).status_code == 200
        assert (await site.respond(headers=ann, stream=True)).status_code == 200
        assert (await site.message(headers=bob)).status_code == 200
        async with connected(site, bob) as socket:
            assert (await socket.respond())["type"] == "response.completed"
        embedding = {"model": "m", "input": "a"}
        assert (await site.client.post("/v1/embeddings", json=embedding, headers=bob)).status_code == 200
        assert (await site.chat(headers=bob)).status_code == 400
        assert (await site.chat(headers=bob, model="other")).status_code == 404
        assert (await site.client.get("/v1/models", headers=bob)).status_code == 200
        assert (await site.chat()).status_code == 401
    usage, seconds = await usage_in(store)
    assert usage == {("ann", "m"): (3, 1014, 900, 54), ("bob", "m"): (4, 19, 0, 4)}
    assert seconds < 7 * (now() - begun)


async def test_usage_of_a_background_response_is_counted_at_its_end(store_url, store):
    async with gateway(HELLO, **kept_in(store_url)) as site:
        id = (await site.respond(background=True)).json()["id"]

        async def status():
            return (await site.client.get(f"/v1/responses/{id}")).json()["status"]

        await until(status, "completed")
    assert (await usage_in(store))[0] == {("", "m"): (1, 7, 0, 2)}


async def test_usage_is_counted_on_the_day_of_its_end(store_url, store):
    first = int(now()) // DAY
    async with gateway(HELLO, **kept_in(store_url)) as site:
        await site.chat()
    async with store.reading() as db:
        (((day,), sums),) = await usage_sums.read(db, first, int(now()) // DAY, ["day"])
    assert first <= day <= int(now()) // DAY and sums.requests == 1


async def test_usage_is_kept_only_in_a_configured_store(store_url, store):
    async with gateway(HELLO, store={"url": store_url, "usage": False}) as site:
        await site.chat()
    assert (await usage_in(store))[0] == {}
    assert not StoreSettings().keeps_usage, "the default url depends on the working directory"
    assert StoreSettings(url=store_url).keeps_usage


async def test_usage_is_exact_over_a_reload(store_url, store):
    """A request that began before the reload is counted as well, at its end."""
    go, body = asyncio.Event(), {"model": "m", "messages": HELLO_MESSAGES, "stream": True}
    slow = [head(), chunk("Hi"), go, chunk(finish="stop"), frame(choices=[], usage=COUNTS), DONE, END]
    async with Upstream([slow, HELLO], ()).serving() as upstream:
        config = settings(upstream.url, **kept_in(store_url))
        generations = AppReloader(partial(create_app, telemetry=Telemetry()), config)
        async with (
            running(generations) as url,
            httpx.AsyncClient(base_url=url, timeout=DEADLINE, verify=False) as client,
            client.stream("POST", "/v1/chat/completions", json=body) as answer,
        ):
            await generations.reload(settings(upstream.url, **kept_in(store_url)))
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
            go.set()
            assert "[DONE]" in (await answer.aread()).decode()
    assert (await usage_in(store))[0] == {("", "m"): (2, 14, 0, 4)}


async def test_usage_of_all_workers_adds_up(store_url, store, tmp_path):
    async with (
        Upstream([whole(completion_body("Hi"))], ()).serving() as upstream,
        process(upstream.url, store_url, tmp_path, usage=True, auth=AUTH, server={"workers": 2}) as (child, client),
    ):
        await until(lambda: len(workers_of(child.pid)), 2)

        async def ask(place):
            headers = {**bearer(AUTH["keys"][place % 2]["key"]), "connection": "close"}
            body = {"model": "m", "messages": HELLO_MESSAGES}
            return (await client.post("/v1/chat/completions", json=body, headers=headers)).status_code

        assert {*await asyncio.gather(*map(ask, range(40)))} == {200}
        child.terminate()
        await child.wait()
    assert len(upstream.posts) == 40
    assert (await usage_in(store))[0] == {(key, "m"): (20, 140, 0, 40) for key in ("ann", "bob")}
