"""Count usage in the store: requests that arrive during a transaction share the next one.

Requests are decided in the order of their arrival.  Each gets its result after the counts are stored.  Counters raise
StoreFailed if they cannot count; a LenientCounter does not.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from gateway.errors import StoreFailed
from gateway.store import usage_sums
from gateway.store.database import Database
from gateway.store.records import UsageSlot

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


_log = logging.getLogger("gateway")
_MAX_WAIT = 5.0  # seconds that a request waits for the counter
_BLIND = 5.0  # seconds without counting after the counter has failed
_LOG_INTERVAL = 60.0  # seconds between two log messages about that

SlotCounts = dict[UsageSlot, int]
_T = TypeVar("_T")
_LONGEST = 5.0  # seconds for a transaction, and for closing
_MAX = 50  # requests in a transaction; each has at most fourteen slots


class UsageCounter(Protocol):
    """Count usage per slot: the interface of the counters."""

    async def take(self, amounts: Mapping[UsageSlot, int], enough: Callable[[SlotCounts], bool]) -> SlotCounts:
        """Add the amounts and return the new counts of all slots.

        enough: decides on the new counts; if it returns False, no count changes.
        """

    async def add(self, amounts: Mapping[UsageSlot, int]) -> None:
        """Add the amounts in any case; they may be negative."""

    async def ping(self) -> None:
        """Return if the counter responds.  Raises StoreFailed."""

    async def close(self) -> None:
        """Close the counter."""


class LenientCounter:
    """Wrap a counter and skip it while it fails or is too slow: a failed counter must not fail requests."""

    def __init__(self, counter: UsageCounter) -> None:
        self._counter = counter
        self._blind_until = self._silent_until = 0.0

    async def take(self, amounts: Mapping[UsageSlot, int], enough: Callable[[SlotCounts], bool]) -> SlotCounts:
        """Return the new counts as the wrapped counter does; empty if nothing was counted."""
        return await self._tried(lambda: self._counter.take(amounts, enough)) or {}

    async def add(self, amounts: Mapping[UsageSlot, int]) -> None:
        """Add the amounts, unless the counter fails."""
        await self._tried(lambda: self._counter.add(amounts))

    async def ping(self) -> None:
        """Return if the wrapped counter responds.  Raises StoreFailed."""
        await self._counter.ping()

    async def close(self) -> None:
        """Close the wrapped counter."""
        await self._counter.close()

    async def _tried(self, ask: Callable[[], Awaitable[_T]]) -> _T | None:
        if time.monotonic() >= self._blind_until:
            try:
                async with asyncio.timeout(_MAX_WAIT):
                    return await ask()
            except (StoreFailed, TimeoutError) as error:
                self._give_up(error)
        return None

    def _give_up(self, error: Exception) -> None:
        now = time.monotonic()
        self._blind_until = now + _BLIND
        if now >= self._silent_until:
            self._silent_until = now + _LOG_INTERVAL
            reason = error.__cause__ if isinstance(error, StoreFailed) else error
            _log.warning("rate limits are not enforced, because usage cannot be counted: %r", reason)


@dataclass(slots=True, eq=False)
class _PendingCount:
    """A request for the next transaction.

    enough: None adds the amounts in any case, even if no task waits.
    is_reserved: the waiting task was notified that the request fits.
    """

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
    """Count usage in the store, in batched transactions."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._waiting: list[_PendingCount] = []  # with the requests of the running transaction
        self._work: asyncio.Task[None] | None = None  # exists while requests wait

    async def take(self, amounts: Mapping[UsageSlot, int], enough: Callable[[SlotCounts], bool]) -> SlotCounts:
        """Count the amounts.  If the caller is cancelled, the next transaction gives its amounts back."""
        pending = _PendingCount(amounts, enough)
        try:
            return await self._ask(pending)
        except asyncio.CancelledError:
            if pending.is_reserved:  # the result was set, but the caller did not get it
                self._give_back(pending)
            raise

    async def add(self, amounts: Mapping[UsageSlot, int]) -> None:
        """Add the amounts, even if the caller is cancelled."""
        await self._ask(_PendingCount(amounts))

    async def ping(self) -> None:
        """Return if the store responds.  Raises StoreFailed."""
        await self._store.ping()

    async def close(self) -> None:
        """Finish waiting work, or fail it after 5 s.  The owner of the store closes the store."""
        if self._work and self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST):
                    await self._work
        for pending in self._waiting:
            pending.fail(StoreFailed("The gateway is stopping."))
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
        return self._waiting[:_MAX]

    def _tell(self, pending: _PendingCount, fits: bool, counts: SlotCounts) -> None:
        if not pending.counts.done():
            pending.is_reserved = fits
            pending.counts.set_result(counts)
        elif fits and pending.left:
            self._give_back(pending)

    async def _stored(self, batch: list[_PendingCount]) -> list[tuple[bool, SlotCounts]]:
        """Return for each request whether it fits, and the counts that include it.

        One statement adds all amounts, which locks the counts.  Amounts that do not fit are subtracted before the
        commit.
        """
        try:
            async with asyncio.timeout(_LONGEST), self._store.writing() as db:
                return await _decided(db, batch)
        except TimeoutError as error:
            raise StoreFailed(f"The gateway's store did not respond within {_LONGEST:g} s. Retry later.") from error


async def _decided(db: "AsyncConnection", batch: list[_PendingCount]) -> list[tuple[bool, SlotCounts]]:
    total: Counter[UsageSlot] = Counter()
    for pending in batch:
        total.update(pending.amounts)
    stored = await usage_sums.add_counts(db, total)
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
        await usage_sums.add_counts(db, surplus)
    return found
