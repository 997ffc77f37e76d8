"""How a process serves its connections: uvicorn's protocols, with an end for clients that stop halfway.

Where there is a certificate, all of it goes over TLS.  No task waits for ever: neither for a client to read what it was
sent, nor for the rest of a request.  That the gateway stops is told to the connections by their server, and to the
application only when they are gone; so they pass it on.
"""

import asyncio
import sys
from asyncio import TimerHandle
from collections.abc import Callable
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING
from urllib.parse import unquote

import httptools
import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gateway.config import Config
from gateway.server.http.client_connection import set_client_connection
from gateway.server.http.deadline_timer import DeadlineTimer
from gateway.server.http.fast_send import CoalescingProtocol, CoalescingTransport, FastRequestCycle
from gateway.server.http.request_reader import header_dict

if TYPE_CHECKING:
    from gateway.server.http.tls import Certificates

STOPPING = "stopping"  # what is to be called then, in the state that the application's lifespan gives to its server
_PONG = 60.0  # seconds until one has to come; a client answers when it has read what it was sent before
_MAX_HEAD = 1 << 16  # bytes of a request's head
_MAX_PAUSES = 10  # times `request_seconds`, which a request may take beside the time for each megabyte of it
_SLOWEST = 1 << 20  # bytes that may take as long again
_LINGERS, _MAX_DROPPED = 1.0, 4 << 20  # seconds and bytes for which a client that was refused may go on
_TOO_LARGE = (
    b'{"error":{"message":"The head of the request is larger than 64 KiB.","type":"invalid_request_error",'
    b'"param":null,"code":"request_header_too_large"}}'
)
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE)
)
_name = itemgetter(0)
_LENGTHS = (b"content-length", b"transfer-encoding")
_LAST_WORDS = 5  # seconds, beyond the drain, for the last messages to clients


class ServerConfig(uvicorn.Config):
    """How one process serves an application; `follow` takes what may change while it does.

    request_seconds: without a byte of a request that has no end yet; client_seconds: see config.Stream;
    drain_delay_seconds: see config.Server; leaving: they run, and a connection is closed behind its answer.
    """

    client_seconds: float
    drain_delay_seconds: float
    request_seconds = 60.0
    leaving = False

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
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=round(config.server.drain_seconds) + _LAST_WORDS,
            ssl_context_factory=(lambda *_: certificates.context) if certificates else None,
        )
        self.follow(config)

    def set_certificate(self, config: Config) -> None:
        """From the next connection on; raises OSError for a certificate that cannot be used, and keeps what it has."""
        if self._certificates and config.server.tls:
            self._certificates.renew(config.server.tls)

    def follow(self, config: Config) -> None:
        """Apply new settings from the next connection on; the write timeout applies at once."""
        self.ws_max_size = config.limits.body_bytes
        self.ws_ping_interval = config.stream.keepalive_seconds or None
        self.client_seconds = config.stream.client_seconds
        self.drain_delay_seconds = config.server.drain_delay_seconds


class SlowClientProtocol(asyncio.Protocol):
    """Cuts off a client that takes nothing of what it was sent for `client_seconds`.

    Costs nothing while the transport's buffer is not full.
    """

    config: ServerConfig
    transport: asyncio.Transport
    _unread: TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
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


class HttpProtocol(SlowClientProtocol, CoalescingProtocol):  # type: ignore[misc] # its config is one of ours
    """Closes a connection as well on which a request does not come to its end, or is none that all read alike."""

    scope: Scope  # type: ignore[assignment] # uvicorn's, in which others leave what is theirs
    _unsent: TimerHandle | None = None
    _complete = False  # the last request that has begun
    _headless: int | None = 0  # bytes that came of a head without an end; None: it has one
    _too_large = False  # the head
    _begun = 0.0  # when the request began that has not come to its end
    _received = 0  # bytes of that

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self.joining, self._idle = CoalescingTransport(transport, self.loop), DeadlineTimer(self.loop)
        self.transport = self.joining  # type: ignore[assignment] # all of it that is used
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_no_more()
        self._idle.stop()
        self._idle.cancel()
        super().connection_lost(exc)
        if on_lost := self.joining.on_lost:
            on_lost()

    def data_received(self, data: bytes) -> None:
        if self._too_large:
            self._drop(len(data))
            return
        self._idle.stop()
        self._expect_no_more()
        super().data_received(data)
        if not self._complete and not self._too_large:
            self._expect()
            self._bound(len(data))
            self._hurry(len(data))

    def on_message_begin(self) -> None:
        self._complete, self._headless, self._received = False, 0, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Do as uvicorn does, with a FastRequestCycle, and without a root path and a limit of connections.

        What is raised here is a 400, and the end of the connection.
        """
        self._headless = None
        parser, version, scope = self.parser, self.parser.get_http_version(), self.scope
        self._check(version)
        scope["method"] = parser.get_method().decode("ascii")
        if version != "1.1":
            scope["http_version"] = version
        if parser.should_upgrade() and self._should_upgrade():
            return
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"], scope["raw_path"] = unquote(path) if "%" in path else path, url.path
        scope["query_string"] = url.query or b""
        # A client that expects a 100 and is refused sends no body; without that it has sent a large one.
        stays = version != "1.0" and not (self.expect_100_continue or self.config.leaving)
        self._enter(FastRequestCycle(self, stays and parser.should_keep_alive()))

    def _enter(self, cycle: FastRequestCycle) -> None:
        """Now, or behind those that are to be answered before."""
        set_client_connection(self.scope, cycle)
        before, self.cycle = self.cycle, cycle
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_message_complete(self) -> None:
        self._complete = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn's, but for its timer, which it sets and unsets for each request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        if self._complete:  # nothing of it is held while the client is idle
            self.cycle = self.scope = self.headers = None  # type: ignore[assignment] # as before the first request
        self._idle.set(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def handle_websocket_upgrade(self) -> None:
        self.transport = self.joining.flush()
        super().handle_websocket_upgrade()
        self.parser = None  # type: ignore[assignment]  # as when the connection is lost: they would be a cycle

    def shutdown(self) -> None:
        _pass_on(self.app_state)
        super().shutdown()

    def _check(self, version: str) -> None:
        """The parser takes some heads that others read otherwise."""
        headers, parser = header_dict(self.scope), self.parser
        if sum(map(len, chain.from_iterable(self.headers))) > _MAX_HEAD:
            self._too_large = True
            raise ValueError("a head that is too large")
        if version not in ("1.0", "1.1") or (version == "1.1" and b"host" not in headers):
            raise ValueError("no version or no host")
        if len(headers) < len(self.headers) and [*map(_name, self.headers)].count(b"host") > 1:
            raise ValueError("more than one host")
        if b"transfer-encoding" in headers and not self._is_in_chunks():
            raise ValueError("a body of no known length")
        upgrades = parser.should_upgrade() and self._should_upgrade()
        if upgrades and (parser.get_method() != b"GET" or any(one in headers for one in _LENGTHS)):
            raise ValueError("a handshake with a body")

    def _is_in_chunks(self) -> bool:
        return [value.lower() for name, value in self.headers if name == b"transfer-encoding"] == [b"chunked"]

    def _bound(self, size: int) -> None:
        if self._headless is not None:
            self._headless += size
            if self._headless > 2 * _MAX_HEAD and not self._too_large:
                self._too_large = True
                self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's, but for a head that is too large: the rest of it is dropped, so that the client reads why."""
        if self._too_large:
            self._expect_no_more()
            self.transport.write(_HEAD_TOO_LARGE)
            self._unsent = self.loop.call_later(_LINGERS, self.transport.close)
        else:
            super().send_400_response(msg)

    def _drop(self, size: int) -> None:
        self._received += size
        if self._received > _MAX_DROPPED:
            self.transport.close()

    def _hurry(self, size: int) -> None:
        """Close the connection of a client that sends its request too slowly, however often it sends some of it."""
        now = self.loop.time()
        if not self._received:
            self._begun = now
        self._received += size
        if now - self._begun > _MAX_PAUSES * self.config.request_seconds * (1 + self._received / _SLOWEST):
            self.transport.close()

    def _expect(self) -> None:
        if not self.transport.is_closing():
            self._unsent = self.loop.call_later(self.config.request_seconds, self._miss)

    def _miss(self) -> None:
        if self.flow.read_paused:  # the gateway does not read
            self._expect()
        else:
            self.transport.close()

    def _expect_no_more(self) -> None:
        if self._unsent:
            self._unsent.cancel()
            self._unsent = None


class WebSocketProtocol(SlowClientProtocol, WebSocketsSansIOProtocol):  # type: ignore[misc] # see Http
    """The application closes it, after the turns that run in it."""

    def shutdown(self) -> None:
        _pass_on(self.app_state)

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.close_sent:  # a refusal is an end as well, which the server takes for a fault
            self.handshake_complete = True


def _certificates(config: Config) -> "Certificates | None":
    if not config.server.tls:
        return None
    from gateway.server.http.tls import Certificates  # noqa: PLC0415 - heavy, and most have none

    return Certificates(config.server.tls)


def _pass_on(state: dict[str, Callable[[], None]]) -> None:
    state[STOPPING]()
