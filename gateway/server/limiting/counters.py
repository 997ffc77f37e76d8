"""Where it is counted what is used.  All raise StoreFailed where that cannot be done, but for a LenientCounter."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from gateway.errors import StoreFailed
from gateway.store.records import UsageSlot

_log = logging.getLogger("gateway")
_PATIENCE = 5.0  # seconds that a request waits for the counter,
_BLIND = 5.0  # and for which nothing is counted after it has failed
_TOLD = 60.0  # seconds between two words about that in the log

SlotCounts = dict[UsageSlot, int]
_T = TypeVar("_T")


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
