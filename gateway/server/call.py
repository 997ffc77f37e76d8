"""One call to a backend: its limits of time, and waits that can be given up without giving up the call."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from math import inf
from typing import Any

from gateway.backends.openai import failures
from gateway.errors import Problem, UpstreamError, UpstreamFailed, UpstreamTimeout
from gateway.server.backend import Backend
from gateway.server.client import Answer

_log = logging.getLogger("gateway")
_EXCERPT = 300  # bytes of an answer that the log shows
_REFUSAL_LIMIT = 1 << 20  # bytes of an error's body that are read
_REFUSAL_SECONDS = 5.0  # and how long it is waited for


class Call:
    """`ready` and `read` raise what went wrong; whoever makes a call has to close it.

    answered: is told the content type of an answer that is none of an error, before its first byte.
    path: where to, "" for where the backend is asked to chat.
    """

    def __init__(self, backend: Backend, body: bytes, answered: Callable[[str], None], path: str = "") -> None:
        self._backend, self._times, self._answered = backend, backend.timeouts, answered
        self._clock = asyncio.get_running_loop().time
        self._begun = self._heard = self._clock()
        self._answer: Answer | None = None  # one that is no error
        self._silent = True  # no byte of its body has come
        self._path, self._body = path or backend.dialect.path, body
        self._head: asyncio.Task[Answer] | None = None  # only where a wait may be given up

    async def ready(self, seconds: float = inf) -> bool:
        """Wait until `read` need not; False after so many seconds, and then nothing is given up."""
        until = self._clock() + seconds
        limit = self._limit()
        answer = self._answer or await self._accepted(until, limit)
        if answer and await answer.ready(min(until, limit) - self._clock()):
            return True
        if limit <= until:
            raise UpstreamTimeout(f"The backend '{self._backend.name}' said nothing for too long.")
        return False

    async def read(self) -> bytes:
        """What came since the last read, b"" at the end; to be asked for once `ready` has said yes."""
        assert self._answer
        data = await self._answer.read()
        self._heard, self._silent = self._clock(), False
        return data

    def close(self) -> None:
        """Let go of the connection: at once, unless the answer came to its end."""
        if self._answer:
            self._answer.close()
        elif self._head and not self._head.cancel() and not self._head.cancelled() and not self._head.exception():
            self._head.result().close()

    def _limit(self) -> float:
        """When the silence, or the whole, will have taken too long."""
        silence = self._times.first_byte if self._silent else self._times.idle
        total = self._begun + self._times.total if self._times.total else inf
        return min(self._heard + silence if silence else inf, total)

    async def _accepted(self, until: float, limit: float) -> Answer | None:
        """The answer, if its head has come by then and it is none of an error."""
        if until == inf and not self._head:
            answer = await self._ask(limit)
        else:
            self._head = self._head or asyncio.create_task(self._ask(limit))
            left = min(until, limit) - self._clock()
            await asyncio.wait((self._head,), timeout=None if left == inf else max(left, 0))
            if not self._head.done():
                return None
            answer = self._head.result()
        if answer.status != 200:
            await self._refused(answer)
        self._answer = answer
        self._answered(answer.headers.get("content-type", ""))
        return answer

    async def _ask(self, limit: float) -> Answer:
        left = limit - self._clock()
        return await self._backend.post(self._path, self._body, 0 if left == inf else max(left, 0.001))

    async def _refused(self, answer: Answer) -> None:
        body = b""
        with closing(answer), suppress(UpstreamError, TimeoutError):  # its status is known; what came has to do
            async with asyncio.timeout(_REFUSAL_SECONDS):
                while len(body) < _REFUSAL_LIMIT and (data := await answer.read()):
                    body += data
        body = self._backend.masked(body)
        problem = self._absent(answer.status, failures.problem(answer.status, body))
        if problem.status >= 500:
            _log.warning("backend %s answered %d: %r", self._backend.name, answer.status, body[:_EXCERPT])
        raise UpstreamFailed(problem, answer.headers.get("retry-after"))

    def _absent(self, status: int, problem: Problem) -> Problem:
        """What a server lacks besides chat is no fault of its own: not every one has everything."""
        if self._path == self._backend.dialect.path or status not in (404, 405) or problem.code != "upstream_error":
            return problem
        return Problem(400, f"The backend '{self._backend.name}' has no {self._path}.", "unsupported_value", "model")


class Later:
    """A call that something else comes before, which may take its time or go wrong: to be used as a call is.

    coming: is begun at once, and gives the call.
    """

    def __init__(self, coming: Coroutine[Any, Any, Call]) -> None:
        self._coming = asyncio.create_task(coming)
        self._clock = asyncio.get_running_loop().time

    async def ready(self, seconds: float = inf) -> bool:
        until = self._clock() + seconds
        await asyncio.wait((self._coming,), timeout=None if seconds == inf else max(seconds, 0))
        if not self._coming.done():
            return False
        return await self._coming.result().ready(until - self._clock())

    async def read(self) -> bytes:
        return await self._coming.result().read()

    def close(self) -> None:
        if not self._coming.cancel() and not self._coming.cancelled() and not self._coming.exception():
            self._coming.result().close()
