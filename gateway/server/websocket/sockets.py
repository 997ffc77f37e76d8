"""Hold all WebSocket connections of this process, and close them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import UpstreamUnavailable
from gateway.server.websocket.connection import WebSocketConnection

_RESTARTS = 1012
_STOPPING = "The gateway is stopping."


class ConnectionRegistry:
    def __init__(self) -> None:
        self._open: set[WebSocketConnection] = set()
        self._closing = False

    @contextmanager
    def holding(self, connection: WebSocketConnection) -> Iterator[None]:
        """As long as it runs."""
        self._open.add(connection)
        try:
            yield
        finally:
            self._open.discard(connection)

    def check(self) -> None:
        """Raise Unavailable if no more connections are admitted."""
        if self._closing:
            raise UpstreamUnavailable(_STOPPING)

    async def close_when(self, stopping: asyncio.Event) -> None:
        """Then take nothing new, and close each connection as soon as nothing runs in it any more."""
        await stopping.wait()
        await self.close()

    async def close(self) -> None:
        self._closing = True
        problem = UpstreamUnavailable(_STOPPING).problem
        await asyncio.gather(*(connection.end(problem, _RESTARTS) for connection in self._open))
