"""Test jobs: one process at a time works on a response, and only its writes count."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import func, select, text

from gateway.store import Database, conversations, event_logs, item_lists, jobs, migrations, responses
from gateway.store.records import (
    FinishedJob,
    FinishedResponse,
    ItemRange,
    ItemsMissing,
    JobLeaseState,
    JobState,
    ListPosition,
    LogRow,
    StoredJob,
)
from gateway.store.tables import events, items, requests
from gateway.store.tables import threads as all_threads
from support.postgres import Postgres
from support.store_jobs import LEASE, begin, counted, numbered
from support.wait import idle, until

pytestmark = pytest.mark.smoke


async def finish(db, id, conversation=None, now=0):
    body = {"id": id, "status": "completed", "model": "m", "output": numbered(f"{id}-out")}
    assert await responses.finish(db, "t", body, conversation, now)
    return await responses.find(db, "t", id)


async def left(db):
    """Return the numbers of jobs, requests and events."""
    return [await db.scalar(select(func.count()).select_from(one)) for one in (jobs.jobs, requests, events)]


async def item_ids(db, response):
    """Return the ids of all items up to the end of a response."""
    return [item["id"] for item in await item_lists.read(db, await item_lists.ranges(db, response.behind))]


# holding


async def test_job_is_held_by_its_creator(store):
    async with store.writing() as db:
        await begin(db, "r", "a")
        assert await jobs.job_state(db, "r") is JobState.RUNNING
        assert await jobs.renew_leases(db, "a", 50, LEASE) == {"r": JobLeaseState(False, None)}
        assert await jobs.renew_leases(db, "b", 50, LEASE) == {}
        assert await jobs.claim(db, "b", 149, LEASE, 9) == []
        assert not await jobs.end(db, ["r"], "b")
        assert await jobs.end(db, ["r"], "a")
        assert await jobs.job_state(db, "r") is None
        assert await jobs.renew_leases(db, "a", 50, LEASE) == {}
        assert await left(db) == [0, 0, 0]


async def test_job_lease_lasts_until_another_process_takes_the_job(store):
    async with store.writing() as db:
        await begin(db, "r", "a")
        assert await jobs.renew_leases(db, "a", 500, LEASE, ["r"]) == {"r": JobLeaseState(False, None)}
        assert not await jobs.has_due(db, 599)
        assert await jobs.claim(db, "b", 599, LEASE, 9) == []
        assert await jobs.has_due(db, 600)
        assert await jobs.claim(db, "b", 600, LEASE, 9) == [StoredJob("r", "t", b"r \0", 2, False)]
        assert await jobs.renew_leases(db, "a", 600, LEASE) == await jobs.renew_leases(db, "a", 600, LEASE, ["r"]) == {}
        await jobs.release(db, "r", "a")
        assert not await jobs.end(db, ["r"], "a")
        assert await jobs.claim(db, "a", 699, LEASE, 9) == []
        assert await jobs.renew_leases(db, "b", 699, LEASE) == {"r": JobLeaseState(False, None)}


async def test_job_that_is_released_can_be_taken_at_once(store):
    """The release does not count as an attempt."""
    async with store.writing() as db:
        await begin(db, "r", "a")
        await jobs.release(db, "r", "a")
        assert await jobs.job_state(db, "r") is JobState.QUEUED
        assert await jobs.renew_leases(db, "a", 1, LEASE) == {}
        assert [job.attempts for job in await jobs.claim(db, "b", 1, LEASE, 9)] == [1]
        assert await jobs.job_state(db, "r") is JobState.RUNNING


async def test_job_leases_are_renewed_only_for_the_given_ids(store):
    async with store.writing() as db:
        for id, holder in [("r", "a"), ("s", "a"), ("u", "b")]:
            await begin(db, id, holder)
        assert {*await jobs.renew_leases(db, "a", 50, LEASE, {"r", "u", "none"})} == {"r"}
        assert await jobs.renew_leases(db, "a", 50, LEASE, []) == {}
        assert {job.id for job in await jobs.claim(db, "c", 100, LEASE, 9)} == {"s", "u"}
        assert {*await jobs.renew_leases(db, "c", 100, LEASE)} == {"s", "u"}


async def test_job_take_returns_the_oldest_up_to_the_limit(store):
    async with store.writing() as db:
        for number in range(5):
            await begin(db, f"r{number}", now=10 - number)
        assert {job.id for job in await jobs.claim(db, "b", 500, LEASE, 2)} == {"r4", "r3"}
        assert [job.id for job in await jobs.claim(db, "b", 500, LEASE, 9, ["r1", "r3", "none"])] == ["r1"]
        assert await jobs.claim(db, "b", 500, LEASE, 9, []) == []
        assert {job.id for job in await jobs.claim(db, "b", 500, LEASE, 9)} == {"r0", "r2"}


async def test_job_is_cancelled_only_by_its_tenant(store):
    async with store.writing() as db:
        await begin(db, "r", "a")
        assert not await jobs.cancel(db, "other", "r")
        assert await jobs.renew_leases(db, "a", 0, LEASE) == {"r": JobLeaseState(False, None)}
        assert await jobs.cancel(db, "t", "r") and await jobs.cancel(db, "t", "r")
        assert await jobs.renew_leases(db, "a", 0, LEASE) == {"r": JobLeaseState(True, None)}
        assert [job.cancelled for job in await jobs.claim(db, "b", 500, LEASE, 9)] == [True]
        assert not await jobs.cancel(db, "t", "none")


async def test_job_wanted_until_is_only_extended(store):
    async def until():
        return {id: held.wanted_until for id, held in (await jobs.renew_leases(db, "a", 0, LEASE)).items()}

    async with store.writing() as db:
        await begin(db, "r", wanted_until=10)
        await begin(db, "s", wanted_until=30)
        await begin(db, "always")
        await jobs.extend_wanted_until(db, {"s", "r", "always", "none"}, 20)
        assert await until() == {"r": 20, "s": 30, "always": None}
        await jobs.extend_wanted_until(db, [], 40)
        await jobs.extend_wanted_until(db, ["s", "s"], 40)
        assert await until() == {"r": 20, "s": 40, "always": None}


async def test_response_removal_deletes_its_job_and_log(store):
    async with store.writing() as db:
        await begin(db, "r", "a")
        await event_logs.append(db, [("r", LogRow(0, 2, b"abc"))])
        assert await left(db) == [1, 1, 1]
        await responses.remove(db, await responses.find(db, "t", "r"))
        assert await left(db) == [0, 0, 0]
        assert await jobs.renew_leases(db, "a", 1, LEASE, ["r"]) == {}
        assert not await responses.finish(db, "t", {"id": "r", "output": numbered("out")}, None, 1)
        assert await db.scalar(select(func.count()).where(items.c.body.is_not(None))) == 0


async def test_response_that_is_forgotten_leaves_no_rows(store):
    async with store.writing() as db:
        await begin(db, "r")
        await event_logs.append(db, [("r", LogRow(0, 2, b"abc"))])
        await responses.forget(db, "r")
        assert await responses.find(db, "t", "r") is None
        assert await left(db) == [0, 0, 0]
        assert await db.scalar(select(func.count()).select_from(all_threads)) == 0


# finishing


async def test_response_that_is_open_can_be_read_and_finished(store):
    async with store.writing() as db:
        await begin(db, "r")
        found = await responses.find(db, "t", "r")
        assert await responses.response_object(db, found) == {"id": "r", "status": "queued", "output": []}
        assert (found.input, found.own) == (ItemRange("r", 0, 1), ItemRange("r", 0, 1))
        done = await finish(db, "r")
        assert await responses.response_object(db, done) == {
            "id": "r", "status": "completed", "model": "m", "output": numbered("r-out"),
        }  # fmt: skip
        assert (done.input, done.own) == (ItemRange("r", 0, 1), ItemRange("r", 0, 2))
        assert await item_lists.read(db, await responses.effective_input(db, done)) == numbered("r-in")
        counted_size, kept = await counted(db)
        assert counted_size == kept
        assert await jobs.job_state(db, "r") is JobState.RUNNING


async def test_thread_of_an_open_response_takes_no_other_items(store):
    async with store.writing() as db:
        await begin(db, "r")
        found = await responses.find(db, "t", "r")
        assert await item_lists.append(db, found.behind, numbered("x"), 0) is None
        done = await finish(db, "r")
        await jobs.end(db, ["r"], "a")
        assert await item_lists.append(db, done.behind, numbered("x"), 0) == ItemRange("r", 2, 3)


async def test_job_chain_is_one_thread(store):
    """The cost of a response does not depend on the length of its chain."""
    async with store.writing() as db:
        behind = None
        for number in range(5):
            await begin(db, f"r{number}", parent=behind)
            await event_logs.append(db, [(f"r{number}", LogRow(0, 2, b"abc"))])
            behind = (await finish(db, f"r{number}")).behind
            assert await jobs.end(db, [f"r{number}"], "a")
        last = await responses.find(db, "t", "r4")
        assert await item_lists.ranges(db, last.behind) == [ItemRange("r0", 0, 10)]
        assert await item_ids(db, last) == [f"r{number}-{end}" for number in range(5) for end in ("in", "out")]
        assert [row.data for row in await event_logs.read(db, "r4", -1, 9)] == [b"abc"]
        await responses.remove(db, await responses.find(db, "t", "r2"))
        counted_size, kept = await counted(db)
        assert counted_size == kept
        with pytest.raises(ItemsMissing):
            await item_ids(db, last)


async def test_job_branches_off_if_another_response_extends_its_parent(store):
    async with store.writing() as db:
        await begin(db, "first")
        first = await finish(db, "first")
        await jobs.end(db, ["first"], "a")
        await begin(db, "slow", parent=first.behind)
        await responses.save(db, "t", {"id": "quick", "output": []}, numbered("quick-in"), first.behind, 0)
        slow, quick = await finish(db, "slow"), await responses.find(db, "t", "quick")
        assert (slow.own, quick.own) == (ItemRange("slow", 0, 2), ItemRange("first", 2, 3))
        assert await item_ids(db, slow) == ["first-in", "first-out", "slow-in", "slow-out"]
        assert await item_ids(db, quick) == ["first-in", "first-out", "quick-in"]
        counted_size, kept = await counted(db)
        assert counted_size == kept


async def converse(db):
    await conversations.create(db, "t", "conv", {}, numbered("x"), 0)
    return await conversations.find(db, "t", "conv")


async def test_job_joins_its_conversation_at_its_end(store):
    async with store.writing() as db:
        found = await converse(db)
        await begin(db, "r", parent=found.behind)
        await event_logs.append(db, [("r", LogRow(0, 2, b"abc"))])
        assert await item_ids(db, await responses.find(db, "t", "r")) == ["x", "r-in"]
        assert await item_lists.read(db, [(await conversations.find(db, "t", "conv")).items]) == numbered("x")
        await conversations.append(db, found, numbered("y"), 0)  # a client's, meanwhile
        done = await finish(db, "r", found)
        assert (done.input, done.own) == (ItemRange("conv", 2, 3), ItemRange("conv", 2, 4))
        assert await item_ids(db, done) == ["x", "y", "r-in", "r-out"]
        assert await left(db) == [1, 1, 1]
        assert [*await db.scalars(select(all_threads.c.id))] == ["conv"]
        counted_size, kept = await counted(db)
        assert counted_size == kept
        assert await jobs.end(db, ["r"], "a")
        await responses.save(db, "t", {"id": "s", "output": []}, numbered("s-in"), done.behind, 0)
        assert await item_ids(db, await responses.find(db, "t", "s")) == ["x", "y", "r-in", "r-out", "s-in"]
        await responses.remove(db, done)
        assert await item_lists.read(db, [(await conversations.find(db, "t", "conv")).items]) == numbered(
            "x", "y", "r-in", "r-out"
        )
        counted_size, kept = await counted(db)
        assert counted_size == kept


async def test_job_that_failed_stays_outside_its_conversation(store):
    async with store.writing() as db:
        await begin(db, "r", parent=(await converse(db)).behind)
        done = await finish(db, "r")
        assert done.thread == "r"
        assert await item_ids(db, done) == ["x", "r-in", "r-out"]
        assert (await conversations.find(db, "t", "conv")).end == 1


async def test_job_finishes_after_its_parent_was_deleted(store):
    """The response itself is kept, as its client has waited for it."""
    async with store.writing() as db:
        found = await converse(db)
        await begin(db, "r", parent=found.behind)
        await begin(db, "s", parent=found.behind)
        await db.execute(all_threads.delete().where(all_threads.c.id == "conv"))
        for done in (await finish(db, "r", found), await finish(db, "s")):
            assert (await responses.response_object(db, done))["output"] == numbered(f"{done.id}-out")
            with pytest.raises(ItemsMissing):
                await responses.effective_input(db, done)


# at once


@asynccontextmanager
async def processes(url, count=3):
    """Yield several databases with one URL, which stand for as many processes."""
    databases = [Database(url) for _ in range(count)]
    async with databases[0].writing():  # the schema is there
        pass
    try:
        yield databases
    finally:
        for one in databases:
            await one.close()


async def test_job_is_taken_by_one_of_several_databases_at_once(store_url):
    async def take(database, holder):
        async with database.writing() as db:
            await asyncio.sleep(0)
            return [job.id for job in await jobs.claim(db, holder, 1000, LEASE, 2)]

    async with processes(store_url) as databases:
        async with databases[0].writing() as db:
            for number in range(30):
                await begin(db, f"r{number}")
        taken = []
        for _ in range(30):
            results = await asyncio.gather(*(take(one, str(number)) for number, one in enumerate(databases)))
            assert all(len(one) <= 2 for one in results)
            taken += itertools.chain(*results)
        assert sorted(taken) == sorted(f"r{number}" for number in range(30))


async def test_response_can_be_removed_while_its_job_writes(store_url):
    """The removal waits for the write and deletes its rows too."""

    async def remove(database):
        async with database.writing() as db:
            await responses.remove(db, kept)

    async with processes(store_url) as (one, other, third):
        for finished in (False, True):
            async with one.writing() as db:
                await begin(db, "r", "a")
                kept = await responses.find(db, "t", "r")
            async with one.writing() as db:
                assert await jobs.renew_leases(db, "a", 1, LEASE, ["r"])
                removing = [asyncio.create_task(remove(database)) for database in (other, third)]
                await idle(0.2)
                await event_logs.append(db, [("r", LogRow(0, 2, b"abc"))])
                if finished:
                    await finish(db, "r")
                    await jobs.end(db, ["r"], "a")
            await asyncio.gather(*removing)
            async with one.writing() as db:
                assert await responses.find(db, "t", "r") is None
                assert await left(db) == [0, 0, 0]
                assert await db.scalar(select(func.count()).where(items.c.body.is_not(None))) == 0
                assert await counted(db) == (0, 0)
                await db.execute(all_threads.delete())


IDS = [f"r{number}" for number in range(12)]


async def work(database, me, turn):
    """Do at once what processes do with the same jobs, in an order of its own."""
    start = (turn + me) % len(IDS)
    ids = IDS[start:] + IDS[:start]

    async def renew():
        async with database.writing() as db:
            assert {*await jobs.renew_leases(db, str(me), turn, LEASE)} == {*IDS[me::3]}

    async def write():
        async with database.writing() as db:
            held = await jobs.renew_leases(db, str(me), turn, LEASE, ids)
            assert {*held} == {*IDS[me::3]}
            await event_logs.append(db, [(id, LogRow(turn, turn, b"abc")) for id in held])

    async def want():
        async with database.writing() as db:
            await jobs.extend_wanted_until(db, ids, turn)

    async def cancel():
        async with database.writing() as db:
            await jobs.cancel(db, "t", ids[0])

    async def take():
        async with database.writing() as db:
            assert await jobs.claim(db, str(me), turn, LEASE, 3) == []

    await asyncio.gather(renew(), write(), want(), cancel(), take())


def the_end(me, id):
    body = {"id": id, "status": "completed", "output": numbered(f"{id}-out")}
    return FinishedJob(FinishedResponse("t", body, 0), str(me))


async def finish_and_remove(database, me):
    """Finish all jobs in two transactions at once, each in an order of its own; pack and remove at once."""

    async def finish(ids):
        async with database.writing() as db:
            assert {*await jobs.finish(db, [the_end(me, id) for id in ids])} <= {*IDS[me::3]}

    async def pack(order):
        await asyncio.gather(*(event_logs.pack(database, id) for id in order))

    await asyncio.gather(finish(IDS), finish(IDS[::-1]), pack(IDS), pack(IDS[::-1]))
    for id in IDS:
        async with database.writing() as db:
            if kept := await responses.find(db, "t", id):
                await responses.remove(db, kept)


async def test_store_has_no_deadlocks_between_processes(store_url):
    """A deadlock would be a failure of the store."""
    async with processes(store_url) as databases, asyncio.timeout(60):
        async with databases[0].writing() as db:
            for number, id in enumerate(IDS):
                await begin(db, id, str(number % 3), wanted_until=0)
        for turn in range(40):
            await asyncio.gather(*(work(one, me, turn) for me, one in enumerate(databases)))
        await asyncio.gather(*(finish_and_remove(one, me) for me, one in enumerate(databases)))
        async with databases[0].writing() as db:
            assert await left(db) == [0, 0, 0] and await counted(db) == (0, 0)


# news


async def notified(database, notices):
    """Notify, and return whether a notification has arrived by now."""
    async with database.writing() as db:
        await jobs.notify(db, "news", ["hello"])
    return not notices.empty()


async def test_store_notifications_reach_other_processes(store_url):
    notices = asyncio.Queue()
    async with processes(store_url, 2) as (one, other):
        listening = asyncio.create_task(one.listen("news", notices.put_nowait))
        if not one.notifies:
            await listening
            async with other.writing() as db:
                await jobs.notify(db, "news", ["a"])
            assert notices.empty()
            return
        async with asyncio.timeout(60):
            await until(lambda: notified(other, notices))  # it listens
            async with other.writing() as db:
                await jobs.notify(db, "news", [])
                await jobs.notify(db, "else", ["not for it"])
                await jobs.notify(db, "news", {"a": 1, "b\n'": 2})
                await idle(0.1)
                assert {*drained(notices)} <= {"hello"}  # before it is certain
            assert [await notices.get(), await notices.get()] == ["a", "b\n'"]
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening


def drained(queue):
    while not queue.empty():
        yield queue.get_nowait()


async def test_store_notifications_resume_when_postgresql_is_back(monkeypatch):
    monkeypatch.setattr("gateway.store.engines._AGAIN", 0.02)
    notices = asyncio.Queue()
    with Postgres.temporary() as server:
        database = Database(server.create("one"))
        listening = asyncio.create_task(database.listen("news", notices.put_nowait))

        await until(lambda: notified(database, notices))
        server.stop()
        await idle(0.2)
        assert not listening.done()
        server.start()
        [*drained(notices)]
        await until(lambda: notified(database, notices))
        listening.cancel()
        await database.close()


async def test_store_exists_once_something_is_stored(store_url):
    assert Database("sqlite://").exists()
    database = Database(store_url)
    assert database.exists() == database.notifies  # a server may hold anything
    async with database.writing():
        assert database.exists()
    await database.close()


# from before


def as_it_was(connection):
    """Create the schema of the first release."""
    migrations.upgrade(connection, "0001")


async def test_migration_upgrades_a_database_of_the_first_release(store_url):
    old = Database(store_url)
    async with (await old._opened()).writes.begin() as db:
        await db.run_sync(as_it_was)
        for statement in (
            "INSERT INTO threads VALUES ('r', 't', NULL, NULL, 2, 30, 7)",
            "INSERT INTO responses VALUES ('r', 't', 'r', 0, 1, 2, :body)",
            "INSERT INTO items VALUES ('r', 0, 't', 'a', :a), ('r', 1, 't', 'b', :b)",
        ):
            bodies = {"body": b'{"id":"r","output":[]}', "a": b'{"id":"a"}', "b": b'{"id":"b"}'}
            await db.execute(text(statement), {name: body for name, body in bodies.items() if f":{name}" in statement})
    await old.close()
    database = Database(store_url)
    async with database.writing() as db:
        found = await responses.find(db, "t", "r")
        assert await responses.response_object(db, found) == {"id": "r", "output": numbered("b")}
        await begin(db, "s", parent=found.behind)
        done = await finish(db, "s")
        assert await item_ids(db, done) == ["a", "b", "s-in", "s-out"]
        assert done.start_position == ListPosition("r", 2)
    await database.close()
