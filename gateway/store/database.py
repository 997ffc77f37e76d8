"""Open a database by its URL: SQLite in one file, for one machine, or PostgreSQL, for a fleet.

Small writes share a transaction, as its begin and end cost more than they do.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gateway.errors import StoreFailed

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from gateway.store.engines import Engines


_One = TypeVar("_One")
_Waiting = list[tuple[_One, asyncio.Future[None]]]
_MOST = 100  # in a transaction: others wait for it, too
_NO_FILE = ("", ":memory:")
_Write = Callable[["AsyncConnection", Sequence[_One]], Awaitable[object]]


class GroupCommit(Generic[_One]):
    """Things to be written: those that wait are written together, after those that came before them.

    write: all of them or nothing; raises StoreFailed where nothing can be written, anything else for a mistake in one.
    """

    def __init__(self, write: Callable[[Sequence[_One]], Awaitable[object]]) -> None:
        self._write = write
        self._waiting: _Waiting[_One] = []
        self._work: asyncio.Task[None] | None = None  # for as long as there is any

    async def add(self, one: _One) -> None:
        """Until it is written, which it is even if nobody waits any more; raises what `write` did."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, written))
        if not self._work or self._work.done():
            self._work = asyncio.create_task(self._run())
        await written

    async def close(self) -> None:
        """Until all is written."""
        if self._work:
            await self._work

    async def _run(self) -> None:
        while batch := self._waiting[:_MOST]:
            del self._waiting[:_MOST]
            await self._settle(batch)

    async def _settle(self, batch: _Waiting[_One]) -> None:
        try:
            await self._write([one for one, _ in batch])
        except Exception as error:  # noqa: BLE001 - the waiting tasks get it
            if len(batch) > 1 and not isinstance(error, StoreFailed):
                for alone in batch:  # so that only one gets it
                    await self._settle([alone])
            else:
                _tell(batch, error)
        else:
            _tell(batch)


def _tell(batch: _Waiting[_One], failure: Exception | None = None) -> None:
    for _, written in batch:
        if written.done():  # nobody waits any more
            continue
        if failure:
            written.set_exception(failure)
        else:
            written.set_result(None)


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

    async def write_grouped(self, write: _Write[_One], one: _One) -> None:
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

    async def listen(self, channel: str, heard: Callable[[str], object]) -> None:
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
