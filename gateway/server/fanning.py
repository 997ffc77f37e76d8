"""The calls of a Fan: some at a time, to be used as one call is."""

import asyncio
from collections.abc import Iterable
from math import inf

from gateway.fan import Fan
from gateway.server.backend import Backend
from gateway.server.call import Call
from gateway.turn import Turn

_AT_ONCE = 4  # as many answers as servers of one machine give at a time


class FanCall:
    """bodies: of the requests, in the order of their choices."""

    def __init__(self, backend: Backend, bodies: Iterable[bytes], path: str, turn: Turn, fan: Fan) -> None:
        self._backend, self._bodies, self._path = backend, enumerate(bodies), path
        self._turn, self._fan = turn, fan
        self._clock = asyncio.get_running_loop().time
        self._waits: dict[asyncio.Task[bool], tuple[int, Call]] = {}
        self._data: bytes | None = None  # read, and not asked for yet
        for _ in range(_AT_ONCE):
            self._begin()

    async def ready(self, seconds: float = inf) -> bool:
        """As of a Call; what goes wrong with one goes wrong with all."""
        until = self._clock() + seconds
        while self._waits and self._data is None:
            left = None if until == inf else max(until - self._clock(), 0)
            done, _ = await asyncio.wait(self._waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return False
            await self._take(done.pop())
        return True

    async def read(self) -> bytes:
        data, self._data = self._data or b"", None
        return data

    def close(self) -> None:
        waits, self._waits = self._waits, {}
        for wait, (_, call) in waits.items():
            wait.cancel()
            call.close()

    async def _take(self, wait: asyncio.Task[bool]) -> None:
        place, call = self._waits[wait]
        self._fan.current = place
        wait.result()
        data = await call.read()
        del self._waits[wait]
        self._fan.current = place
        if data:
            self._data = data
            self._wait(place, call)
        else:
            call.close()
            self._fan.end()
            self._begin()

    def _begin(self) -> None:
        """The next call, if there is one."""
        for place, body in self._bodies:

            def answered(content_type: str, place: int = place) -> None:
                self._fan.current = place
                self._turn.answered(content_type)

            self._wait(place, Call(self._backend, body, answered, self._path))
            return

    def _wait(self, place: int, call: Call) -> None:
        self._waits[asyncio.create_task(call.ready())] = place, call
