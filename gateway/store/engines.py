"""Create SQLAlchemy engines from a URL, and hide the differences of SQLite and PostgreSQL."""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    URL,
    AsyncAdaptedQueuePool,
    ColumnElement,
    Table,
    any_,
    bindparam,
    event,
    exc,
    func,
    select,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from gateway.errors import StoreFailed
from gateway.lazy_module import LazyModule
from gateway.store.direct import DirectSqlite, Work
from gateway.store.migrations import upgrade
from gateway.store.sqlite_driver import PRAGMAS, connect
from gateway.store.tables import IdListType
from gateway.store.write_queue import WriteQueue

# Imported for PostgreSQL only: together they take 5 MB.
if TYPE_CHECKING:
    import asyncpg
    from sqlalchemy.dialects import postgresql
else:
    asyncpg, postgresql = LazyModule("asyncpg"), LazyModule("sqlalchemy.dialects.postgresql")

_WAIT = 5  # seconds for a connection from the pool, and for a server to accept one
_LOCKED = 30  # seconds for another process's transaction: SQLite lets waiting ones retry at random
_ANSWER = 30  # seconds that a server may take for one statement
_AGAIN = 1.0  # seconds between checks of a listening connection, and before a new one
_LOCK = text("SELECT pg_advisory_xact_lock(7104181208)")  # any number that never changes
_PING = text("SELECT 1")
_CLOSED = "The gateway's store is closed."
_LOST = "The gateway's database file was deleted or replaced while in use. The operator must restart the gateway."
_NO_FILE = (None, "", ":memory:")  # PostgreSQL, and SQLite in memory
_PRIVATE = True  # errors go to the log, the contents of clients and models do not
_MAX = 500  # values in a statement; SQLite accepts 32766
_OURS = (exc.IntegrityError, exc.ProgrammingError, exc.DataError)  # faults of this code, no failures of the database
_FAILURES: tuple[type[Exception], ...] = exc.DBAPIError, exc.TimeoutError, OSError, sqlite3.Error
_T = TypeVar("_T")
_Engines = tuple[AsyncEngine, AsyncEngine]  # for reading, for writing


class Engines:
    """The engines of one database; the schema is brought up to date before the first transaction.

    queue: lets writing transactions take turns.
    """

    def __init__(self, url: str, queue: WriteQueue) -> None:
        scheme, _, rest = url.partition("://")
        is_sqlite = scheme.startswith("sqlite")
        self.reads, self.writes = (_sqlite if is_sqlite else _postgresql)(rest)
        self._failures = _FAILURES if is_sqlite else (*_FAILURES, *_driver_failures())
        self._connect = _driver(rest)
        self._migrating = asyncio.Lock()
        self._ready = False
        self._identity: tuple[int, int] | None = None  # of the file that was opened
        self._queue = queue
        self._transactions, self._closed, self._idle = 0, False, asyncio.Event()
        self._direct = _direct(self.writes.url) if is_sqlite else None

    @property
    def lost(self) -> bool:
        """True if the opened file is no longer in its place; nothing must be written to it then."""
        return self._identity is not None and _identity(self.writes.url.database) != self._identity

    @asynccontextmanager
    async def transaction(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        """Open a transaction.  Raises StoreFailed."""
        async with self._admitted(engine), engine.begin() as db:
            yield db

    async def run(self, engine: AsyncEngine, work: Work[_T]) -> _T:
        """Run the work in a transaction.  Raises StoreFailed."""
        async with self._admitted(engine):
            if self._direct:
                return await self._direct.run(work, writes=engine is self.writes)
            async with engine.begin() as db:
                return await work(db)

    async def ping(self) -> None:
        """Execute a statement that needs no table.  Raises StoreFailed."""
        await self.run(self.reads, lambda db: db.execute(_PING, {}))

    @asynccontextmanager
    async def _admitted(self, engine: AsyncEngine) -> AsyncIterator[None]:
        """Wait for the turn of a transaction, and raise StoreFailed for the failures of its block."""
        with self._counted():
            try:
                if not self._ready:
                    await self._migrate()
                elif self.lost:
                    raise StoreFailed(_LOST) from FileNotFoundError(self.writes.url.database)
                if engine is not self.writes:
                    yield
                    return
                async with self._queue.turn():
                    yield
            except _OURS:
                raise
            except self._failures as error:
                raise StoreFailed("The gateway's store is unavailable. Retry later.") from error

    async def listen(self, channel: str, on_notify: Callable[[str], object]) -> None:
        """Listen to a channel of PostgreSQL forever, over a new connection after each failure."""
        while True:
            with suppress(*self._failures):
                await self._listen(channel, on_notify)
            await asyncio.sleep(_AGAIN)

    async def _listen(self, channel: str, on_notify: Callable[[str], object]) -> None:
        """Listen until the connection fails; a statement per second detects that."""
        connection = await self._connect()
        try:
            await connection.add_listener(channel, lambda *data: on_notify(data[-1]))
            while True:
                await asyncio.sleep(_AGAIN)
                await connection.execute("SELECT 1")
        finally:
            connection.terminate()

    async def dispose(self) -> None:
        """Close all connections.  Wait up to 5 seconds for open transactions to end."""
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_WAIT):
                while self._transactions:
                    self._idle.clear()
                    await self._idle.wait()
        if self._direct:
            await self._direct.close()
        await self.reads.dispose()
        await self.writes.dispose()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._closed:
            raise StoreFailed(_CLOSED)
        self._transactions += 1
        try:
            yield
        finally:
            self._transactions -= 1
            self._idle.set()

    async def _migrate(self) -> None:
        """Migrate the schema, one process at a time; SQLite's transaction is a lock already."""
        async with self._migrating:
            if self._ready:
                return
            if (file := self.writes.url.database) not in _NO_FILE:
                await asyncio.to_thread(_write_ahead, file)
            async with self.writes.begin() as db:
                if db.dialect.name == "postgresql":
                    await db.execute(_LOCK)
                await db.run_sync(upgrade)
            self._ready, self._identity = True, _identity(file)


def _sqlite(rest: str) -> _Engines:
    """Create engines with a single connection for writing, which keeps the order; SQLite would retry at random."""
    url, one = f"sqlite+aiosqlite://{rest}", {"pool_size": 1, "max_overflow": 0}
    # A transaction that reads first and then writes would fail at once after a write of another transaction in between.
    writes = _file(url, "BEGIN IMMEDIATE", **one)
    in_memory = rest in ("", "/", "/:memory:")  # each connection would have its own database
    return (writes if in_memory else _file(url, "BEGIN")), writes


def _direct(url: URL) -> DirectSqlite | None:
    """Return the short way to a file; None for a database in memory, and for a file with options."""
    return None if url.database in _NO_FILE or url.query else DirectSqlite(url.database, _LOCKED)


def _file(url: str, begin: str, **pool: int) -> AsyncEngine:
    engine = create_async_engine(
        url,
        connect_args={"async_creator_fn": connect},
        poolclass=AsyncAdaptedQueuePool,
        pool_timeout=_WAIT,
        hide_parameters=_PRIVATE,
        **pool,
    )
    event.listen(engine.sync_engine, "connect", _prepare)
    # Ends a cancelled transaction: a closed connection stays locked as long as its cursors are referenced.
    event.listen(engine.sync_engine, "invalidate", lambda connection, *_: connection.rollback())
    event.listen(engine.sync_engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    event.listen(engine.sync_engine, "handle_error", _distrust)
    return engine


def _distrust(failure: ExceptionContext) -> None:
    """Drop a connection that read a damaged file: it would report the damage even after a repair."""
    if type(failure.original_exception) is sqlite3.DatabaseError:
        failure.is_disconnect = True


def _write_ahead(file: str) -> None:
    """Create the database file, readable by its owner only, and switch it to write-ahead logging.

    Readers and the writer do not block each other then.  The loop waits for another process that does the same, since
    SQLite's own timeout does not apply here.
    """
    with suppress(OSError):  # SQLite reports the error if the file cannot be created
        os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))  # SQLite creates its other files with the same mode
    until = time.monotonic() + _LOCKED
    with closing(sqlite3.connect(file, timeout=0)) as connection:
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # any kind of busy error
                if not busy or time.monotonic() > until:
                    raise
            time.sleep(0.01)


def _identity(file: str | None) -> tuple[int, int] | None:
    """Return device and inode, which distinguish files with the same name; None if there is no file."""
    try:
        found = Path(file).stat() if file and file not in _NO_FILE else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found else None


def _prepare(connection: Any, _: object) -> None:  # noqa: ANN401 - of the driver
    connection.isolation_level = None  # `_file` begins the transactions
    cursor = connection.cursor()
    try:
        for pragma in (f"busy_timeout={int(_LOCKED * 1000)}", *PRAGMAS):
            cursor.execute(f"PRAGMA {pragma}")
    except BaseException:  # a request may be cancelled meanwhile
        connection.terminate()  # ends its thread, which nothing else refers to
        raise
    cursor.close()


def _postgresql(rest: str) -> _Engines:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=_driver(rest),
        pool_pre_ping=True,  # reconnects after a restart of the server
        pool_timeout=_WAIT,
        hide_parameters=_PRIVATE,
    )
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True), engine


def _driver(rest: str) -> partial[Any]:
    """Return the connect function.  It parses the URL itself, so the URL may have all options of PostgreSQL."""
    return partial(_connected, f"postgresql://{rest}")


async def _connected(url: str) -> Any:  # noqa: ANN401 - of the driver
    return await asyncpg.connect(url, timeout=_WAIT, command_timeout=_ANSWER)


def _driver_failures() -> tuple[type[Exception], ...]:
    """Return the driver's own errors; an internal one comes while the server closes the connection."""
    return asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError


class _Upserts(dict[str, Any]):
    """Statements by the name of the dialect, each made at its first use."""

    def __init__(self, table: Table, statement_of: Callable[[Any], Any]) -> None:
        self._table, self._statement_of = table, statement_of

    def __missing__(self, dialect: str) -> Any:  # noqa: ANN401 - of the dialect
        insert = (sqlite if dialect == "sqlite" else postgresql).insert
        self[dialect] = self._statement_of(insert(self._table))
        return self[dialect]


def upserts(table: Table, statement_of: Callable[[Any], Any]) -> Mapping[str, Any]:
    """Return INSERT … ON CONFLICT by the name of the dialect, since each has its own class.

    statement_of: adds the conflict clause.
    """
    return _Upserts(table, statement_of)


def listed(column: ColumnElement[str], name: str = "ids") -> dict[str, ColumnElement[bool]]:
    """Return conditions by the name of the dialect that match the ids of a list, as one parameter.

    Unlike one of IN, the text of such a statement is constant.
    """
    ids = bindparam(name, type_=IdListType)
    values = func.json_each(ids).table_valued("value", name="listed").c.value
    return {"sqlite": column.in_(select(values)), "postgresql": column == any_(ids)}


def chunked(values: Collection[str]) -> Iterator[list[str]]:
    """Yield values in chunks that fit into one statement, for values that a client may send many of."""
    left = iter(values)
    while some := list(islice(left, _MAX)):
        yield some
