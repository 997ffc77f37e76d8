"""Test the SQLite driver: trips to its thread, results, locks and closing."""

import asyncio
import logging
import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import bindparam, exc, insert, select, text, update

from gateway.errors import StoreFailed
from gateway.store import Database, responses
from gateway.store.sqlite_driver import connect
from gateway.store.tables import threads as table
from support.wait import DEADLINE

ROW = {"tenant": "", "length": 0, "bytes": 0, "used_at": 0}
ROWS = [{"id": f"t{number}", **ROW} for number in range(300)]


@pytest.fixture
async def file(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/a.db")
    async with database.writing() as db:
        await db.execute(insert(table), ROWS)
    yield database
    await database.close()


def trips(caplog):
    return sum(record.message.startswith("executing") for record in caplog.records)


async def test_store_driver_sends_a_statement_in_one_trip(file, caplog):
    caplog.set_level(logging.DEBUG, "aiosqlite")
    async with file.writing() as db:
        for statement, parameters in [
            (select(table), {}),
            (insert(table), {"id": "one", **ROW}),
            (insert(table), [{"id": "two", **ROW}, {"id": "three", **ROW}]),
            (update(table).returning(table.c.id), {"length": 1}),
        ]:
            caplog.clear()
            await db.execute(statement, parameters)
            assert trips(caplog) == 1


async def test_store_driver_saves_a_response_in_six_trips(file, caplog):
    """BEGIN, thread, items, response, COMMIT, and a final check that the transaction is over."""
    caplog.set_level(logging.DEBUG, "aiosqlite")
    caplog.clear()
    async with file.writing() as db:
        await responses.save(db, "t", {"id": "r", "output": [{"id": "b"}]}, [{"id": "a"}], None, 7)
    assert trips(caplog) == 6


async def test_store_driver_returns_rows_and_row_counts(file):
    async with file.writing() as db:
        assert [*await db.scalars(select(table.c.id).order_by(table.c.id))] == sorted(row["id"] for row in ROWS)
        assert (await db.execute(update(table).where(table.c.id < "t2").values(length=1))).rowcount == 112
        some = update(table).where(table.c.id == bindparam("this"))
        assert (await db.execute(some, [{"this": "t1", "length": 2}, {"this": "", "length": 2}])).rowcount == 1
        found = await db.execute(update(table).where(table.c.length == 2).values(bytes=5).returning(table.c.bytes))
        assert found.rowcount == 1 and found.all() == [(5,)]
        assert (await db.execute(text("SELECT 1 WHERE 0"))).all() == []


async def test_store_driver_holds_no_lock_after_a_failed_statement(file, tmp_path):
    """The lock is free although the error is still referenced."""
    with pytest.raises(exc.IntegrityError) as remembered:
        async with file.writing() as db:
            await db.execute(insert(table), ROWS[:1])
    with closing(sqlite3.connect(tmp_path / "a.db", timeout=0, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    assert remembered.tb


async def test_store_that_closes_waits_for_its_transactions(tmp_path):
    """A connection that comes back to a pool that was disposed of would stay open."""
    database = Database(f"sqlite:///{tmp_path}/a.db")
    async with database.writing() as db:
        closing_database = asyncio.create_task(database.close())
        await asyncio.sleep(0)
        await db.execute(insert(table), ROWS)
        assert not closing_database.done()
    await closing_database
    with pytest.raises(StoreFailed, match="is closed"):
        async with database.reading():
            pass


async def test_store_driver_connection_that_is_stopped_while_closing_ends(tmp_path):
    """The process may stop while it closes a connection whose transaction was cancelled."""
    connection = await connect(str(tmp_path / "a.db"))
    closing_it = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    connection.stop()
    async with asyncio.timeout(DEADLINE):
        await closing_it
    assert connection.stop().done()
    await asyncio.to_thread(connection._thread.join, DEADLINE)
    assert not connection._thread.is_alive()
