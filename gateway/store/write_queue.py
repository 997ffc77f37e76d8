"""Let the writes of a process wait for its database: in turn, together in one transaction, and counted.

A full queue refuses work before it begins.  A write of work that is done waits for its turn.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from gateway.errors import StoreFailed

_MAX_LENGTH = 2000  # waiting writes
_MAX_WAIT = 30  # seconds of a transaction for others of this process
_MAX_BATCH = 100  # writes in a transaction, so that others do not wait long

_One = TypeVar("_One")
_Result = TypeVar("_Result")
_Entries = list[tuple[_One, asyncio.Future[_Result]]]


class WriteQueue:
    """The writes that wait for a database; transactions take turns in the order of their arrival.

    concurrent: the number of concurrent transactions.
    length: the number of transactions that wait for their turn, and of writes for shared ones that are not written.
    """

    def __init__(self, concurrent: int) -> None:
        self._turns, self.length = asyncio.Semaphore(concurrent), 0

    def check_room(self) -> None:
        """Raise StoreFailed if the queue is full: work that needs a write must not begin."""
        if self.length >= _MAX_LENGTH:
            message = f"The gateway's store is overloaded ({self.length} writes waiting). Retry after 1 s."
            raise StoreFailed(message, retry_after="1")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn of a transaction.  Raises StoreFailed after half a minute."""
        self.length += 1
        try:
            async with asyncio.timeout(_MAX_WAIT):
                await self._turns.acquire()
        except TimeoutError:
            message = f"The gateway's store is overloaded (a transaction waited {_MAX_WAIT} s). Retry after 1 s."
            raise StoreFailed(message, retry_after="1") from None
        finally:
            self.length -= 1
        try:
            yield
        finally:
            self._turns.release()


class GroupCommit(Generic[_One, _Result]):
    """Group writes: those that wait are written together, in one transaction, after all earlier ones.

    write: writes all or nothing.  It raises StoreFailed if the database fails, any other error for an invalid value.
    queue: counts the writes.
    """

    def __init__(self, write: Callable[[Sequence[_One]], Awaitable[_Result]], queue: WriteQueue) -> None:
        self._write, self._queue = write, queue
        self._waiting: _Entries[_One, _Result] = []
        self._work: asyncio.Task[None] | None = None  # while there is any

    async def add(self, one: _One) -> _Result:
        """Return the result of `write` for a group with this value.  It is written even if this call is cancelled.

        Raises the error of `write`.
        """
        written: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, written))
        self._queue.length += 1
        if not self._work or self._work.done():
            self._work = asyncio.create_task(self._run())
        try:
            return await written
        finally:
            del written  # the traceback of its error has this frame: a cycle with all that the callers hold

    async def close(self) -> None:
        """Wait until all values are written."""
        if self._work:
            await self._work

    async def _run(self) -> None:
        while batch := self._waiting[:_MAX_BATCH]:
            del self._waiting[:_MAX_BATCH]
            await self._settle(batch)
            self._queue.length -= len(batch)

    async def _settle(self, batch: _Entries[_One, _Result]) -> None:
        waiting = [written for _, written in batch]
        try:
            result = await self._write([one for one, _ in batch])
        except Exception as error:  # noqa: BLE001 - the waiting tasks get it
            if len(batch) > 1 and not isinstance(error, StoreFailed):
                for alone in batch:  # so that only the invalid one fails
                    await self._settle([alone])
                return
            _fail(waiting, error)
        else:
            for written in _alive(waiting):
                written.set_result(result)
        finally:
            del batch, waiting  # as in `add`


def _fail(waiting: Sequence[asyncio.Future[_Result]], error: Exception) -> None:
    for written in _alive(waiting):
        written.set_exception(error)


def _alive(waiting: Sequence[asyncio.Future[_Result]]) -> list[asyncio.Future[_Result]]:
    """Return the futures whose calls were not cancelled."""
    return [written for written in waiting if not written.done()]
