"""A deadline for repeated waits, on either side of the gateway."""

import asyncio
from collections.abc import Callable
from math import inf


class DeadlineTimer:
    """A deadline that is set for each wait and rarely comes due; its one timer moves only when it fires."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due = inf  # time of the deadline
        self._ring: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf  # time of the timer

    def set(self, seconds: float, ring: Callable[[], None]) -> None:
        """Call `ring` after so many seconds, unless the deadline is set or stopped before."""
        self._due, self._ring = self._loop.time() + seconds, ring
        if self._due < self._at:
            self.cancel()
            self._start()

    def stop(self) -> None:
        """Stop the deadline; the timer may still fire, without effect."""
        self._due, self._ring = inf, None

    def cancel(self) -> None:
        """Cancel the timer."""
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
