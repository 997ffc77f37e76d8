"""Test the expiry of what is stored: old and surplus responses are deleted, and a failing store is tried again."""

import asyncio
from contextlib import asynccontextmanager, suppress

from gateway.config import StoreSettings
from gateway.server.app import expire_forever
from gateway.store import Database, item_lists, responses
from gateway.store.file_store import FileStore
from support.faults import fail_once
from support.wait import idle, until

DAY = 86_400


@asynccontextmanager
async def sweeping(database, **settings):
    task = asyncio.create_task(expire_forever(database, FileStore(database), StoreSettings(**settings), seconds=0.02))
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def keep(database, id, now):
    async with database.writing() as db:
        await responses.save(db, "", {"id": id, "output": []}, [{"id": f"{id}_question"}], None, now)


async def find(database, id):
    async with database.reading() as db:
        return await responses.find(db, "", id)


async def test_expiry_deletes_responses_unused_for_ttl_days(store, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 100 * DAY)
    await keep(store, "resp_old", 69 * DAY)
    await keep(store, "resp_new", 71 * DAY)
    async with sweeping(store, ttl_days=30):
        await until(lambda: find(store, "resp_old"), None)
    assert await find(store, "resp_new")


async def test_expiry_deletes_the_oldest_responses_beyond_max_bytes(store, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 100 * DAY)
    for day in (97, 98):
        await keep(store, f"resp_{day}", day * DAY)
    async with store.reading() as db:
        size = await db.scalar(item_lists.threads.select().with_only_columns(item_lists.threads.c.bytes).limit(1))
    async with sweeping(store, max_bytes=size):
        await until(lambda: find(store, "resp_97"), None)
    assert await find(store, "resp_98")


async def test_expiry_tries_a_failing_store_again(caplog):
    unreachable = Database("postgresql://postgres@/postgres?host=/nowhere/at/all")
    async with sweeping(unreachable) as task:
        await until(lambda: len(caplog.messages) >= 2)
        assert not task.done()
    await unreachable.close()
    assert caplog.messages[0].startswith("expired data could not be deleted: ")


async def test_expiry_makes_no_database_where_none_is(tmp_path):
    nothing = Database(f"sqlite:///{tmp_path}/a.db")
    async with sweeping(nothing):
        await idle(0.1)
    await nothing.close()
    assert [*tmp_path.iterdir()] == []


async def test_expiry_goes_on_after_a_programming_error(store, monkeypatch, caplog):
    await keep(store, "resp_old", 0)
    fail_once(monkeypatch, "gateway.store.expiry.expire")
    async with sweeping(store, ttl_days=30):
        await until(lambda: find(store, "resp_old"), None)
    assert "the deletion of expired data failed, the gateway tries again" in caplog.text
