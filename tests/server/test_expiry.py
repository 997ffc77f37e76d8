"""What is too old is deleted while the gateway runs, and a store that fails at it is no end of it."""

import asyncio
from contextlib import asynccontextmanager, suppress

from gateway.config import Store
from gateway.server.sweeping import sweep_for_ever
from gateway.store import Database, responses, threads

DAY = 86_400


@asynccontextmanager
async def swept(database, **settings):
    task = asyncio.create_task(sweep_for_ever(database, Store(**settings), seconds=0.02))
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def keep(database, id, now):
    async with database.writing() as db:
        await responses.save(db, "", {"id": id, "output": []}, [{"id": f"{id}_question"}], None, now)


async def found(database, id):
    async with database.reading() as db:
        return await responses.find(db, "", id)


async def test_what_was_not_used_for_so_many_days_goes(store, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 100 * DAY)
    await keep(store, "resp_old", 69 * DAY)
    await keep(store, "resp_new", 71 * DAY)
    async with swept(store, ttl_days=30), asyncio.timeout(10):
        while await found(store, "resp_old"):  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.01)
    assert await found(store, "resp_new")


async def test_what_is_too_much_goes(store, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 100 * DAY)
    for day in (97, 98):
        await keep(store, f"resp_{day}", day * DAY)
    async with store.reading() as db:
        size = await db.scalar(threads.threads.select().with_only_columns(threads.threads.c.bytes).limit(1))
    async with swept(store, max_bytes=size), asyncio.timeout(10):
        while await found(store, "resp_97"):  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.01)
    assert await found(store, "resp_98")


async def test_a_store_that_fails_is_tried_again(caplog):
    unreachable = Database("postgresql://postgres@/postgres?host=/nowhere/at/all")
    async with swept(unreachable) as task, asyncio.timeout(10):
        while len(caplog.messages) < 2:  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.01)
        assert not task.done()
    await unreachable.close()
    assert caplog.messages[0].startswith("what is too old could not be deleted: ")


async def test_where_nothing_was_stored_no_database_is_made(tmp_path):
    nothing = Database(f"sqlite:///{tmp_path}/a.db")
    async with swept(nothing):
        await asyncio.sleep(0.1)
    await nothing.close()
    assert [*tmp_path.iterdir()] == []
