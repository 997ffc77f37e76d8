"""Test databases: URLs, schema, transactions and failures."""

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
from gateway.store import Database, conversations, item_lists
from gateway.store.tables import as_stored, metadata
from gateway.store.tables import threads as table
from support.postgres import Postgres
from support.wait import DEADLINE, idle

ROW = {"tenant": "", "length": 0, "bytes": 0, "used_at": 0}


async def add(db, id):
    await db.execute(insert(table).values(id=id, **ROW))


async def count(database):
    async with database.reading() as db:
        return await db.scalar(select(func.count()).select_from(table))


async def failing(database):
    """Assert that reading and writing fail with 503."""
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


async def test_store_migrations_create_the_declared_tables(store):
    async with store.writing() as db:
        assert await db.run_sync(differences) == []
        await db.execute(text("DROP INDEX threads_by_use"))
        assert len(await db.run_sync(differences)) == 1


async def test_store_transaction_is_atomic(store):
    with pytest.raises(KeyError):
        async with store.writing() as db:
            await add(db, "a")
            raise KeyError
    assert await count(store) == 0
    async with store.writing() as db:
        await add(db, "a")
        await add(db, "b")
    assert await count(store) == 2


async def test_store_transaction_that_is_cancelled_leaves_no_rows_and_no_lock(store):
    inside = asyncio.Event()

    async def write():
        async with store.writing() as db:
            await add(db, "a")
            inside.set()
            await asyncio.Event().wait()

    await count(store)
    task = asyncio.create_task(write())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with store.writing() as db:
        await add(db, "a")
    assert await count(store) == 1


async def test_store_holds_no_lock_whenever_a_request_is_cancelled(store_url):
    """Cancellation may hit the opening of the database, a statement or a commit."""

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
        await idle(moment * 0.001)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(one) for one in results} <= {asyncio.CancelledError, type(None)}
        async with asyncio.timeout(DEADLINE), database.writing() as db:
            await add(db, f"{moment}")
        await database.close()


async def test_store_read_transaction_sees_one_snapshot(store):
    async with store.reading() as db:
        before = await db.scalar(select(func.count()).select_from(table))
        async with store.writing() as other:
            await add(other, "a")
        assert await db.scalar(select(func.count()).select_from(table)) == before == 0
    assert await count(store) == 1


async def test_store_writers_wait_for_each_other(store):
    """No writer fails because another one wrote between its read and its write."""

    async def grow():
        async with store.writing() as db:
            there = await db.scalar(select(func.count()).select_from(table))
            await item_lists.begin(db, item_lists.ItemList(f"t{there}-{id(db)}", "", (), 0))

    await asyncio.gather(*(grow() for _ in range(12)))
    assert await count(store) == 12


async def test_store_passes_integrity_errors_on(store):
    async with store.writing() as db:
        await add(db, "a")
    with pytest.raises(exc.IntegrityError):
        async with store.writing() as db:
            await add(db, "a")


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+aiosqlite", "sqlite+pysqlite"])
async def test_store_creates_the_sqlite_file_of_its_url(scheme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url, file in [("/./near.db", tmp_path / "near.db"), (f"/{tmp_path}/far.db", tmp_path / "far.db")]:
        database = Database(f"{scheme}://{url}")
        assert await count(database) == 0
        await database.close()
        assert file.read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
async def test_store_in_memory_is_shared_by_all_connections(url):
    database = Database(url)

    async def write(id):
        async with database.writing() as db:
            await add(db, id)

    await asyncio.gather(*map(write, "abc"))
    assert await count(database) == 3
    await database.close()


async def test_store_accepts_url_forms_of_postgresql_tools(postgres):
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
async def test_store_fails_with_503_if_the_database_is_missing(url):
    database = Database(url)
    await failing(database)
    await database.close()


async def test_store_fails_with_503_if_the_file_is_no_database(tmp_path):
    (tmp_path / "a.db").write_bytes(b"not a database" * 1000)
    database = Database(f"sqlite:///{tmp_path}/a.db")
    await failing(database)
    await database.close()


async def test_store_fails_with_503_for_an_unknown_database_or_role(postgres):
    for url in (postgres.url("nothing"), postgres.url().replace("postgres@", "nobody@")):
        database = Database(url)
        await failing(database)
        await database.close()


async def test_store_reads_a_read_only_file_and_fails_to_write(tmp_path):
    writable = Database(f"sqlite:///{tmp_path}/a.db")
    assert await count(writable) == 0
    await writable.close()
    database = Database(f"sqlite:///file:{tmp_path}/a.db?mode=ro&uri=true")
    assert await count(database) == 0
    with pytest.raises(StoreFailed):
        async with database.writing() as db:
            await add(db, "a")
    await database.close()


async def test_store_fails_to_write_while_the_file_is_locked(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.store.engines._LOCKED", 0.1)
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


async def test_store_file_can_be_opened_by_several_at_once(tmp_path):
    """The first connections wait for each other instead of failing."""
    for number in range(30):
        databases = [Database(f"sqlite:///{tmp_path}/{number}.db") for _ in range(3)]
        assert await asyncio.gather(*map(count, databases)) == [0, 0, 0]
        for one in databases:
            await one.close()


async def test_store_fails_with_503_if_a_new_file_stays_locked(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.store.engines._LOCKED", 0.1)
    database = Database(f"sqlite:///{tmp_path}/a.db")
    with closing(sqlite3.connect(tmp_path / "a.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        await failing(database)
        other.rollback()
    assert await count(database) == 0
    await database.close()


async def test_store_fails_if_all_connections_are_taken(store_url, monkeypatch):
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


async def test_store_fails_with_503_if_its_file_is_deleted(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/a.db")
    assert await count(database) == 0
    for file in tmp_path.iterdir():
        file.unlink()
    await failing(database)
    await database.close()


def filled(path):
    """Return how many threads a process writes whose files may not exceed a megabyte."""
    code = (
        "import asyncio\n"
        "from gateway.errors import StoreFailed\n"
        "from gateway.store import Database, item_lists\n"
        "async def main():\n"
        f"    database = Database('sqlite:///{path}')\n"
        "    try:\n"
        "        for i in range(100):\n"
        "            async with database.writing() as db:\n"
        "                await item_lists.begin(db, item_lists.ItemList(f't{i}', '', [{'text': 'x' * 50_000}], 0))\n"
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


async def test_store_keeps_its_rows_if_the_disk_is_full(tmp_path):
    """The rows stay, and writing goes on once there is room."""
    written = await asyncio.to_thread(filled, tmp_path / "a.db")
    assert 1 < written < 100
    database = Database(f"sqlite:///{tmp_path}/a.db")
    assert await count(database) == written
    async with database.writing() as db:
        await add(db, "more")
    await database.close()


async def test_store_reconnects_when_postgresql_is_back():
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


def test_store_keeps_hostile_ids_as_hashes():
    assert as_stored("resp_1") == "resp_1" and as_stored("é" * 128) == "é" * 128
    hostile = ["a\0", "b\0", "x" * 129, "y" * 129]
    assert len({*map(as_stored, hostile)}) == 4
    assert all(len(as_stored(id)) == 64 for id in hostile)


@pytest.mark.parametrize("id", ["\0", "a\0b", "x" * 10_000, "é" * 200, "'; DROP TABLE items; --", "%_"])
async def test_store_accepts_any_id(store, id):
    async with store.writing() as db:
        await conversations.create(db, "t", "conv_1", {"a\0": "b\0"}, [{"id": id, "text": "\0"}], 0)
        assert await conversations.find(db, "t", id) is None
        found = await conversations.find(db, "t", "conv_1")
        assert found.metadata == {"a\0": "b\0"}
        assert await item_lists.by_id(db, "t", [id]) == {id: {"id": id, "text": "\0"}}
        assert await item_lists.find(db, "t", [found.items], id) == item_lists.ListPosition("conv_1", 0)


async def test_store_error_does_not_show_parameters(store):
    with pytest.raises((StoreFailed, exc.ProgrammingError)) as error:
        async with store.reading() as db:
            await db.execute(text("SELECT 1 FROM nowhere WHERE said = :said"), {"said": "a secret"})
    error_text = f"{error.value} {error.value.__cause__}"
    assert "nowhere" in error_text and "a secret" not in error_text


async def test_store_files_are_their_owners_alone(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/a.db")
    async with database.writing() as db:
        await add(db, "a")
        assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    await database.close()
