"""Run whole transactions in SQLite's thread, with statements that are compiled once.

SQLAlchemy takes several times as long to execute a constant statement as SQLite does, and a round trip to the thread
costs more than a statement.  Functions of this package wait for their connection only, and this one never waits.  So
one round trip runs all of them, from BEGIN to COMMIT.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import starmap
from typing import Any, TypeVar

from msgspec import Struct, defstruct
from sqlalchemy import Executable, exc
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.compiler import SQLCompiler

from gateway.store.sqlite_driver import PRAGMAS, SqliteConnection, connection_with

_DIALECT = sqlite.dialect(paramstyle="qmark")
_MAX = 256  # statements
_OURS = {
    sqlite3.IntegrityError: exc.IntegrityError,
    sqlite3.ProgrammingError: exc.ProgrammingError,
    sqlite3.DataError: exc.DataError,
}
_T = TypeVar("_T")
Work = Callable[[AsyncConnection], Awaitable[_T]]
Values = dict[str, Any]


class _Parameter(Struct, frozen=True):
    """A parameter of a statement; convert: to the driver's value, None if that is the same."""

    name: str
    default: Any
    convert: Callable[[Any], Any] | None


class _Statement(Struct, frozen=True):
    sql: str
    parameters: tuple[_Parameter, ...]

    def bind(self, values: Values) -> list[Any]:
        """Return the values in the order of the parameters."""
        found = []
        for one in self.parameters:
            value = values.get(one.name, one.default)
            found.append(one.convert(value) if one.convert else value)
        return found


@lru_cache(_MAX)
def _compiled(statement: Any, names: tuple[str, ...]) -> _Statement:  # noqa: ANN401 - each class of statements
    """Compile a statement that gets values of these names.  Its lists must not be parameters."""
    compiled: SQLCompiler = statement.compile(dialect=_DIALECT, column_keys=[*names])
    assert not compiled.post_compile_params, "a list has no constant text"
    return _Statement(compiled.string, tuple(_parameters(compiled)))


def _parameters(compiled: SQLCompiler) -> Iterator[_Parameter]:
    defaults = compiled.params
    for name in compiled.positiontup or ():
        type = compiled.binds[name].type.dialect_impl(_DIALECT)
        yield _Parameter(name, defaults[name], type.bind_processor(_DIALECT))


class _Rows:
    """The rows of a statement, with the methods of SQLAlchemy's results that this package uses."""

    def __init__(self, rows: Sequence[tuple[Any, ...]], columns: tuple[str, ...], rowcount: int) -> None:
        self._rows, self._columns, self.rowcount = rows, columns, rowcount

    def all(self) -> list[Any]:
        return [*starmap(_row_type(self._columns), self._rows)]

    def one_or_none(self) -> Any:  # noqa: ANN401 - a row
        rows = self.all()
        return rows[0] if rows else None

    def one(self) -> Any:  # noqa: ANN401 - a row
        (row,) = self.all()
        return row

    def scalars(self) -> "_Scalars":
        return _Scalars(self._rows)


class _Scalars:
    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._rows = rows

    def all(self) -> list[Any]:
        return [row[0] for row in self._rows]


@lru_cache(_MAX)
def _row_type(columns: tuple[str, ...]) -> Callable[..., Any]:
    return defstruct("Row", columns)


class DirectConnection:
    """Execute constant statements whose columns need no conversion, as AsyncConnection does, but never wait."""

    dialect = _DIALECT

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()

    async def execute(self, statement: Executable, values: Values | Sequence[Values]) -> _Rows:
        """Execute a statement once, or once for each of a list of values."""
        one = values if isinstance(values, dict) else values[0]
        compiled = _compiled(statement, tuple(one))
        if isinstance(values, dict):
            self._cursor.execute(compiled.sql, compiled.bind(values))
        else:
            self._cursor.executemany(compiled.sql, map(compiled.bind, values))
        rows = self._cursor.fetchall()  # fetches first: returned rows count as affected only when they are fetched
        columns = tuple(column[0] for column in self._cursor.description or ())
        return _Rows(rows, columns, self._cursor.rowcount)


class DirectSqlite:
    """Transactions on one SQLite file, over a connection for reading and one for writing.

    The caller runs one writing transaction at a time.  seconds: that a transaction waits for another process's lock.
    """

    def __init__(self, file: str, seconds: float) -> None:
        self._opened = partial(_opened, file, seconds)
        self._connections: dict[bool, SqliteConnection] = {}
        self._opening = asyncio.Lock()

    async def run(self, work: "Work[_T]", *, writes: bool) -> _T:
        """Run the work in a transaction of its own.  A cancelled caller waits for a transaction that has begun.

        Raises errors of sqlite3; those that are faults of the statements as SQLAlchemy's.
        """
        connection = self._connections.get(writes) or await self._connected(writes)
        begin = "BEGIN IMMEDIATE" if writes else "BEGIN"
        try:
            return await connection.run(_transaction, begin, work)
        except asyncio.CancelledError:
            with suppress(ValueError):  # it is closed
                await connection.run(_wait)
            raise
        except sqlite3.DatabaseError as error:
            if same := _OURS.get(type(error)):
                raise same(None, None, error, hide_parameters=True) from error
            if type(error) is sqlite3.DatabaseError:  # a damaged file: it would report the damage even after a repair
                await self._discard(connection, writes)
            raise

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    async def _discard(self, connection: SqliteConnection, writes: bool) -> None:
        """Close a connection, unless another transaction has; the next one opens a new one."""
        if self._connections.get(writes) is connection:
            del self._connections[writes]
            await connection.close()

    async def _connected(self, writes: bool) -> SqliteConnection:
        async with self._opening:
            if writes not in self._connections:
                connection = connection_with(self._opened)
                await connection
                self._connections[writes] = connection
            return self._connections[writes]


def _wait(_: sqlite3.Connection) -> None:
    """Do nothing: the thread comes to this when it has done all before."""


def _opened(file: str, seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=seconds, isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _transaction(connection: sqlite3.Connection, begin: str, work: "Work[_T]") -> _T:
    """Run the work between BEGIN and COMMIT, or roll it back."""
    connection.execute(begin)
    try:
        db: Any = DirectConnection(connection)  # has what the work uses of an AsyncConnection
        result = _finished(work(db))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors end it
            connection.execute("ROLLBACK")
        raise
    return result


def _finished(work: Awaitable[_T]) -> _T:
    """Return the result of a coroutine that never waits."""
    try:
        next(work.__await__())
    except StopIteration as end:
        result: _T = end.value
        return result
    raise RuntimeError("a transaction must wait for its connection only")
