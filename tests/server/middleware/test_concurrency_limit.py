"""Test the limit of concurrent requests: a full process refuses at once, over all of its applications."""

import asyncio
from contextlib import asynccontextmanager

import httpx

from gateway.server.app import create_app
from gateway.server.middleware.concurrency_limit import ConcurrencyLimit
from support.app import HELLO_MESSAGES, listening, problem, settings
from support.jobs import ended
from support.upstream import HELLO, Upstream, paused, whole
from support.wait import until
from support.websocket import connected, error, texts

SERVICES = ("/v1/embeddings", "/v1/rerank", "/v1/tokenize", "/v1/detokenize")
FULL = (503, "server_error", "server_is_overloaded", None)


async def test_request_limit_refuses_requests_unread():
    go = asyncio.Event()
    async with listening(paused(go), HELLO, limits={"concurrent": 1}) as site:
        one = asyncio.create_task(site.chat(stream=True))
        await site.upstream.arrived.wait()
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/responses/compact", *SERVICES):
            refused = await site.client.post(path, content=b"not even JSON")
            assert problem(refused) == FULL
            assert refused.headers["retry-after"] == "1" and refused.headers["x-request-id"]
        assert await first_line_of_refusal(site.client.base_url.port) == b"HTTP/1.1 503 Service Unavailable\r\n"
        for path in ("/health", "/ready", "/v1/models"):
            assert (await site.client.get(path)).status_code == 200
        go.set()
        assert (await one).status_code == 200
        assert (await site.chat(stream=True)).status_code == 200
        assert (await site.client.post("/v1/chat/completions", content=b"{}")).status_code == 400
        assert (await site.chat(stream=True)).status_code == 200, "a refused request is not counted"


async def first_line_of_refusal(port):
    """Return the first line of the response to a request whose body has not been sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n")
    try:
        return await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_request_limit_counts_embeddings():
    go = asyncio.Event()
    vector = whole({"data": [{"embedding": [0.5]}]})
    async with listening([go, *vector], HELLO, limits={"concurrent": 1}) as site:
        one = asyncio.create_task(site.client.post("/v1/embeddings", json={"model": "m", "input": "a"}))
        await site.upstream.arrived.wait()
        assert problem(await site.chat()) == FULL
        go.set()
        assert (await one).status_code == 200
        assert (await site.chat(stream=True)).status_code == 200


async def test_request_limit_of_zero_admits_any_number():
    go = asyncio.Event()
    async with listening(paused(go), limits={"concurrent": 0}) as site:
        tasks = [asyncio.create_task(site.chat(stream=True)) for _ in range(20)]
        await until(lambda: len(site.upstream.posts), 20)
        go.set()
        assert {(await task).status_code for task in tasks} == {200}


@asynccontextmanager
async def client_of(app):
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://gateway", verify=False) as client,
    ):
        yield client


async def test_request_limit_is_shared_by_applications_of_a_process():
    go, limit, body = asyncio.Event(), ConcurrencyLimit(), {"model": "m", "messages": HELLO_MESSAGES, "stream": True}
    async with Upstream([paused(go)], ()).serving() as upstream:
        known = settings(upstream.url, limits={"concurrent": 1})
        async with client_of(create_app(known, limit)) as old, client_of(create_app(known, limit)) as new:
            one = asyncio.create_task(old.post("/v1/chat/completions", json=body))
            await upstream.arrived.wait()
            assert problem(await new.post("/v1/chat/completions", json=body)) == FULL
            go.set()
            assert (await one).status_code == 200


async def test_request_limit_counts_a_background_job_until_it_ends():
    go = asyncio.Event()
    async with listening(paused(go), HELLO, limits={"concurrent": 1}) as site:
        job = await site.respond(background=True)
        assert job.json()["status"] in ("queued", "in_progress")
        await site.upstream.arrived.wait()
        assert problem(await site.chat()) == FULL and problem(await site.respond(background=True)) == FULL
        go.set()
        assert (await ended(site, job.json()["id"]))["status"] == "completed"
        await until(site.app.state.handler.jobs.wait_idle, None)
        assert (await site.chat(stream=True)).status_code == 200


async def test_request_limit_counts_a_websocket_response():
    go = asyncio.Event()
    async with (
        listening(paused(go), HELLO, limits={"concurrent": 1}) as site,
        connected(site) as one,
        connected(site) as two,
    ):
        await one.create()
        await site.upstream.arrived.wait()
        assert problem(await site.chat()) == FULL
        assert error(await two.respond())[2] == "server_is_overloaded"
        go.set()
        assert texts((await one.events())[-1]) == ["Hello"]
        assert texts(await two.respond()) == ["Hi"]
