"""Count what is used, in the store: requests that come while one transaction runs share the next one.

Requests are decided in the order of their arrival, and each learns the result after it is stored.  Counters raise
StoreFailed if they cannot count; a LenientCounter does not.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct, field

from gateway.errors import StoreFailed
from gateway.store import usage_counts
from gateway.store.database import Database
from gateway.store.records import UsageSlot

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


_log = logging.getLogger("gateway")
_PATIENCE = 5.0  # seconds that a request waits for the counter,
_BLIND = 5.0  # and for which nothing is counted after it has failed
_TOLD = 60.0  # seconds between two words about that in the log

SlotCounts = dict[UsageSlot, int]
_T = TypeVar("_T")
_LONGEST = 5.0  # seconds of a transaction, and of closing
_MOST = 50  # that go into a transaction; each has ten slots at most


class UsageCounter(Protocol):
    """take: add to all of them and give what they are then, unless that is too much: then none is changed."""

    async def take(self, amounts: Mapping[UsageSlot, int], enough: Callable[[SlotCounts], bool]) -> SlotCounts: ...
    async def add(self, amounts: Mapping[UsageSlot, int]) -> None: ...
    async def close(self) -> None: ...


class LenientCounter:
    """Does without its counter where that fails, or takes too long: a limit is not worth an answer."""

    def __init__(self, counter: UsageCounter) -> None:
        self._counter = counter
        self._blind_until = self._silent_until = 0.0

    async def take(self, amounts: Mapping[UsageSlot, int], enough: Callable[[SlotCounts], bool]) -> SlotCounts:
        """Empty where nothing was counted."""
        return await self._tried(lambda: self._counter.take(amounts, enough)) or {}

    async def add(self, amounts: Mapping[UsageSlot, int]) -> None:
        await self._tried(lambda: self._counter.add(amounts))

    async def close(self) -> None:
        await self._counter.close()

    async def _tried(self, ask: Callable[[], Awaitable[_T]]) -> _T | None:
        if time.monotonic() >= self._blind_until:
            try:
                async with asyncio.timeout(_PATIENCE):
                    return await ask()
            except (StoreFailed, TimeoutError) as error:
                self._give_up(error)
        return None

    def _give_up(self, error: Exception) -> None:
        now = time.monotonic()
        self._blind_until = now + _BLIND
        if now >= self._silent_until:
            self._silent_until = now + _TOLD
            reason = error.__cause__ if isinstance(error, StoreFailed) else error
            _log.warning("limits do not hold, as nothing can be counted at the moment: %r", reason)


class _PendingCount(Struct, eq=False):
    """enough: None adds in any case, even without a waiting task; taken: whether the caller knows that it fits."""

    amounts: Mapping[UsageSlot, int]
    enough: Callable[[SlotCounts], bool] | None = None
    counts: asyncio.Future[SlotCounts] = field(default_factory=asyncio.Future)
    is_reserved: bool = False

    @property
    def left(self) -> bool:
        return self.enough is not None and self.counts.cancelled()

    def fail(self, error: Exception) -> None:
        if not self.counts.done():
            self.counts.set_exception(error)


class StoreCounter:
    def __init__(self, store: Database) -> None:
        self._store = store
        self._waiting: list[_PendingCount] = []  # among them those whose transaction runs
        self._work: asyncio.Task[None] | None = None  # for as long as there is any

    async def take(self, amounts: Mapping[UsageSlot, int], enough: Callable[[SlotCounts], bool]) -> SlotCounts:
        """Count the amounts.  A cancelled caller takes nothing: the next transaction gives back its amount."""
        pending = _PendingCount(amounts, enough)
        try:
            return await self._ask(pending)
        except asyncio.CancelledError:
            if pending.is_reserved:  # told, and not heard
                self._give_back(pending)
            raise

    async def add(self, amounts: Mapping[UsageSlot, int]) -> None:
        """Added even if it is cancelled."""
        await self._ask(_PendingCount(amounts))

    async def close(self) -> None:
        """Finish waiting work, or fail if that takes too long.  The owner of the store closes it."""
        if self._work and self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST):
                    await self._work
        for pending in self._waiting:
            pending.fail(StoreFailed("The gateway is closing."))
        self._waiting.clear()

    def _ask(self, pending: _PendingCount) -> asyncio.Future[SlotCounts]:
        self._waiting.append(pending)
        if not self._work or self._work.done():
            self._work = asyncio.create_task(self._run())
        return pending.counts

    def _give_back(self, pending: _PendingCount) -> None:
        back = {slot: -amount for slot, amount in pending.amounts.items() if amount}
        self._ask(_PendingCount(back, counts=pending.counts))

    async def _run(self) -> None:
        """Run until no request waits."""
        while batch := self._next():
            try:
                found = await self._stored(batch)
            except Exception as error:  # noqa: BLE001 - the waiting requests get it
                for pending in batch:
                    pending.fail(error)
            else:
                for pending, (fits, counts) in zip(batch, found, strict=True):
                    self._tell(pending, fits, counts)
            del self._waiting[: len(batch)]

    def _next(self) -> list[_PendingCount]:
        self._waiting = [pending for pending in self._waiting if not pending.left]
        return self._waiting[:_MOST]

    def _tell(self, pending: _PendingCount, fits: bool, counts: SlotCounts) -> None:
        if not pending.counts.done():
            pending.is_reserved = fits
            pending.counts.set_result(counts)
        elif fits and pending.left:
            self._give_back(pending)

    async def _stored(self, batch: list[_PendingCount]) -> list[tuple[bool, SlotCounts]]:
        """Of each whether it fits, and what the counts are with it.

        All is added at once, which locks the counts, and what was too much is taken away again before others see it.
        """
        try:
            async with asyncio.timeout(_LONGEST), self._store.writing() as db:
                return await _decided(db, batch)
        except TimeoutError as error:
            raise StoreFailed("The gateway's store takes too long.") from error


async def _decided(db: "AsyncConnection", batch: list[_PendingCount]) -> list[tuple[bool, SlotCounts]]:
    total: Counter[UsageSlot] = Counter()
    for pending in batch:
        total.update(pending.amounts)
    stored = await usage_counts.add_counts(db, total)
    now = {slot: amount - total[slot] for slot, amount in stored.items()}
    found = []
    for pending in batch:
        counts = {slot: now[slot] + amount for slot, amount in pending.amounts.items()}
        fits = not pending.enough or pending.enough(counts)
        if fits:
            now |= counts
        found.append((fits, counts))
    if not any(fits for fits, _ in found):
        await db.rollback()
    elif surplus := {slot: now[slot] - amount for slot, amount in stored.items() if now[slot] != amount}:
        await usage_counts.add_counts(db, surplus)
    return found
