"""The calls of a FanOut: some at a time, to be used as one call is."""

import asyncio
from collections.abc import Callable, Iterable
from math import inf

from gateway.errors import Problem
from gateway.fan import FanOut
from gateway.server.call import HttpUpstreamCall
from gateway.server.client import DataCallback

CallFactory = Callable[[bytes, Callable[[str], None]], HttpUpstreamCall]
_AT_ONCE = 4  # as many answers as servers of one machine give at a time


class FanOutCall:
    """put: makes a call of a body and of what hears its content type; bodies: in the order of their choices."""

    def __init__(self, put: CallFactory, bodies: Iterable[bytes], answered: Callable[[str], None], fan: FanOut) -> None:
        self._put, self._bodies = put, enumerate(bodies)
        self._answered, self._fan = answered, fan
        self._clock = asyncio.get_running_loop().time
        self._waits: dict[asyncio.Future[bool], tuple[int, HttpUpstreamCall]] = {}
        self._data: bytes | None = None  # read, and not asked for yet
        self._speaker: HttpUpstreamCall | None = None  # its source, unless that has ended and was judged
        self._begun = False  # the answer has
        for _ in range(_AT_ONCE):
            self._begin()

    async def ready(self, seconds: float = inf, _ear: DataCallback | None = None, /) -> bool:
        """As of an HttpUpstreamCall; what goes wrong with one goes wrong with all."""
        until = self._clock() + seconds
        while self._waits and self._data is None:
            left = None if until == inf else max(until - self._clock(), 0)
            done, _ = await asyncio.wait(self._waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return False
            self._take(done.pop())
        return True

    def read(self) -> bytes:
        data, self._data = self._data or b"", None
        return data

    @property
    def over(self) -> bool:
        return False

    def judge(self, problem: Problem | None) -> None:
        """Once one has begun to answer, each of the others has if it speaks."""
        self._begun = True
        if self._speaker:
            self._speaker.judge(problem)

    def close(self) -> None:
        waits, self._waits, self._speaker = self._waits, {}, None  # a call knows this, as what hears its type
        for wait, (_, call) in waits.items():
            wait.cancel()
            call.close()

    def _take(self, wait: asyncio.Future[bool]) -> None:
        place, call = self._waits[wait]
        self._fan.current = place
        wait.result()
        data = call.read()
        del self._waits[wait]
        self._fan.current = place
        if data:
            self._data, self._speaker = data, call
            self._wait(place, call)
            if self._begun:
                call.judge(None)
        else:
            self._end(call)

    def _end(self, call: HttpUpstreamCall) -> None:
        """End one call; an abnormal end is the end of all."""
        problem = self._fan.end()
        self._speaker = None
        call.judge(problem)
        call.close()
        if problem:
            self._data = b""
        else:
            self._begin()

    def _begin(self) -> None:
        """The next call, if there is one."""
        for place, body in self._bodies:

            def answered(content_type: str, place: int = place) -> None:
                self._fan.current = place
                self._answered(content_type)

            self._wait(place, self._put(body, answered))
            return

    def _wait(self, place: int, call: HttpUpstreamCall) -> None:
        self._waits[asyncio.ensure_future(call.ready())] = place, call
