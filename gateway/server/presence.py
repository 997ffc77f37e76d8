"""Whether the client is still there: from the moment its request was read until it has its answer."""

import asyncio
from types import TracebackType

from starlette.types import Receive

LEFT = "the client has left"  # as the message of a cancellation


class Presence:
    """Ends its block as soon as the client goes, wherever it waits; nobody has to be told."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = False

    async def __aenter__(self) -> None:
        worker = asyncio.current_task()
        assert worker
        self._watcher = asyncio.create_task(self._watch(worker))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._watcher.cancel()
        del self._watcher  # it knows where it was cancelled, and with that this: they would be a cycle
        ours = self._left and kind is asyncio.CancelledError
        if ours and (worker := asyncio.current_task()):
            worker.uncancel()
        return ours

    async def _watch(self, worker: asyncio.Task[object]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left = True
        worker.cancel(LEFT)
