"""One socket to a backend, and the few that wait for their next request."""

import asyncio
import ssl as tls
from collections.abc import Awaitable, Callable

import httptools

from gateway.errors import UpstreamError, UpstreamInvalid
from gateway.server.alarm import DeadlineTimer
from gateway.server.client.answer import UpstreamResponse

_LARGE = 1 << 16  # bytes that are not copied for it
OpenConnection = Callable[
    ["UpstreamConnection"], Awaitable[UpstreamError | None]
]  # connects it; why that did not come about


class IdleConnections:
    """The connections that wait for a request, at most `limit`; the one used last goes first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._connections: dict[UpstreamConnection, None] = {}

    def put(self, connection: "UpstreamConnection") -> bool:
        """Keep it, if there is room."""
        if len(self._connections) >= self.limit:
            return False
        self._connections[connection] = None
        return True

    def pop(self) -> "UpstreamConnection | None":
        return self._connections.popitem()[0] if self._connections else None

    def discard(self, connection: "UpstreamConnection") -> None:
        self._connections.pop(connection, None)


class UpstreamConnection(asyncio.Protocol):
    """A socket, perhaps with TLS over it, that carries one answer at a time."""

    _raw: asyncio.Transport  # the socket
    _out: asyncio.Transport  # where a request goes: the socket or its TLS
    _opening: asyncio.Task[None] | None = None  # until it stands
    _answer: UpstreamResponse | None = None
    parser: httptools.HttpResponseParser  # of that answer

    def __init__(self, loop: asyncio.AbstractEventLoop, idle: IdleConnections) -> None:
        self.loop = loop
        self.alarm = DeadlineTimer(loop)
        self.gone = loop.create_future()  # done when the socket is closed
        self._idle = idle
        self.held = False

    def open(self, opened: OpenConnection, head: bytes, body: bytes) -> UpstreamResponse:
        """Send a request as soon as it stands."""
        answer = self._expect()  # some refuse before they are asked
        self._opening = self.loop.create_task(self._begin(opened, answer, head, body))
        return answer

    async def secure(self, context: tls.SSLContext, host: str) -> None:
        """Put TLS over the socket."""
        try:
            out = await self.loop.start_tls(self._raw, self, context, server_hostname=host)
        except (OSError, asyncio.CancelledError):
            self._raw.abort()
            raise
        assert out is not None  # it is None only if the socket was closed before
        self._out = out

    def ask(self, head: bytes, body: bytes) -> UpstreamResponse:
        """Send a request at once."""
        answer = self._expect()
        self._send(answer, head, body)
        return answer

    def abort(self) -> None:
        """Close the socket at once, whatever is on its way."""
        self._idle.discard(self)
        if self._opening:
            self._opening.cancel()
            self.alarm.cancel()
        else:
            self._raw.abort()

    # What the answer calls.

    def resume(self) -> None:
        """Let the backend go on sending, where it was held back."""
        self.held = False
        self._raw.resume_reading()

    def release(self, *, keep: bool) -> None:
        """The answer is done with: keep the connection if it can carry another, else close it."""
        self._answer = None
        del self.parser  # it knows the answer, as the alarm does, and the answer knows this: they would be cycles
        self.alarm.unset()
        if not (keep and self._stands() and self._idle.put(self)):
            self.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvloop's is no subclass
        self._raw = self._out = transport  # both asyncio and uvloop have set TCP_NODELAY

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:  # nothing was asked
            self.abort()
            return
        answer.unread += len(data)
        try:
            self.parser.feed_data(data)
            if answer.offer():
                self._hold()
        except (httptools.HttpParserError, UpstreamInvalid) as error:
            answer.end(UpstreamInvalid(f"the backend's answer is no proper HTTP: {error.__context__ or error}"))
            self.abort()

    def eof_received(self) -> None:
        if self._answer is not None:
            self._answer.eof()
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._opening:
            self._answer.broken()
        self._idle.discard(self)
        self.alarm.cancel()
        self.gone.set_result(None)

    async def _begin(self, opened: OpenConnection, answer: UpstreamResponse, head: bytes, body: bytes) -> None:
        if failed := await opened(self):
            answer.end(failed)
            return
        self._opening = None
        self._send(answer, head, body)

    def _send(self, answer: UpstreamResponse, head: bytes, body: bytes) -> None:
        if self._raw.is_closing():
            answer.broken()
        elif len(body) < _LARGE:
            self._out.write(head + body)  # one piece takes half as long as two
        else:
            self._out.writelines((head, body))

    def _stands(self) -> bool:
        """Return True if the connection can carry another request."""
        unsent = self._out.get_write_buffer_size() or self._raw.get_write_buffer_size()
        return not (unsent or self._raw.is_closing())

    def _expect(self) -> UpstreamResponse:
        """Begin a new response."""
        answer = self._answer = UpstreamResponse(self)
        # A parser of its own: one that is used again leaks the trailers of an answer into the next one's headers.
        self.parser = httptools.HttpResponseParser(answer)
        return answer

    def _hold(self) -> None:
        # Always the socket, never its TLS: asyncio's TLS, when it is the one that is paused, drops what it holds when
        # the connection breaks, whereas the kernel still hands out what came before.
        self.held = True
        self._raw.pause_reading()
