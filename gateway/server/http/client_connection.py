"""The client's connection of one request, in `scope["extensions"]`: a short way past ASGI's messages.

The server's protocol puts it there.  A connection that has no short way refuses each call, and messages have to do.
CancelOnDisconnect notices that the client disconnects, from the end of its request to the end of its response.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

EXTENSION = "gateway.client"
CLIENT_DISCONNECTED = "the client disconnected"  # as the message of a cancellation
HeaderList = list[tuple[bytes, bytes]]  # names in lower case
TryWrite = Callable[[bytes], bool]  # ClientConnection.try_write


class ClientConnection:
    """A connection that knows only ASGI's messages.  Subclasses have the short way.

    Each `try_…` returns False, and sends nothing, where it would have to wait or the response has another status.
    streamed: bytes of the pieces that `try_write` and `try_end` have sent.
    """

    streamed: int  # not a default of the class, as Python would search for it at each change

    def __init__(self) -> None:
        self.streamed = 0

    def take_body(self) -> bytes | None:
        """Take the request's whole body, if it has arrived and was not taken yet; else return None."""
        return None

    def on_disconnect(self, callback: Callable[[], None]) -> bool:
        """Call this function if the client disconnects, until `clear_on_disconnect`.

        Return False where only a message reports a disconnect.
        """
        return False

    def clear_on_disconnect(self) -> None:
        """Forget the function of `on_disconnect`."""

    def cut(self) -> None:
        """Close the connection, so that a response without its end is seen to be incomplete."""

    def try_send(self, headers: HeaderList, body: bytes) -> bool:
        """Send a whole response with status 200.  headers: with the length of the body."""
        return False

    def try_begin(self, headers: HeaderList) -> bool:
        """Begin a stream with status 200."""
        return False

    def try_write(self, piece: bytes) -> bool:
        """Send a piece of a stream."""
        return False

    # Sends a piece that the caller records itself; False also where `try_write` records nothing.
    try_write_unrecorded = try_write

    def try_end(self, piece: bytes) -> bool:
        """Send the last piece of a stream, which may be empty, and its end."""
        return False


_MESSAGES_ONLY = ClientConnection()


def client_connection(scope: Scope) -> ClientConnection:
    """Return the connection of a request; of a foreign server one that knows only messages."""
    try:
        connection: ClientConnection = scope["extensions"][EXTENSION]
    except KeyError:
        return _MESSAGES_ONLY
    return connection


def set_client_connection(scope: Scope, connection: ClientConnection) -> None:
    """Put the connection into the scope of its request; the application removes it at the end of the request."""
    scope.setdefault("extensions", {})[EXTENSION] = connection


def remove_client_connection(scope: Scope) -> None:
    """Take the connection out of the scope; together they are a reference cycle."""
    del scope["extensions"][EXTENSION]


def scope_without_connection(scope: Scope) -> Scope:
    """Return the scope for a part of the request that has another client."""
    return {**scope, "extensions": {}}


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
