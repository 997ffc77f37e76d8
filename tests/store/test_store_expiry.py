"""Test the sweep: it deletes unused, expired and excess rows and nothing else."""

import asyncio
import itertools
import random
from contextlib import asynccontextmanager

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from gateway.store import (
    Database,
    chat_completions,
    conversations,
    event_logs,
    expiry,
    idempotency_keys,
    item_lists,
    jobs,
    reasoning_memory,
    responses,
    tables,
)
from gateway.store.expiry import expire as sweep_all
from gateway.store.records import IdempotencyState, NewJob, NewResponse
from support.sampling import examples

TTL = 100
HERE = [{"id": "a", "text": "x" * 100}]


async def add(db, id, now, behind=None, count=1):
    """Save a response; behind: the id of the one that it continues."""
    place = (await responses.find(db, "t", behind)).behind if behind else None
    await responses.save(db, "t", {"id": id, "output": []}, HERE * count, place, now)


async def left(database, table=tables.responses):
    async with database.reading() as db:
        return {*await db.scalars(select(table.c.id))}


async def rows(database):
    async with database.reading() as db:
        return {
            table.name: await db.scalar(select(func.count()).select_from(table))
            for table in tables.metadata.sorted_tables
        }


async def test_store_sweep_deletes_unused_rows_with_all_that_depend_on_them(store):
    async with store.writing() as db:
        await add(db, "old", 0)
        await add(db, "extended", 0)
        await add(db, "more", 50, "extended")
        await add(db, "new", 50)
        await conversations.create(db, "t", "old conversation", {}, HERE, 0)
        await chat_completions.save(
            db, "t", {"id": "old completion", "created": 0, "model": "m", "metadata": {"a": "b"}}, HERE, 0
        )
        await reasoning_memory.save(db, "t", [("old", "a")], 0)
        await reasoning_memory.save(db, "t", [("new", "a")], 50)
    await sweep_all(store, 100, TTL, 0)
    assert (await rows(store))["responses"] == 4
    await sweep_all(store, 101, TTL, 0)
    assert await left(store) == {"extended", "more", "new"}
    assert await rows(store) == {
        "threads": 2, "items": 3, "responses": 3, "conversations": 0, "completions": 0, "labels": 0, "keys": 0, "thoughts": 1,
        "jobs": 0, "requests": 0, "events": 0, "uses": 0, "api_keys": 0, "daily_usage": 0, "audit_log": 0,
        "files": 0, "uploads": 0, "blobs": 0, "chunks": 0, "batches": 0, "results": 0,
    }  # fmt: skip


async def test_store_sweep_with_ttl_zero_deletes_nothing(store):
    async with store.writing() as db:
        await add(db, "old", 0)
    await sweep_all(store, 10**9, 0, 0)
    assert await left(store) == {"old"}


async def test_store_sweep_keeps_the_parents_of_a_live_chain(store):
    async with store.writing() as db:
        await add(db, "a", 0)
        await add(db, "b", 0, "a")
        await add(db, "c", 0, "a")  # a thread of its own
        await add(db, "d", 0, "a")
        await add(db, "e", 0, "c")
        await add(db, "f", 90, "c")
    await sweep_all(store, 150, TTL, 0)
    assert await left(store) == {"a", "b", "c", "e", "f"}
    await sweep_all(store, 191, TTL, 0)
    assert await rows(store) == dict.fromkeys(await rows(store), 0)


async def test_store_sweep_deletes_the_longest_unused_above_the_size_limit(store):
    async with store.writing() as db:
        for number in range(10):
            await add(db, f"r{number}", number)
        await reasoning_memory.save(db, "t", [("old", "x" * 100)], 2)
        size = await db.scalar(select(func.sum(tables.threads.c.bytes)))
    await sweep_all(store, 100, 0, size + 100)
    assert len(await left(store)) == 10
    await sweep_all(store, 100, 0, size // 2)
    assert await left(store) == {"r5", "r6", "r7", "r8", "r9"}
    assert (await rows(store))["thoughts"] == 0


async def test_store_sweep_keeps_rows_in_use_above_the_size_limit(store):
    async with store.writing() as db:
        await add(db, "now", 100)
    await sweep_all(store, 100, 0, 1)
    assert await left(store) == {"now"}


async def test_store_sweep_deletes_expired_idempotency_keys(store):
    async with store.writing() as db:
        await idempotency_keys.begin(db, "t", "old", "d", "a", 0)
        await idempotency_keys.begin(db, "t", "new", "d", "a", 10)
    await sweep_all(store, 605, 0, 0)
    assert (await rows(store))["keys"] == 1
    async with store.writing() as db:
        assert await idempotency_keys.begin(db, "t", "new", "d", "a", 20) is IdempotencyState.NEW


async def test_store_sweep_deletes_expired_event_logs(store):
    row = event_logs.LogRow(0, 0, b"abc")
    async with store.writing() as db:
        for id, now in [("expires", 100), ("lasts", 100), ("packed", 100), ("old", 0)]:
            await add(db, id, now)
            await event_logs.append(db, [(id, row), (id, event_logs.LogRow(1, 1, b"def"))])
        await event_logs.expire(db, "expires", 105)
    await event_logs.pack(store, "packed")

    async def there():
        async with store.reading() as db:
            return [id for id in ("expires", "lasts", "packed", "old") if await event_logs.read(db, id, -1, 9)]

    await sweep_all(store, 105, 0, 0)
    assert await there() == ["expires", "lasts", "packed", "old"]
    await sweep_all(store, 106, 0, 0)
    assert await there() == ["lasts", "packed", "old"]
    await sweep_all(store, 106, TTL, 0)
    assert await there() == ["lasts", "packed"]
    assert await left(store) == {"expires", "lasts", "packed"}


async def test_store_sweep_counts_packed_event_logs(store):
    async with store.writing() as db:
        await add(db, "small", 1)
        await add(db, "large", 0)
        await event_logs.append(db, [("large", event_logs.LogRow(0, 0, random.Random(7).randbytes(10_000)))])
        size = await db.scalar(select(func.sum(tables.threads.c.bytes)))
    await sweep_all(store, 100, 0, size)
    assert await left(store) == {"small", "large"}
    await event_logs.pack(store, "large")
    await sweep_all(store, 100, 0, size)
    assert await left(store) == {"small"}


async def test_store_sweep_spares_running_jobs_and_their_parents(store):
    """Its age counts from its end."""
    async with store.writing() as db:
        await add(db, "first", 0)
        behind = (await responses.find(db, "t", "first")).behind
        await responses.begin(db, [NewResponse("t", {"id": "job", "output": []}, HERE, 0, behind)])
        await jobs.begin(db, [NewJob("t", "job", b"", "a", 0, 1)])
    await sweep_all(store, 10**9, TTL, 1)
    assert await left(store) == {"first", "job"}
    async with store.writing() as db:
        await responses.finish(db, "t", {"id": "job", "output": HERE}, None, 50)
        await jobs.end(db, ["job"], "a")
    await sweep_all(store, 150, TTL, 0)
    assert await left(store) == {"first", "job"}
    await sweep_all(store, 151, TTL, 0)
    assert await rows(store) == dict.fromkeys(await rows(store), 0)


async def test_store_sweep_limits_the_reasoning_memory_of_a_tenant(store, monkeypatch):
    monkeypatch.setattr(expiry, "MAX", 3)
    async with store.writing() as db:
        for number in range(5):
            await reasoning_memory.save(db, "t", [(f"k{number}", "a")], number)
        await reasoning_memory.save(db, "other", [("k0", "a")], 0)
    await sweep_all(store, 10, 0, 0)
    async with store.reading() as db:
        assert [*await reasoning_memory.find(db, "t", [f"k{number}" for number in range(5)])] == ["k2", "k3", "k4"]
        assert await reasoning_memory.find(db, "other", ["k0"])


class Counting(Database):
    """A database that counts its items before each writing transaction."""

    async def item_count(self):
        async with self.reading() as db:
            return await db.scalar(select(func.count()).select_from(tables.items))

    @asynccontextmanager
    async def writing(self):
        self.counts.append(await self.item_count())
        async with super().writing() as db:
            yield db


async def test_store_sweep_uses_small_transactions(store_url, monkeypatch):
    """Each transaction deletes a few rows, or one longer thread."""
    monkeypatch.setattr(expiry, "_ROWS", 10)
    database = Counting(store_url)
    database.counts = []
    async with database.writing() as db:
        for number in range(12):
            await add(db, f"r{number}", number, count=4)
        await add(db, "long", 5, count=30)
    database.counts = []
    await sweep_all(database, 1000, TTL, 0)
    steps = [before - after for before, after in itertools.pairwise(database.counts)]
    assert sum(steps) == 78 and await database.item_count() == 0
    assert all(step <= 12 or 30 <= step <= 38 for step in steps)
    await database.close()


async def test_store_sweep_runs_in_several_processes_beside_writers(store_url):
    databases = [Database(store_url) for _ in range(3)]
    async with databases[0].writing() as db:
        await add(db, "first", 1000)
        for number in range(60):
            await add(db, f"old{number}", 0)

    async def save(database):
        for number in range(10):
            async with database.writing() as db:
                await add(db, f"new{number}", 1000, "first")

    await asyncio.gather(save(databases[0]), *(sweep_all(one, 1000, TTL, 0) for one in databases[1:]))
    assert await left(databases[0]) == {"first", *(f"new{number}" for number in range(10))}
    for database in databases:
        await database.close()


def test_store_sweep_breaks_no_live_thread_and_keeps_no_dead_one(store_url):
    """Sweep random trees of threads: each thread left can be read to its beginning, and each deleted one is old."""
    trees = st.lists(st.tuples(st.integers(0, 200), st.none() | st.integers(0, 30)), max_size=15)

    async def check(tree):
        database = Database(store_url)
        await sweep_all(database, 10**6, 1, 0)
        used = {}
        async with database.writing() as db:
            for number, (at, onto) in enumerate(tree):
                parent = item_lists.ListPosition(f"t{onto % number}", 0) if onto is not None and number else None
                await item_lists.begin(db, item_lists.ItemList(f"t{number}", "t", (), at, parent))
                used[f"t{number}"] = at
                if parent:
                    used[parent.thread] = at
        await sweep_all(database, 200, TTL, 0)
        stay = await left(database, tables.threads)
        assert {id for id, at in used.items() if at >= 100} <= stay
        children = set()
        async with database.reading() as db:
            for id in stay:
                line = await item_lists.ranges(db, item_lists.ListPosition(id, 0))
                children |= {one.thread for one in line[:-1]}
        assert all(used[id] >= 100 for id in stay - children)
        await database.close()

    @settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(trees)
    def play(tree):
        asyncio.run(check(tree))

    play()
