"""Make several upstream calls of one choice each, as one call."""

import asyncio
from collections.abc import Callable, Iterable
from math import inf

from gateway.errors import Problem
from gateway.pipeline.fan_out import FanOut
from gateway.server.upstream import DataCallback
from gateway.server.upstream.upstream_call import HttpUpstreamCall

CallFactory = Callable[[bytes, Callable[[str], None]], HttpUpstreamCall]
_AT_ONCE = 4  # the usual parallel requests of a server on one machine


class FanOutCall:
    """Several calls as one, for a server that generates one choice at a time.

    make_call: makes the call of a body and of a callback for its content type; bodies: in the order of their choices.
    """

    def __init__(
        self, make_call: CallFactory, bodies: Iterable[bytes], set_content_type: Callable[[str], None], fan: FanOut
    ) -> None:
        self._make_call, self._bodies = make_call, enumerate(bodies)
        self._set_content_type, self._fan = set_content_type, fan
        self._clock = asyncio.get_running_loop().time
        self._waits: dict[asyncio.Future[bool], tuple[int, HttpUpstreamCall]] = {}
        self._data: bytes | None = None  # read, and not taken yet
        self._current: HttpUpstreamCall | None = None  # the call of the data, until it has ended
        self._has_begun = False  # the response; from then on each call reports its own outcome
        for _ in range(_AT_ONCE):
            self._start_next()

    async def ready(self, seconds: float = inf, _callback: DataCallback | None = None, /) -> bool:
        """Wait for data of any call; the failure of one call is the failure of all."""
        until = self._clock() + seconds
        while self._waits and self._data is None:
            left = None if until == inf else max(until - self._clock(), 0)
            done, _ = await asyncio.wait(self._waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return False
            self._take_ready(done.pop())
        return True

    def read(self) -> bytes:
        """Return the data of the call that was ready."""
        data, self._data = self._data or b"", None
        return data

    @property
    def over(self) -> bool:
        """Return False: only the end of each call tells."""
        return False

    def report_outcome(self, problem: Problem | None) -> None:
        """Report the outcome of the current call; each later call reports a good one with its first data."""
        self._has_begun = True
        if self._current:
            self._current.report_outcome(problem)

    def close(self) -> None:
        """Close all calls."""
        waits, self._waits, self._current = self._waits, {}, None  # a call refers to this by its callback
        for wait, (_, call) in waits.items():
            wait.cancel()
            call.close()

    def _take_ready(self, wait: asyncio.Future[bool]) -> None:
        choice, call = self._waits[wait]
        self._fan.current = choice
        wait.result()
        data = call.read()
        del self._waits[wait]
        self._fan.current = choice
        if data:
            self._data, self._current = data, call
            self._start_waiting(choice, call)
            if self._has_begun:
                call.report_outcome(None)
        else:
            self._end(call)

    def _end(self, call: HttpUpstreamCall) -> None:
        """End one call; an abnormal end is the end of all."""
        problem = self._fan.end()
        self._current = None
        call.report_outcome(problem)
        call.close()
        if problem:
            self._data = b""
        else:
            self._start_next()

    def _start_next(self) -> None:
        """Start the next call, if there is one."""
        for choice, body in self._bodies:

            def set_content_type(content_type: str, choice: int = choice) -> None:
                """Pass on the content type, for the choice of this call."""
                self._fan.current = choice
                self._set_content_type(content_type)

            self._start_waiting(choice, self._make_call(body, set_content_type))
            return

    def _start_waiting(self, choice: int, call: HttpUpstreamCall) -> None:
        self._waits[asyncio.ensure_future(call.ready())] = choice, call
