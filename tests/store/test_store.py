"""Databases: their URLs, their schema, their transactions, and what they can fail with."""

import asyncio
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import exc, func, insert, select, text

import gateway
from gateway.errors import StoreFailed
from gateway.store import Database, conversations, threads
from gateway.store.tables import as_stored, metadata
from gateway.store.tables import threads as table
from support.postgres import Postgres

ROW = {"tenant": "", "length": 0, "bytes": 0, "used_at": 0}


async def add(db, id):
    await db.execute(insert(table).values(id=id, **ROW))


async def count(database):
    async with database.reading() as db:
        return await db.scalar(select(func.count()).select_from(table))


async def failing(database):
    """What a client gets when it reads and when it writes."""
    with pytest.raises(StoreFailed) as failed:
        await count(database)
    problem = failed.value.problem
    assert (problem.status, problem.type, problem.code) == (503, "server_error", "store_unavailable")
    assert failed.value.__cause__
    with pytest.raises(StoreFailed):
        async with database.writing() as db:
            await add(db, "a")


def differences(connection):
    return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)


async def test_the_migrations_make_the_tables_that_the_code_knows(store):
    async with store.writing() as db:
        assert await db.run_sync(differences) == []
        await db.execute(text("DROP INDEX threads_by_use"))
        assert len(await db.run_sync(differences)) == 1


async def test_a_block_is_written_as_a_whole_or_not_at_all(store):
    with pytest.raises(KeyError):
        async with store.writing() as db:
            await add(db, "a")
            raise KeyError
    assert await count(store) == 0
    async with store.writing() as db:
        await add(db, "a")
        await add(db, "b")
    assert await count(store) == 2


async def test_a_cancelled_block_leaves_nothing_and_nobody_waits_for_it(store):
    async def write():
        async with store.writing() as db:
            await add(db, "a")
            await asyncio.sleep(60)

    await count(store)
    task = asyncio.create_task(write())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with store.writing() as db:
        await add(db, "a")
    assert await count(store) == 1


async def test_whenever_a_request_is_cancelled_nobody_has_to_wait_for_it(store_url):
    """In the middle of opening the database, of a statement, of a commit: no lock stays, no connection is left over."""

    async def work(database, id):
        await count(database)
        async with database.writing() as db:
            await add(db, id)
            await db.scalar(select(func.count()).select_from(table))

    for moment in range(30):
        database = Database(store_url)
        if moment % 2:
            await count(database)
        tasks = [asyncio.create_task(work(database, f"{moment}-{number}")) for number in range(3)]
        await asyncio.sleep(moment * 0.001)
        for task in tasks:
            task.cancel()
        said = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(one) for one in said} <= {asyncio.CancelledError, type(None)}
        async with asyncio.timeout(3), database.writing() as db:
            await add(db, f"{moment}")
        await database.close()


async def test_reading_sees_one_state(store):
    async with store.reading() as db:
        before = await db.scalar(select(func.count()).select_from(table))
        async with store.writing() as other:
            await add(other, "a")
        assert await db.scalar(select(func.count()).select_from(table)) == before == 0
    assert await count(store) == 1


async def test_writers_wait_for_each_other(store):
    """None of them fails because another one wrote between its reading and its writing."""

    async def grow():
        async with store.writing() as db:
            there = await db.scalar(select(func.count()).select_from(table))
            await threads.begin(db, threads.Thread(f"t{there}-{id(db)}", "", (), 0))

    await asyncio.gather(*(grow() for _ in range(12)))
    assert await count(store) == 12


async def test_a_mistake_is_no_failure_of_the_database(store):
    async with store.writing() as db:
        await add(db, "a")
    with pytest.raises(exc.IntegrityError):
        async with store.writing() as db:
            await add(db, "a")


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+aiosqlite", "sqlite+pysqlite"])
async def test_a_file_is_made_where_the_url_says(scheme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url, file in [("/./near.db", tmp_path / "near.db"), (f"/{tmp_path}/far.db", tmp_path / "far.db")]:
        database = Database(f"{scheme}://{url}")
        assert await count(database) == 0
        await database.close()
        assert file.read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
async def test_a_database_in_memory_is_one_for_all(url):
    database = Database(url)

    async def write(id):
        async with database.writing() as db:
            await add(db, id)

    await asyncio.gather(*map(write, "abc"))
    assert await count(database) == 3
    await database.close()


async def test_a_url_of_postgresql_may_say_what_its_own_tools_understand(postgres):
    plain = postgres.create("urls")
    for url in (f"{plain}&sslmode=disable", plain.replace("://", "+asyncpg://"), plain.replace("@", ":pa%40ss@")):
        database = Database(url)
        assert await count(database) == 0
        await database.close()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1:1/db",
        "sqlite:////no/such/folder/gateway.db",
        "sqlite:////dev/null/gateway.db",
        "sqlite:////proc",
    ],
)
async def test_a_database_that_is_not_there(url):
    database = Database(url)
    await failing(database)
    await database.close()


async def test_a_file_that_is_no_database(tmp_path):
    (tmp_path / "a.db").write_bytes(b"not a database" * 1000)
    database = Database(f"sqlite:///{tmp_path}/a.db")
    await failing(database)
    await database.close()


async def test_a_database_of_another_name_and_a_role_that_is_none(postgres):
    for url in (postgres.url("nothing"), postgres.url().replace("postgres@", "nobody@")):
        database = Database(url)
        await failing(database)
        await database.close()


async def test_a_database_that_may_only_be_read(tmp_path):
    writable = Database(f"sqlite:///{tmp_path}/a.db")
    assert await count(writable) == 0
    await writable.close()
    database = Database(f"sqlite:///file:{tmp_path}/a.db?mode=ro&uri=true")
    assert await count(database) == 0
    with pytest.raises(StoreFailed):
        async with database.writing() as db:
            await add(db, "a")
    await database.close()


async def test_a_database_that_is_locked_for_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.store.engines._WAIT", 0.1)
    database = Database(f"sqlite:///{tmp_path}/a.db")
    assert await count(database) == 0
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreFailed):
        async with database.writing() as db:
            await add(db, "a")
    assert await count(database) == 0  # reading goes on
    other.execute("COMMIT")
    other.close()
    async with database.writing() as db:
        await add(db, "a")
    assert await count(database) == 1
    await database.close()


async def test_several_that_open_a_new_file_at_once(tmp_path):
    """Without waiting for each other some would be told that it is locked."""
    for number in range(30):
        databases = [Database(f"sqlite:///{tmp_path}/{number}.db") for _ in range(3)]
        assert await asyncio.gather(*map(count, databases)) == [0, 0, 0]
        for one in databases:
            await one.close()


async def test_a_new_file_that_stays_locked(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.store.engines._WAIT", 0.1)
    database = Database(f"sqlite:///{tmp_path}/a.db")
    with closing(sqlite3.connect(tmp_path / "a.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        await failing(database)
        other.rollback()
    assert await count(database) == 0
    await database.close()


async def test_more_transactions_than_there_are_connections(store_url, monkeypatch):
    monkeypatch.setattr("gateway.store.engines._WAIT", 1)
    database = Database(store_url)
    assert await count(database) == 0
    held = [database.reading() for _ in range(15)]
    for one in held:
        await one.__aenter__()
    with pytest.raises(StoreFailed):
        await count(database)
    for one in held:
        await one.__aexit__(None, None, None)
    assert await count(database) == 0
    await database.close()


async def test_a_file_that_is_gone(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/a.db")
    assert await count(database) == 0
    await database.close()
    for file in tmp_path.iterdir():
        file.unlink()
    await failing(database)
    await database.close()


def filled(path):
    """How many threads a process writes that may not make files larger than a megabyte."""
    code = (
        "import asyncio\n"
        "from gateway.errors import StoreFailed\n"
        "from gateway.store import Database, threads\n"
        "async def main():\n"
        f"    database = Database('sqlite:///{path}')\n"
        "    try:\n"
        "        for i in range(100):\n"
        "            async with database.writing() as db:\n"
        "                await threads.begin(db, threads.Thread(f't{i}', '', [{'text': 'x' * 50_000}], 0))\n"
        "    except StoreFailed as error:\n"
        "        print(i)\n"
        "    await database.close()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)),
        capture_output=True,
        cwd=Path(gateway.__file__).parent.parent,
        timeout=60,
        check=True,
    )
    return int(done.stdout)


async def test_a_disk_that_is_full(tmp_path):
    """What was written stays, and all goes on once there is room."""
    written = await asyncio.to_thread(filled, tmp_path / "a.db")
    assert 1 < written < 100
    database = Database(f"sqlite:///{tmp_path}/a.db")
    assert await count(database) == written
    async with database.writing() as db:
        await add(db, "more")
    await database.close()


async def test_a_server_that_stops_and_comes_back():
    with Postgres.temporary() as server:
        database = Database(server.create("one"))
        async with database.writing() as db:
            await add(db, "a")
        with pytest.raises(StoreFailed):
            async with database.writing() as db:
                await add(db, "b")
                server.stop()
                await add(db, "c")
        await failing(database)
        server.start()
        assert await count(database) == 1
        await database.close()


def test_an_id_that_no_database_takes_is_kept_as_its_hash():
    assert as_stored("resp_1") == "resp_1" and as_stored("é" * 128) == "é" * 128
    hostile = ["a\0", "b\0", "x" * 129, "y" * 129]
    assert len({*map(as_stored, hostile)}) == 4
    assert all(len(as_stored(id)) == 64 for id in hostile)


@pytest.mark.parametrize("id", ["\0", "a\0b", "x" * 10_000, "é" * 200, "'; DROP TABLE items; --", "%_"])
async def test_hostile_ids_are_as_good_as_any(store, id):
    async with store.writing() as db:
        await conversations.create(db, "t", "conv_1", {"a\0": "b\0"}, [{"id": id, "text": "\0"}], 0)
        assert await conversations.find(db, "t", id) is None
        found = await conversations.find(db, "t", "conv_1")
        assert found.metadata == {"a\0": "b\0"}
        assert await threads.by_id(db, "t", [id]) == {id: {"id": id, "text": "\0"}}
        assert await threads.find(db, "t", [found.items], id) == threads.Place("conv_1", 0)


async def test_an_error_does_not_tell_what_was_said(store):
    with pytest.raises((StoreFailed, exc.ProgrammingError)) as error:
        async with store.reading() as db:
            await db.execute(text("SELECT 1 FROM nowhere WHERE said = :said"), {"said": "a secret"})
    told = f"{error.value} {error.value.__cause__}"
    assert "nowhere" in told and "a secret" not in told
