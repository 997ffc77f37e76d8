"""Open a database by its URL: SQLite in one file, for one machine, or PostgreSQL, for a fleet.

Small writes share a transaction, since its begin and end cost more than the writes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.errors import StoreFailed
from gateway.store.write_queue import GroupCommit, WriteQueue

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from gateway.store.direct import Work
    from gateway.store.engines import Engines

_One = TypeVar("_One")
_T = TypeVar("_T")
_WRITERS = 10  # concurrent writing transactions, if the database supports it
_NO_FILE = ("", ":memory:")
_Write = Callable[["AsyncConnection", Sequence[_One]], Awaitable[_T]]


class Database:
    """Transactions of a database; the schema is brought up to date before the first one.

    A block of `reading` sees one state of the data; a block of `writing` is all or nothing.  Both raise StoreFailed for
    any failure of the database, so their blocks should do nothing else.

    notifies: processes can notify each other (`listen`).
    failed: called at each StoreFailed.
    queue: the writes that wait.
    """

    def __init__(self, url: str, failed: Callable[[], None] = lambda: None) -> None:
        scheme, _, rest = url.partition("://")
        self._url, self.notifies, self.failed = url, not scheme.startswith("sqlite"), failed
        self._file = "" if self.notifies else rest.removeprefix("/").partition("?")[0]
        self._engines: Engines | None = None
        self._opening = asyncio.Lock()
        self.queue = WriteQueue(_WRITERS if self.notifies else 1)
        self._batches: dict[_Write[Any, Any], GroupCommit[Any, Any]] = {}

    @asynccontextmanager
    async def reading(self) -> "AsyncIterator[AsyncConnection]":
        """Open a transaction for reading.  Raises StoreFailed."""
        engines = await self._opened()
        with self._telling():
            async with engines.transaction(engines.reads) as db:
                yield db

    @asynccontextmanager
    async def writing(self) -> "AsyncIterator[AsyncConnection]":
        """Open a transaction for writing.  Raises StoreFailed."""
        engines = await self._opened()
        with self._telling():
            async with engines.transaction(engines.writes) as db:
                yield db

    async def run_reading(self, work: "Work[_T]") -> _T:
        """Return the result of `work(connection)`, run in a transaction for reading.  Raises StoreFailed.

        The work awaits its connection only, and only to execute constant statements.  It may run in another thread.
        """
        engines = self._engines or await self._opened()
        with self._telling():
            return await engines.run(engines.reads, work)

    async def run_writing(self, work: "Work[_T]") -> _T:
        """Do the same in a transaction for writing.  If the caller is cancelled, a begun transaction may end well."""
        engines = self._engines or await self._opened()
        with self._telling():
            return await engines.run(engines.writes, work)

    async def ping(self) -> None:
        """Return if the database executes statements.  Raises StoreFailed."""
        engines = await self._opened()
        with self._telling():
            await engines.ping()

    async def write_grouped(self, write: _Write[_One, _T], one: _One) -> _T:
        """Return the result of `write` in a transaction that concurrent calls of the same function may share.

        It has to write new rows, or to lock all others first and in one order: two processes that lock the same rows in
        different orders would fail.
        """
        if write not in self._batches:
            self._batches[write] = GroupCommit(partial(self._write, write), self.queue)
        result: _T = await self._batches[write].add(one)
        return result

    async def _write(self, write: _Write[_One, _T], these: Sequence[_One]) -> _T:
        return await self.run_writing(lambda db: write(db, these))

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except StoreFailed:
            self.failed()
            raise

    @property
    def lost(self) -> bool:
        """True if the database file was deleted or replaced while it was in use."""
        return self._engines is not None and self._engines.lost

    @property
    def folder(self) -> Path | None:
        """The folder beside the database file, for the bytes of files; None without a file."""
        return None if self._file in _NO_FILE else Path(f"{self._file}.files")

    def exists(self) -> bool:
        """Return True if the store may have data: the first write creates the file."""
        return self._file in _NO_FILE or Path(self._file).exists()

    async def listen(self, channel: str, on_notify: Callable[[str], object]) -> None:
        """Call `on_notify` with each payload of `notify` until cancelled; with SQLite, return at once.

        Payloads sent while there is no connection to the server are lost.
        """
        if self.notifies:
            await (await self._opened()).listen(channel, on_notify)

    async def close(self) -> None:
        """Write all waiting values, and close all connections."""
        for batches in self._batches.values():
            await batches.close()
        if self._engines:
            await self._engines.dispose()

    async def _opened(self) -> "Engines":
        """Open the database once; its libraries load in a thread."""
        async with self._opening:
            if not self._engines:
                self._engines = await asyncio.to_thread(_engines, self._url, self.queue)
            return self._engines


def _engines(url: str, queue: WriteQueue) -> "Engines":
    from gateway.store.engines import Engines  # noqa: PLC0415 - see `gateway.store`

    return Engines(url, queue)
