"""Drive SQLite with one round trip per statement.

SQLite's driver has a thread per connection, and a round trip to it costs more than a statement.  With aiosqlite's own
cursors a statement is three or four: create a cursor, execute, fetch, close.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Self, TypeVar

import aiosqlite

PRAGMAS = ("synchronous=NORMAL", "foreign_keys=ON")  # of each connection
_T = TypeVar("_T")


class SqliteConnection(aiosqlite.Connection):
    """A connection whose cursors are used once: for one statement and all its rows, as SQLAlchemy does."""

    _stopped: asyncio.Future[Any] | None = None

    async def run(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Return `work(connection, *arguments)`, called in the thread with sqlite3's connection."""
        result: _T = await self._execute(self._call, work, arguments)  # type: ignore[no-untyped-call]
        return result

    def _call(self, work: Callable[..., _T], arguments: Sequence[object]) -> _T:
        return work(self._conn, *arguments)

    def cursor(self) -> Any:  # noqa: ANN401 - of another class than aiosqlite's
        """Return a new cursor."""
        return _SqliteCursor(self)

    def stop(self) -> asyncio.Future[Any] | None:
        """Stop the thread, and return a future of its end.  Unlike aiosqlite's, it may be called more than once."""
        self._stopped = self._stopped or super().stop()
        return self._stopped


class _SqliteCursor:
    description: Any = None
    rowcount = -1
    lastrowid: int | None = None

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._rows: list[Any] = []

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        await self._do(sqlite3.Cursor.execute, sql, parameters)

    async def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        await self._do(sqlite3.Cursor.executemany, sql, parameters)

    async def _do(self, *what: object) -> None:
        await self._connection._execute(self._run, *what)  # type: ignore[no-untyped-call]  # as aiosqlite's cursors do

    def _run(self, execute: Callable[..., object], sql: str, parameters: Sequence[Any]) -> None:
        """Run a statement in the connection's thread.

        The cursor is closed there: then it holds no lock, even if it is still referenced.
        """
        with closing(self._connection._conn.cursor()) as cursor:
            execute(cursor, sql, parameters)
            self._rows = cursor.fetchall()  # fetches first: returned rows count as affected only when they are fetched
            self.description, self.rowcount, self.lastrowid = cursor.description, cursor.rowcount, cursor.lastrowid

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def close(self) -> None:
        """Do nothing: the cursor is closed already."""


def connect(file: str, **options: Any) -> SqliteConnection:  # noqa: ANN401 - sqlite3's
    """Open an SQLite database; used by SQLAlchemy's engine."""
    return connection_with(partial(sqlite3.connect, file, **options))


def connection_with(connector: Callable[[], sqlite3.Connection]) -> SqliteConnection:
    """Return a connection to await, which the connector opens."""
    connection = SqliteConnection(connector, iter_chunk_size=0)
    connection._thread.daemon = True  # the process may end without waiting for the thread
    return connection
