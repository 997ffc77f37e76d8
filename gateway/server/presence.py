"""Whether the client is still there: from the moment its request was read until it has its answer."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType

from starlette.types import Receive

LEFT = "the client has left"  # as the message of a cancellation


class Door(ABC):
    """What a `receive` may be of: it can tell at once that the client goes."""

    @abstractmethod
    def watch(self, gone: Callable[[], None]) -> bool:
        """The client's going calls it, until `unwatch`; False, and it does not, where only a message tells that."""

    @abstractmethod
    def unwatch(self) -> None:
        """Nobody waits for that any more."""


class Presence:
    """Ends its block as soon as the client goes, wherever it waits; nobody has to be told.

    Where no Door tells that, a task waits for the message that does.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = False
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        worker = asyncio.current_task()
        assert worker
        self._worker = worker
        door = getattr(self._receive, "__self__", None)
        self._door = door if isinstance(door, Door) and door.watch(self._leave) else None
        if not self._door:
            self._watcher = asyncio.create_task(self._watch())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._door:
            self._door.unwatch()
        if self._watcher:
            self._watcher.cancel()
        worker = self._worker
        del self._worker, self._watcher  # they know this: each would be a cycle
        ours = self._left and kind is asyncio.CancelledError
        if ours:
            worker.uncancel()
        return ours

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        self._left = True
        self._worker.cancel(LEFT)
