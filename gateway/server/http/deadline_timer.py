"""A limit of time for what is waited for again and again, on either side of the gateway."""

import asyncio
from collections.abc import Callable
from math import inf


class DeadlineTimer:
    """A limit that is set for every wait and hardly ever rings: its one loop timer moves only when it comes due."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due = self._seconds = inf
        self._ring: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf  # when that comes due

    def set(self, seconds: float, ring: Callable[[], None]) -> None:
        """Ring in so many seconds, unless it is set or unset before."""
        self._seconds, self._ring = seconds, ring
        self.again()
        if self._due < self._at:
            self.cancel()
            self._start()

    def again(self) -> None:
        """Ring so many seconds from now instead."""
        self._due = self._loop.time() + self._seconds

    def stop(self) -> None:
        self._due, self._ring = inf, None

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._at = None, inf

    def _start(self) -> None:
        self._timer, self._at = self._loop.call_at(self._due, self._look), self._due

    def _look(self) -> None:
        self._timer, self._at = None, inf
        if self._ring and self._due <= self._loop.time() + 0.001:  # uvloop's clock ticks in milliseconds
            self._ring()
        elif self._due < inf:
            self._start()
