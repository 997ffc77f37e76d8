"""Notice that a client disconnects, from the end of its request to the end of its response."""

import asyncio
from types import TracebackType

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from gateway.server.http.client_connection import client_connection

CLIENT_DISCONNECTED = "the client disconnected"  # as the message of a cancellation


class CancelOnDisconnect:
    """Context manager that cancels its body when the client disconnects, and raises ClientDisconnect then.

    Where the connection reports no disconnect, a task waits for the message of it.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._connection, self._receive = client_connection(scope), receive
        self._disconnected = False

    def __enter__(self) -> None:
        worker = asyncio.current_task()
        assert worker
        self._worker = worker
        watched = self._connection.on_disconnect(self._cancel)
        self._watcher = None if watched else asyncio.create_task(self._watch())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.clear_on_disconnect()
        if self._watcher:
            self._watcher.cancel()
        worker = self._worker
        del self._worker, self._watcher  # each refers to this object, and would be a cycle
        if self._disconnected and kind is asyncio.CancelledError:
            worker.uncancel()
            raise ClientDisconnect

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel()

    def _cancel(self) -> None:
        self._disconnected = True
        self._worker.cancel(CLIENT_DISCONNECTED)
