"""Close the connections of clients that do not read."""

import asyncio
from asyncio import TimerHandle

import uvicorn


class ConnectionSettings(uvicorn.Config):
    """The settings that a connection reads.

    client_seconds: `stream.client_seconds`.
    request_seconds: limit without a byte of an unfinished request.
    leaving: the gateway is about to stop, so each response closes its connection.
    """

    client_seconds: float
    request_seconds = 60.0
    leaving = False


class SlowClientProtocol(asyncio.Protocol):
    """Close the connection of a client that reads nothing for `client_seconds`.

    It costs nothing while the transport's buffer is not full.
    """

    config: ConnectionSettings
    transport: asyncio.Transport
    _unread: TimerHandle | None = None

    def pause_writing(self) -> None:
        """Start the timer: the client does not read fast enough."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """Stop the timer."""
        super().resume_writing()
        self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if seconds := self.config.client_seconds:
            left = self.transport.get_write_buffer_size()
            self._unread = asyncio.get_running_loop().call_later(seconds, self._look, left)

    def _look(self, left: int) -> None:
        """Reset the timer if the client took some data, however little."""
        if self.transport.get_write_buffer_size() < left:
            self._wait()
        else:
            self.transport.abort()

    def _wait_no_more(self) -> None:
        if self._unread:
            self._unread.cancel()
