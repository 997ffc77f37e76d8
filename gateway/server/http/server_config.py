"""Configure uvicorn for one process that serves an application."""

import asyncio
import sys
from typing import TYPE_CHECKING

from starlette.types import ASGIApp
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gateway.config import Config
from gateway.server.http.coalescing_transport import CoalescingTransport
from gateway.server.http.slow_client import ConnectionSettings, SlowClientProtocol
from gateway.server.http.uvicorn_protocol import HttpProtocol, pass_stop_on

if TYPE_CHECKING:
    from gateway.server.http.tls import Certificates

_BATCH = 1 << 14  # bytes of frames that are not delayed any more


_PONG = 60.0  # seconds for a pong; a client sends it when it has read all before the ping
_KEPT = 75  # seconds of an idle connection: longer than clients and proxies keep one, so that they close it first
_LAST_WORDS = 5  # seconds, beyond the drain, for the last messages to clients


class ServerConfig(ConnectionSettings):
    """Settings of one process that serves an application; `follow` applies those that may change meanwhile.

    drain_delay_seconds: `server.drain_delay_seconds`; during that delay `leaving` is True.
    """

    drain_delay_seconds: float

    def __init__(self, app: ASGIApp, config: Config) -> None:
        certificates = self._certificates = _certificates(config)
        super().__init__(
            app,
            workers=1,
            loop="uvloop" if sys.platform != "win32" else "asyncio",
            http=HttpProtocol,
            ws=WebSocketProtocol,
            ws_ping_timeout=_PONG,
            ws_per_message_deflate=False,
            lifespan="on",
            interface="asgi3",
            log_config=None,
            log_level="warning",  # otherwise uvicorn writes a line about each connection, which no handler takes
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEPT,
            timeout_graceful_shutdown=round(config.server.drain_seconds) + _LAST_WORDS,
            ssl_context_factory=(lambda *_: certificates.context) if certificates else None,
        )
        self.follow(config)

    def set_certificate(self, config: Config) -> None:
        """Use a new certificate from the next connection on.  Raise OSError, and keep the old one, if that fails."""
        if self._certificates and config.server.tls:
            self._certificates.renew(config.server.tls)

    def follow(self, config: Config) -> None:
        """Apply new settings from the next connection on; the write timeout applies at once."""
        self.ws_max_size = config.limits.body_bytes
        self.ws_ping_interval = config.stream.keepalive_seconds or None
        self.client_seconds = config.stream.client_seconds
        self.drain_delay_seconds = config.server.drain_delay_seconds


def _certificates(config: Config) -> "Certificates | None":
    if not config.server.tls:
        return None
    from gateway.server.http.tls import Certificates  # noqa: PLC0415 - a heavy import, rarely needed

    return Certificates(config.server.tls)


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
