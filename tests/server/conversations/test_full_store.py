"""Test a full queue of writes: requests that need the store are refused before the model is asked, and finished work waits."""

import asyncio

import pytest

from gateway.store import write_queue
from support.app import HELLO_MESSAGES, gateway, problem
from support.jobs import get
from support.metrics import scrape
from support.upstream import DONE, END, HELLO, chunk, completion_body, gated, head, whole
from support.wait import until

FULL = (503, "server_error", "store_unavailable", None)


@pytest.fixture
def full(monkeypatch):
    """Make the queue full while a write waits."""
    monkeypatch.setattr(write_queue, "_MAX_LENGTH", 1)


async def test_request_that_needs_a_full_store_is_refused_before_the_model_is_asked(full):
    async with gateway(HELLO) as site:
        queue = site.app.state.store.queue
        conversation = (await site.client.post("/v1/conversations", json={})).json()["id"]
        queue.length = 1
        for fields in (
            {},
            {"stream": True},
            {"background": True},
            {"background": True, "stream": True},
            {"conversation": conversation, "store": False},
        ):
            answer = await site.respond(**fields)
            assert problem(answer) == FULL, fields
            assert answer.headers["retry-after"] == "1" and "overloaded" in answer.json()["error"]["message"]
        assert problem(await site.chat(store=True)) == FULL
        assert site.upstream.posts == []
        queue.length = 0
        assert (await site.respond(conversation=conversation)).status_code == 200  # its lock is free


async def test_request_that_stores_nothing_needs_no_room_in_the_store(full):
    async with gateway(HELLO) as site:
        site.app.state.store.queue.length = 1
        assert (await site.respond(store=False)).status_code == 200
        assert (await site.chat(messages=HELLO_MESSAGES)).status_code == 200
        counted = await site.client.post("/v1/responses/input_tokens", json={"model": "m", "input": "Hello"})
        assert counted.json().get("error", {}).get("code") != "store_unavailable"


@pytest.mark.parametrize("streamed", [False, True])
async def test_background_request_is_refused_if_the_store_is_full_when_it_begins(full, streamed, monkeypatch):
    async with gateway(HELLO) as site:
        queue, jobs = site.app.state.store.queue, site.app.state.handler.jobs
        start = jobs.start

        def fill(*given):
            queue.length = 1
            return start(*given)

        monkeypatch.setattr(jobs, "start", fill)
        answer = await site.respond(background=True, stream=streamed)
        assert problem(answer) == FULL and answer.headers["retry-after"] == "1"
        assert site.upstream.posts == []


@pytest.mark.parametrize("streamed", [False, True])
async def test_finished_response_waits_for_a_full_store(full, streamed):
    go = asyncio.Event()
    script = gated("Hi", go) if streamed else [head(), go, chunk("Hi"), chunk(finish="stop"), DONE, END]
    async with gateway(script) as site:
        queue = site.app.state.store.queue
        asking = asyncio.create_task(site.respond(stream=True))
        await until(lambda: len(site.upstream.posts), 1)
        async with queue.turn():
            go.set()
            await until(lambda: queue.length > 0)
            assert problem(await site.respond()) == FULL
            assert not asking.done()
        assert (await asking).status_code == 200
        assert "dropped:store" not in (await asking).text
        assert (await site.client.get("/v1/responses/resp_none")).status_code == 404


async def test_finished_completion_waits_for_a_full_store(full):
    async with gateway(whole(completion_body("Hi"))) as site:
        queue = site.app.state.store.queue
        async with queue.turn():
            asking = asyncio.create_task(site.chat(store=True))
            await until(lambda: queue.length > 0)
            assert not asking.done()
        answer = await asking
        assert answer.status_code == 200 and "x-gateway-warnings" not in answer.headers
        assert (await site.client.get(f"/v1/chat/completions/{answer.json()['id']}")).status_code == 200


async def test_finished_background_response_waits_for_a_full_store(full):
    go = asyncio.Event()
    async with gateway(gated("Hi", go)) as site:
        queue = site.app.state.store.queue
        id = (await site.respond(background=True)).json()["id"]
        await until(lambda: len(site.upstream.posts), 1)
        async with queue.turn():
            go.set()
            await until(lambda: queue.length > 0)

        async def status():
            return (await get(site, id)).json()["status"]

        await until(status, "completed")
        await site.app.state.handler.jobs.wait_idle()
        assert len(site.upstream.posts) == 1


async def test_metrics_show_the_writes_that_wait_for_the_store():
    async with gateway(HELLO) as site:
        queue = site.app.state.store.queue
        async with queue.turn():
            asking = asyncio.create_task(site.respond())
            await until(lambda: queue.length > 0)
            assert (await scrape(site)).of("gateway_store_queue_depth") == queue.length
        await asking
        assert (await scrape(site)).of("gateway_store_queue_depth") == 0
