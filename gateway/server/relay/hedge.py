"""Hedge a slow backend: call a second one, and use the response that begins first."""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf

from msgspec import Struct

from gateway.errors import GatewayError, Problem
from gateway.server.upstream import DataCallback
from gateway.server.upstream.upstream_call import UpstreamCall


class HedgeCall(Struct, frozen=True):
    """The second call.  won: awaited before its first data is read, once it has begun first."""

    call: UpstreamCall
    won: Callable[[], Awaitable[None]]


class HedgedCall:
    """Two calls as one.

    other: makes the second call `seconds` after the first; returns None if there is no other backend.
    The failure of one call does not matter while the other runs.
    """

    def __init__(self, first: UpstreamCall, seconds: float, other: Callable[[], Awaitable[HedgeCall | None]]) -> None:
        self._clock = asyncio.get_running_loop().time
        self._at, self._other = self._clock() + seconds, other
        self._second: HedgeCall | None = None
        self._speaker: UpstreamCall | None = None
        self._waits: dict[asyncio.Future[bool], UpstreamCall] = {}
        self._wait(first)

    async def ready(self, seconds: float = inf, callback: DataCallback | None = None, /) -> bool:
        """Wait for data of the call that begins first; return False after `seconds`."""
        until = self._clock() + seconds
        while not self._speaker:
            due = min(until, self._at)
            left = None if due == inf else max(due - self._clock(), 0)
            done, _ = await asyncio.wait(self._waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                await self._handle_ready(wait)
            if not done and due == self._at:
                await self._begin()
            elif not done:
                return False
        return await self._speaker.ready(until - self._clock(), callback)

    def read(self) -> bytes:
        """Return the data of the winner."""
        assert self._speaker
        return self._speaker.read()

    @property
    def over(self) -> bool:
        """Return True if the winner has no more data."""
        assert self._speaker
        return self._speaker.over

    def report_outcome(self, problem: Problem | None) -> None:
        """Report the outcome of the winner."""
        assert self._speaker
        self._speaker.report_outcome(problem)

    def close(self) -> None:
        """Close both calls."""
        self._drop()
        if self._speaker:
            self._speaker.close()

    def _wait(self, call: UpstreamCall) -> None:
        self._waits[asyncio.ensure_future(call.ready())] = call

    async def _begin(self) -> None:
        self._at = inf
        if second := await self._other():
            self._second = second
            self._wait(second.call)

    async def _handle_ready(self, wait: "asyncio.Future[bool]") -> None:
        if self._speaker:
            return  # both began at the same moment
        call = self._waits.pop(wait)
        try:
            wait.result()
        except GatewayError:
            call.close()
            if not self._waits:
                raise
            return
        self._speaker = call
        self._drop()
        if self._second and call is self._second.call:
            await self._second.won()

    def _drop(self) -> None:
        waits, self._waits = self._waits, {}
        for wait, call in waits.items():
            wait.cancel()
            call.close()
