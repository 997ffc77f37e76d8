"""Call a second backend if the first one is slow; the response that begins first counts."""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf

from msgspec import Struct

from gateway.errors import GatewayError, Problem
from gateway.server.upstream import DataCallback
from gateway.server.upstream.upstream_call import UpstreamCall


class SecondCall(Struct, frozen=True):
    """The second call.  won: awaited before its first data is read, once it has begun first."""

    call: UpstreamCall
    won: Callable[[], Awaitable[None]]


class HedgedCall:
    """Two calls as one.

    call_other: makes the second call `seconds` after the first; returns None if there is no other backend.
    The failure of one call does not matter while the other runs.
    """

    def __init__(
        self, first: UpstreamCall, seconds: float, call_other: Callable[[], Awaitable[SecondCall | None]]
    ) -> None:
        self._clock = asyncio.get_running_loop().time
        self._second_at, self._call_other = self._clock() + seconds, call_other
        self._second: SecondCall | None = None
        self._winner: UpstreamCall | None = None
        self._waits: dict[asyncio.Future[bool], UpstreamCall] = {}
        self._wait(first)

    async def ready(self, seconds: float = inf, callback: DataCallback | None = None, /) -> bool:
        """Wait for data of the call that begins first; return False after `seconds`."""
        until = self._clock() + seconds
        while not self._winner:
            due = min(until, self._second_at)
            left = None if due == inf else max(due - self._clock(), 0)
            done, _ = await asyncio.wait(self._waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                await self._handle_ready(wait)
            if not done and due == self._second_at:
                await self._start_second()
            elif not done:
                return False
        return await self._winner.ready(until - self._clock(), callback)

    def read(self) -> bytes:
        """Return the data of the winner."""
        assert self._winner
        return self._winner.read()

    @property
    def over(self) -> bool:
        """Return True if the winner has no more data."""
        assert self._winner
        return self._winner.over

    def report_outcome(self, problem: Problem | None) -> None:
        """Report the outcome of the winner."""
        assert self._winner
        self._winner.report_outcome(problem)

    def close(self) -> None:
        """Close both calls."""
        self._close_waiting()
        if self._winner:
            self._winner.close()

    def _wait(self, call: UpstreamCall) -> None:
        self._waits[asyncio.ensure_future(call.ready())] = call

    async def _start_second(self) -> None:
        self._second_at = inf
        if second := await self._call_other():
            self._second = second
            self._wait(second.call)

    async def _handle_ready(self, wait: "asyncio.Future[bool]") -> None:
        if self._winner:
            return  # both began at the same moment
        call = self._waits.pop(wait)
        try:
            wait.result()
        except GatewayError:
            call.close()
            if not self._waits:
                raise
            return
        self._winner = call
        self._close_waiting()
        if self._second and call is self._second.call:
            await self._second.won()

    def _close_waiting(self) -> None:
        waits, self._waits = self._waits, {}
        for wait, call in waits.items():
            wait.cancel()
            call.close()
