"""Notice that a client disconnects, from the end of its request to the end of its response."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.types import Receive

LEFT = "the client has left"  # as the message of a cancellation


class DisconnectSource:
    """The owner of a `receive`: it reports a disconnect at once, where others do it by messages."""

    def take_body(self) -> bytes | None:
        """Take the request's whole body, if it has arrived and was not taken yet; else return None."""
        return None

    def watch(self, gone: Callable[[], None]) -> bool:
        """The client's going calls it, until `unwatch`; False, and it does not, where only a message tells that."""
        return False

    def clear_on_disconnect(self) -> None:
        """Stop watching."""


_NONE = DisconnectSource()


def door(receive: Receive) -> DisconnectSource:
    """The one that this is of, or one that tells nothing."""
    owner = getattr(receive, "__self__", None)
    return owner if isinstance(owner, DisconnectSource) else _NONE


class CancelOnDisconnect:
    """Context manager that cancels its body when the client disconnects.

    Without a DisconnectSource, a task waits for the disconnect message.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = False

    def __enter__(self) -> None:
        worker = asyncio.current_task()
        assert worker
        self._worker = worker
        self._door = door(self._receive)
        self._watcher = None if self._door.watch(self._leave) else asyncio.create_task(self._watch())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._door.clear_on_disconnect()
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
