"""Write several things in one transaction, as its begin and end cost more than a small write."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from gateway.errors import StoreFailed

_One = TypeVar("_One")
_Waiting = list[tuple[_One, asyncio.Future[None]]]
_MOST = 100  # in a transaction: others wait for it, too


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
