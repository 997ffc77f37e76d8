"""Test the check of a store, which creates and migrates nothing."""

import sys

import pytest

from gateway.server.process.dependencies import rights_problem, store_problem
from gateway.store import Database
from support.cli import closing_server
from support.ports import free_port


def test_store_check_accepts_a_store_that_does_not_exist_yet(tmp_path):
    assert store_problem(f"sqlite:///{tmp_path}/new.db") == ""
    assert [*tmp_path.iterdir()] == []
    assert store_problem("sqlite:///:memory:") == ""


async def test_store_check_accepts_a_store_in_use(tmp_path):
    database = Database(url := f"sqlite:///{tmp_path}/a.db?timeout=5")
    async with database.writing():
        assert store_problem(url) == ""
    await database.close()


def test_store_check_says_why_a_file_cannot_be_used(tmp_path):
    (tmp_path / "text.db").write_text("this is no database, and long enough to be looked at " * 99)
    assert store_problem(f"sqlite:///{tmp_path}/text.db") == (
        "the file cannot be used: file is not a database; move it away, or check store.url"
    )
    assert store_problem(f"sqlite:///{tmp_path}/none/a.db") == (
        f"the directory {tmp_path}/none does not exist; create it, or check store.url"
    )


def test_store_check_says_what_is_read_only(tmp_path):
    file = tmp_path / "a.db"
    url, advice = f"sqlite:///{file}", "; make it writable, or check store.url"
    assert store_problem(url, lambda _: False) == f"the directory {tmp_path} is read-only for the gateway{advice}"
    file.touch()
    assert store_problem(url, lambda path: path != file) == f"the file is read-only for the gateway{advice}"


def test_store_check_connects_to_postgresql(postgres):
    url = postgres.create("checked")
    assert store_problem(url) == ""
    assert store_problem(url.replace("/postgres?", "/nowhere?")) == (
        'database "nowhere" does not exist; create it, for example with `createdb`, or check store.url'
    )
    assert store_problem(url.replace("checked", "nowhere")) == (
        "the search path names no schema that exists; create one, or check search_path in store.url"
    )
    assert store_problem(url.replace("postgres@", "pg_monitor@")) == (
        'role "pg_monitor" is not permitted to log in; check the user in store.url, and pg_hba.conf of the server'
    )


@pytest.mark.parametrize(
    ("rights", "problem"),
    [
        ((False, True, "public", "ada", False), ""),
        ((True, True, "public", "ada", True), "the server is a read-only standby; name the primary in store.url"),
        (
            (False, False, "public", "ada", False),
            "user 'ada' may not create tables; run: GRANT CREATE ON SCHEMA public TO ada",
        ),
    ],
)
async def test_store_check_explains_missing_rights(rights, problem):
    assert await rights_problem(Session(rights)) == problem


class Session:
    """A connection to PostgreSQL that gives one row."""

    def __init__(self, row):
        self._row = row

    async def fetchrow(self, _):
        return self._row


def test_store_check_names_the_missing_driver(monkeypatch):
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    assert store_problem("postgresql://u@127.0.0.1/db").startswith("the package asyncpg is not installed; run: ")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u@127.0.0.1:{port}/db", "connection refused; is PostgreSQL running?"),
        ("postgresql://u@no.invalid:{port}/db", "the host name cannot be resolved; check store.url"),
        ("postgresql://u@127.0.0.1:{port}/db?sslmode=maybe", "store.url is invalid: "),
    ],
)
def test_store_check_says_why_postgresql_cannot_be_reached(url, words):
    assert store_problem(url.format(port=free_port())).startswith(words)


def test_store_check_recognizes_another_server():
    with closing_server() as port:
        assert store_problem(f"postgresql://u@127.0.0.1:{port}/db?sslmode=require") == (
            "the server closed the connection; is it PostgreSQL, and does it accept the sslmode of store.url?"
        )
