"""SQLite's driver, which has a thread for each connection: a statement is one trip there, as a trip costs more than it.

By itself it takes three or four: to make a cursor, to execute, to fetch, to close.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Self

import aiosqlite


class SqliteConnection(aiosqlite.Connection):
    """One whose cursors are as SQLAlchemy uses them: each for one statement, all of whose rows are wanted."""

    _stopped: asyncio.Future[Any] | None = None

    def cursor(self) -> Any:  # noqa: ANN401 - of another class than aiosqlite's
        return _SqliteCursor(self)

    def stop(self) -> asyncio.Future[Any] | None:
        """Done when the thread has nothing more to do, however often it is told to stop; aiosqlite's own is, once."""
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
        """In the connection's thread.  What is closed there holds no lock any more, whoever remembers this one."""
        with closing(self._connection._conn.cursor()) as cursor:
            execute(cursor, sql, parameters)
            self._rows = cursor.fetchall()  # first, as rows that are returned count when they are fetched
            self.description, self.rowcount, self.lastrowid = cursor.description, cursor.rowcount, cursor.lastrowid

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def close(self) -> None:
        """Do nothing: it is closed already."""


def connect(file: str, **options: Any) -> SqliteConnection:  # noqa: ANN401 - sqlite3's
    connection = SqliteConnection(partial(sqlite3.connect, file, **options), iter_chunk_size=0)
    connection._thread.daemon = True  # nobody waits for it when the process ends
    return connection
