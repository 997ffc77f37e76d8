"""Test transactions that run as a whole: in one trip to SQLite's thread, and over SQLAlchemy elsewhere."""

import asyncio
import logging
import sqlite3

import pytest
from sqlalchemy import bindparam, exc, insert, select, text

from gateway.store import Database, conversations, item_lists, responses
from gateway.store.direct import DirectSqlite
from gateway.store.records import ItemsMissing
from gateway.store.tables import threads
from support.store_jobs import numbered

ROW = {"tenant": "", "length": 0, "bytes": 0, "used_at": 0}
ONE = select(threads.c.length).where(threads.c.id == bindparam("this"))


def body(id):
    return {"id": id, "status": "completed", "output": numbered(f"{id}-out")}


async def saved(store, id, behind=None):
    """Save a response with one item of input, and return it."""

    async def save(db):
        await responses.save(db, "t", body(id), numbered(f"{id}-in"), behind, 7)
        return await responses.find(db, "t", id)

    return await store.run_writing(save)


async def chain(store, response):
    """Return the ids of all items up to the end of a response."""

    async def read(db):
        return await item_lists.read(db, await item_lists.ranges(db, response.behind))

    return [item["id"] for item in await store.run_reading(read)]


async def test_direct_transactions_store_what_others_read(store):
    first = await saved(store, "a")
    second, branch = await saved(store, "b", first.behind), await saved(store, "c", first.behind)
    assert await chain(store, second) == ["a-in", "a-out", "b-in", "b-out"]
    assert await chain(store, branch) == ["a-in", "a-out", "c-in", "c-out"]
    async with store.writing() as db:
        assert await responses.find(db, "t", "b") == second
        await responses.remove(db, first)
    with pytest.raises(ItemsMissing):
        await chain(store, branch)
    assert await store.run_reading(lambda db: responses.find(db, "t", "a")) is None


async def test_direct_transactions_use_conversations_and_their_leases(store):
    async with store.writing() as db:
        await conversations.create(db, "t", "conv", {"a": "b"}, numbered("x"), 7)
        assert await conversations.acquire(db, "conv", "me", 1, 1000)
        found = await conversations.find(db, "t", "conv")
    assert await store.run_reading(lambda db: conversations.find(db, "t", "conv")) == found
    await store.run_writing(lambda db: conversations.append(db, found, numbered("y"), 8))
    await store.run_writing(lambda db: conversations.release(db, "conv", "me"))
    assert await store.run_writing(lambda db: conversations.acquire(db, "conv", "another", 1, 1000))
    assert not await store.run_writing(lambda db: conversations.acquire(db, "conv", "me", 1, 1000))
    inside = await saved(store, "r", found)
    assert await chain(store, inside) == ["x", "y", "r-in", "r-out"]
    assert await store.run_reading(lambda db: item_lists.parent_position(db, "conv")) is None


async def test_direct_transaction_that_fails_changes_nothing(store):
    await saved(store, "a")
    with pytest.raises(exc.IntegrityError):
        await store.run_writing(
            lambda db: responses.begin(db, [responses.NewResponse("t", body(id), [], 7) for id in ("b", "a")])
        )
    assert await store.run_reading(lambda db: responses.find(db, "t", "b")) is None


async def test_direct_transaction_runs_in_memory():
    database = Database("sqlite://")
    assert await chain(database, await saved(database, "a")) == ["a-in", "a-out"]
    await database.close()


async def test_direct_transaction_is_one_trip(tmp_path, caplog):
    database = Database(f"sqlite:///{tmp_path}/a.db")
    first = await saved(database, "a")
    caplog.set_level(logging.DEBUG, "aiosqlite")
    await saved(database, "b", first.behind)
    assert sum(record.message.startswith("executing") for record in caplog.records) == 1
    await database.close()


@pytest.fixture
async def direct(tmp_path):
    """Transactions on a file that others cannot lock for long."""
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.execute("CREATE TABLE threads (id TEXT PRIMARY KEY, tenant, length, bytes, used_at, parent, parent_end)")
    db.close()
    direct = DirectSqlite(str(tmp_path / "a.db"), 0.01)
    yield direct
    await direct.close()


async def test_direct_transaction_that_waits_for_others_is_refused(direct):
    with pytest.raises(RuntimeError, match="its connection only"):
        await direct.run(lambda _: asyncio.sleep(0), writes=True)
    assert await direct.run(count, writes=True) == 0


async def test_direct_transaction_that_the_database_ended_leaves_none_open(direct):
    async def end(db):
        await db.execute(text("ROLLBACK"), {})
        raise ValueError

    with pytest.raises(ValueError):
        await direct.run(end, writes=True)
    assert await direct.run(count, writes=True) == 0


async def test_direct_connection_outlives_a_failed_statement(direct):
    kept = await direct.run(connection, writes=True)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await direct.run(lambda db: db.execute(text("SELECT * FROM missing"), {}), writes=True)
    assert await direct.run(connection, writes=True) is kept


async def connection(db):
    return db._cursor.connection


async def test_direct_transactions_at_once_share_a_connection(direct):
    assert await asyncio.gather(*(direct.run(count, writes=False) for _ in range(3))) == [0, 0, 0]


async def test_direct_transaction_refuses_lists_as_parameters(direct):
    some = select(threads.c.id).where(threads.c.id.in_(bindparam("ids")))
    with pytest.raises(AssertionError, match="no constant text"):
        await direct.run(lambda db: db.execute(some, {"ids": ["a"]}), writes=False)


async def test_direct_transaction_of_a_cancelled_caller_ends_first(direct):
    await direct.run(count, writes=True)
    working = asyncio.create_task(direct.run(lambda db: db.execute(insert(threads), {"id": "a", **ROW}), writes=True))
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await direct.run(count, writes=False) == 1


async def count(db):
    """Return the number of threads that are named a."""
    return len((await db.execute(ONE, {"this": "a"})).all())


async def test_direct_connection_to_a_damaged_file_is_replaced(direct, tmp_path):
    assert await direct.run(count, writes=False) == 0
    file = tmp_path / "a.db"
    good = file.read_bytes()
    file.write_bytes(b"garbage " * (len(good) // 8))
    damaged = await asyncio.gather(*(direct.run(count, writes=False) for _ in range(2)), return_exceptions=True)
    assert [*map(type, damaged)] == [sqlite3.DatabaseError] * 2
    file.write_bytes(good)
    kept = await direct.run(connection, writes=False)
    assert await direct.run(connection, writes=False) is kept
