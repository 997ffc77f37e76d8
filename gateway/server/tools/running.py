"""A round of tools, to be used as a call to a backend is."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from math import inf
from typing import Any

from msgspec import json

from gateway.errors import Problem
from gateway.hosted import BuiltinToolResult
from gateway.server.client import DataCallback

Used = Callable[[], Awaitable[object]]
ToolRoundWork = Callable[[Callable[[BuiltinToolResult], None], Used], Coroutine[Any, Any, None]]

_encode = json.Encoder().encode


class ToolRoundCall:
    """A round of tools as an upstream call.  Its data are lists of Results as JSON; the first is empty: it has begun.

    work: is begun at once, and tells each result as soon as there is one; what it raises, `read` does.  It may wait
    until what it has told is used, which is so when more is waited for.
    """

    def __init__(self, work: ToolRoundWork) -> None:
        self._results: list[BuiltinToolResult] = []
        self._begun = False
        self._news = asyncio.Event()
        self._news.set()
        self._used = asyncio.Event()
        self._used.set()
        self._task = asyncio.create_task(work(self._take, self._used.wait))
        self._task.add_done_callback(self._end)

    async def ready(self, seconds: float = inf, _ear: DataCallback | None = None, /) -> bool:
        if not self._results:
            self._used.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == inf else max(seconds, 0)):
                await self._news.wait()
        return self._news.is_set()

    def read(self) -> bytes:
        results, self._results = self._results, []
        over = self._begun and self._task.done() and not results
        self._begun = True
        if over:
            self._task.result()
            return b""
        if not self._task.done():
            self._news.clear()
        return _encode(results)

    @property
    def over(self) -> bool:
        return False

    def judge(self, problem: Problem | None) -> None:
        """No backend has said anything."""

    def close(self) -> None:
        """Break off what still runs."""
        self._task.cancel()

    def _take(self, result: BuiltinToolResult) -> None:
        self._results.append(result)
        self._used.clear()
        self._news.set()

    def _end(self, task: asyncio.Task[None]) -> None:
        """Take the exception of the task, as both would keep each other in memory."""
        if task.cancelled():
            with suppress(asyncio.CancelledError):
                task.result()
        self._news.set()
