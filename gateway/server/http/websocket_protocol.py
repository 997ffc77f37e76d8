"""Serve WebSockets with uvicorn's protocol: frames of one turn of the event loop are one system call."""

import asyncio

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gateway.server.http.slow_client import SlowClientProtocol
from gateway.server.http.uvicorn_protocol import CoalescingTransport, pass_stop_on

_BATCH = 1 << 14  # bytes of frames that are not delayed any more


class FrameTransport(CoalescingTransport):
    """Delay all data to the end of the loop's turn, or until it is a batch: the frames of a WebSocket."""

    def write(self, data: bytes) -> None:
        """Write data together with that of the same turn."""
        if not self.delayed:
            self._loop.call_soon(self.flush)
        self.delayed += data
        if len(self.delayed) > _BATCH:
            self.flush()

    def pause_reading(self) -> None:
        """Stop reading from the client."""
        self.below.pause_reading()

    def resume_reading(self) -> None:
        """Read from the client again."""
        self.below.resume_reading()


class WebSocketProtocol(SlowClientProtocol, WebSocketsSansIOProtocol):  # type: ignore[misc] # its config is one of ours
    """Let the application close the connection, after the responses that run in it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self.transport = FrameTransport(transport, self.loop)  # type: ignore[assignment] # all of it that is used

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the parser as well: it is a generator that holds the connection's state, which holds it."""
        super().connection_lost(exc)
        self.conn.parser.close()

    def shutdown(self) -> None:
        """Tell the application that the gateway stops."""
        pass_stop_on(self.app_state)

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message; a refusal is an end of the handshake as well."""
        await super().send(message)
        if self.close_sent:  # uvicorn would report a refusal as an error
            self.handshake_complete = True
