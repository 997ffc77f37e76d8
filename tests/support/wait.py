"""Wait for conditions.  No other module of the tests sleeps.

A deadline only ends a test that hangs; on a slow machine a condition may become true late.
"""

import asyncio
import inspect
import time

DEADLINE = 60  # seconds
_PAUSE = 0.005  # seconds between two checks


async def until(found, wanted=True):
    """Call `found` until it returns `wanted`, and return that; it may return an awaitable."""
    async with asyncio.timeout(DEADLINE):
        while (got := await settled(found())) != wanted:  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(_PAUSE)
    return got


def until_blocking(found, wanted=True, *, seconds=DEADLINE, pause=_PAUSE):
    """Do what `until` does in a thread without an event loop; raises TimeoutError at the deadline.

    pause: seconds between two checks.
    """
    end = time.monotonic() + seconds
    while (got := found()) != wanted:
        if time.monotonic() > end:
            raise TimeoutError(f"{got!r} instead of {wanted!r}")
        time.sleep(pause)
    return got


def block(seconds):
    """Block this thread, and so its event loop."""
    time.sleep(seconds)


async def undisturbed(attempt, seconds):
    """Return the result of the first `attempt()` during which the event loop never paused for `seconds`.

    A test of a short timeout needs this: during a pause of the machine it passes, whatever the program does.
    """
    async with asyncio.timeout(DEADLINE):
        while True:
            pauses = _Pauses()
            watching = asyncio.create_task(pauses.watch())
            try:
                (result,) = await asyncio.gather(attempt(), return_exceptions=True)
            finally:
                watching.cancel()
            if pauses.longest() < seconds:
                break
    if isinstance(result, BaseException):
        raise result
    return result


class _Pauses:
    """The pauses of an event loop."""

    def __init__(self):
        self._longest, self._last = 0.0, time.monotonic()

    async def watch(self):
        """Look at the clock until this is cancelled."""
        while True:
            self.longest()
            await asyncio.sleep(_PAUSE)

    def longest(self):
        """Return the longest time between two looks, in seconds; this is one, too."""
        now = time.monotonic()
        self._longest, self._last = max(self._longest, now - self._last), now
        return self._longest


async def settled(value):
    """Return a value, or the result of an awaitable."""
    return await value if inspect.isawaitable(value) else value


def now():
    """Return the wall clock in seconds, to bracket a time that the gateway stores.

    A test asserts that the time lies between two readings, never how far they are apart.
    """
    return time.time()


async def idle(seconds):
    """Let time pass, where time is the subject or where nothing may happen meanwhile.

    A longer pause on a slow machine must not change the outcome.
    """
    await asyncio.sleep(seconds)
