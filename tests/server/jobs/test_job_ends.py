"""Test the ends of jobs: many share a transaction, and no cancellation leaves one half written."""

import asyncio
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest

from gateway.api.responses import InputContext
from gateway.errors import StoreFailed
from gateway.server.conversations.stored_context import Predecessor, StoredContext
from gateway.server.jobs.job import BackgroundJob
from gateway.server.jobs.log_writer import JobContext, JobLost, Lease, LogWriter
from gateway.store import event_logs, jobs, responses
from gateway.store.records import FinishedJob, FinishedResponse, ItemRange, ListPosition, LogRow
from gateway.store.write_queue import WriteQueue
from gateway.warnings import Warnings
from support.app import gateway
from support.jobs import accepted, ended, where
from support.store_jobs import begin, counted, numbered
from support.upstream import gated
from support.wait import until

MANY = 20


def the_end(id, holder="a", *output):
    """Return the end of a job."""
    body = {"id": id, "status": "completed", "output": numbered(*output)}
    return FinishedJob(FinishedResponse("t", body, 7), holder)


async def test_jobs_that_end_at_once_share_a_transaction(store):
    ids = [f"r{number}" for number in range(150)]
    async with store.writing() as db:
        for id in ids:
            await begin(db, id)
        await begin(db, "other", "b")
    ends = (the_end(id, "a", f"{id}-1", f"{id}-2") for id in (*ids, "other"))
    held = await asyncio.gather(*(store.write_grouped(jobs.finish, one) for one in ends))
    assert [one in found for one, found in zip((*ids, "other"), held, strict=True)] == [True] * 150 + [False]
    assert held[0] is held[99] is not held[100] is held[150]  # of two transactions
    async with store.reading() as db:
        for id in ids:
            kept = await responses.find(db, "t", id)
            whole = await responses.response_object(db, kept)
            assert (whole["status"], kept.own) == ("completed", ItemRange(id, 0, 3))
            assert [item["id"] for item in whole["output"]] == [f"{id}-1", f"{id}-2"]
        assert (await responses.find(db, "t", "other")).body["status"] == "queued"
        counted_size, kept = await counted(db)
        assert counted_size == kept


async def test_end_of_a_response_that_continues_another_needs_its_job(store):
    origin = Predecessor(InputContext(), ListPosition("r", 1))
    record = {"id": "next", "status": "completed", "output": []}
    async with store.writing() as db:
        await begin(db, "r")
        await begin(db, "next", parent=origin.behind)
    ends = [await StoredContext(store, "t").finish_response(origin, Warnings(), record, holder) for holder in "ba"]
    assert ends == [False, True]


async def test_job_without_output_ends(store):
    async with store.writing() as db:
        await begin(db, "r")
    assert [*await store.write_grouped(jobs.finish, the_end("r"))] == ["r"]
    assert [*await store.write_grouped(jobs.finish, the_end("none"))] == []
    async with store.reading() as db:
        assert (await responses.response_object(db, await responses.find(db, "t", "r")))["output"] == []


async def test_logs_that_end_at_once_are_packed_in_shared_transactions(store):
    ids = [f"r{number}" for number in range(MANY)]
    async with store.writing() as db:
        for id in ids:
            await begin(db, id)
            await event_logs.append(db, [(id, LogRow(0, 1, b"ab")), (id, LogRow(2, 3, b"cd"))])
    await asyncio.gather(*(event_logs.pack(store, id) for id in (*ids, *ids, "none")))
    async with store.reading() as db:
        for id in ids:
            assert await event_logs.read(db, id, -1, 9) == [LogRow(0, 3, b"abcd")]
        counted_size, kept = await counted(db)
        assert counted_size == kept


async def test_background_responses_that_end_at_once_share_transactions(store_url, monkeypatch):
    go, turns, turn = asyncio.Event(), [], WriteQueue.turn
    async with gateway(gated("Hi", go), **where(store_url)) as site, AsyncExitStack() as taken:
        queue = site.app.state.store.queue
        ids = await asyncio.gather(*(accepted(site) for _ in range(MANY)))
        await until(lambda: len(site.upstream.posts), MANY)
        for _ in range(10 if site.app.state.store.notifies else 1):
            await taken.enter_async_context(queue.turn())
        go.set()
        await until(lambda: queue.length > MANY)
        monkeypatch.setattr(WriteQueue, "turn", lambda queue: turns.append(queue) or turn(queue))
        await taken.aclose()
        assert {(await ended(site, id))["status"] for id in ids} == {"completed"}
        await site.app.state.handler.jobs.wait_idle()
    assert len(turns) < MANY


class EndingRequest:
    """A request whose end is stored once `go` is set: with this result, or with an error."""

    identity, params = SimpleNamespace(id="resp_a"), SimpleNamespace(background=True, streamed=False)

    def __init__(self, result):
        self.result, self.begun, self.go, self.stored = result, asyncio.Event(), asyncio.Event(), False

    async def finish_job(self, record, holder):
        self.begun.set()
        await self.go.wait()
        if isinstance(self.result, Exception):
            raise self.result
        self.stored = True
        return self.result


def ending(store, result):
    """Return a job, and its request."""
    lease, request = Lease("me"), EndingRequest(result)
    return BackgroundJob(JobContext(store, lease, LogWriter(store, lease), 0, 1), "t", request), request


@pytest.mark.parametrize("result", [True, StoreFailed("It is down.")], ids=["stored", "failed"])
async def test_job_that_is_cancelled_waits_until_its_end_is_stored(result, store):
    job, request = ending(store, result)
    storing = asyncio.create_task(job.store({"status": "completed"}))
    await request.begun.wait()
    for _ in range(2):
        storing.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not storing.done()
    request.go.set()
    with pytest.raises(asyncio.CancelledError):
        await storing
    assert request.stored == (result is True) and job.status == ""


async def test_job_that_another_process_has_stores_no_end(store):
    job, request = ending(store, result=False)
    request.go.set()
    with pytest.raises(JobLost):
        await job.store({"status": "completed"})
    job, request = ending(store, result=True)
    request.go.set()
    job.mark_lost()
    with pytest.raises(JobLost):
        await job.store({"status": "completed"})
    assert not request.stored and job.status == ""
