"""A database by its URL: SQLite in one file, for one machine, or PostgreSQL, for a fleet."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.errors import StoreFailed
from gateway.store.batches import GroupCommit

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from gateway.store.engines import Engines

_NO_FILE = ("", ":memory:")
_One = TypeVar("_One")
_Write = Callable[["AsyncConnection", Sequence[_One]], Awaitable[object]]


class Database:
    """Transactions; the schema is brought up to date before the first one.

    `reading` sees one state of the data; `writing` is all or nothing.  Both raise StoreFailed for whatever a database
    can fail with, so their blocks should do nothing else.  notifies: whether processes hear each other (`listening`).
    failed: is told whenever one does.
    """

    def __init__(self, url: str, failed: Callable[[], None] = lambda: None) -> None:
        scheme, _, rest = url.partition("://")
        self._url, self.notifies, self._failed = url, not scheme.startswith("sqlite"), failed
        self._file = "" if self.notifies else rest.removeprefix("/").partition("?")[0]
        self._engines: Engines | None = None
        self._opening = asyncio.Lock()
        self._batches: dict[_Write[Any], GroupCommit[Any]] = {}

    @asynccontextmanager
    async def reading(self) -> "AsyncIterator[AsyncConnection]":
        engines = await self._opened()
        with self._telling():
            async with engines.transaction(engines.reads) as db:
                yield db

    @asynccontextmanager
    async def writing(self) -> "AsyncIterator[AsyncConnection]":
        engines = await self._opened()
        with self._telling():
            async with engines.transaction(engines.writes) as db:
                yield db

    async def together(self, write: _Write[_One], one: _One) -> None:
        """`write` it, in a `writing` that it may share with what others give the same function meanwhile.

        It has to be of new rows: two processes that lock the same ones, in another order each, would fail.
        """
        if write not in self._batches:
            self._batches[write] = GroupCommit(partial(self._write, write))
        await self._batches[write].add(one)

    async def _write(self, write: _Write[_One], these: Sequence[_One]) -> None:
        async with self.writing() as db:
            await write(db, these)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except StoreFailed:
            self._failed()
            raise

    @property
    def lost(self) -> bool:
        """Return True if its file was deleted or replaced while it was in use."""
        return self._engines is not None and self._engines.lost

    def exists(self) -> bool:
        """Return True if the store may hold anything: the first write creates the file."""
        return self._file in _NO_FILE or Path(self._file).exists()

    async def listening(self, channel: str, heard: Callable[[str], object]) -> None:
        """Call it with whatever `notify` sends, until cancelled; with SQLite it returns at once.

        What is sent while there is no connection to the server is not heard.
        """
        if self.notifies:
            await (await self._opened()).listen(channel, heard)

    async def close(self) -> None:
        for batches in self._batches.values():
            await batches.close()
        if self._engines:
            await self._engines.dispose()

    async def _opened(self) -> "Engines":
        """Open the database once; its libraries load in a thread."""
        async with self._opening:
            if not self._engines:
                self._engines = await asyncio.to_thread(_engines, self._url)
            return self._engines


def _engines(url: str) -> "Engines":
    from gateway.store.engines import Engines  # noqa: PLC0415 - see `gateway.store`

    return Engines(url)
