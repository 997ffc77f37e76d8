"""Hold one HTTP/1.1 connection to a backend and the response that it carries."""

import asyncio
import ssl as tls
from collections.abc import Awaitable, Callable
from copy import copy
from math import inf
from time import perf_counter

import httptools

from gateway.errors import ConnectionLost, NoResponse, UpstreamError, UpstreamInvalid
from gateway.server.http.deadline_timer import DeadlineTimer
from gateway.server.upstream.data_callback import DECLINED, HANDLED, DataCallback
from gateway.warnings import safe_name

HEAD_LIMIT = 64 * 1024  # bytes of informational responses, headers and trailers without a byte of body
UNREAD_LIMIT = 256 * 1024  # bytes that may wait for the reader before the connection stops reading
_LARGE = 1 << 14  # bytes of a body that is not joined with the headers
_COMPRESSED = "its body is compressed ({}); switch compression off at the server or its proxy"
# Connects; returns the error of a failure, or None.
OpenConnection = Callable[["UpstreamConnection"], Awaitable[UpstreamError | None]]


class UpstreamResponse:
    """The headers, and the body as it arrives.  The code that gets a response has to close it.

    Times are those of `perf_counter`.
    """

    def __init__(self, connection: "UpstreamConnection") -> None:
        self.status = 0  # until the headers are complete
        self.unread = 0  # bytes received since the reader last took data
        self.error: UpstreamError | None = None  # the failure that ended the response
        self.broken_at = inf
        self.connected_at: float | None = None  # of the connection that was opened for the response
        self._fields: dict[bytes, bytes] = {}  # names in lower case; values of one name are joined by ", "
        self._connection = connection
        self._parts: list[bytes] = []
        self._waiter: asyncio.Future[bool] | None = None  # result True: something arrived
        self._callback: DataCallback | None = None
        self._seconds = self._until = inf  # for which, and the time until which, the reader waits for data
        self.handed_at: float | None = None  # when the reader last got data
        self._over = False
        self._keep = False
        self._ends_at_eof = False
        self._closed = False
        self.on_body = self._parts.append  # the parser appends to the list itself: no Python frame per chunk

    @property
    def headers(self) -> dict[str, str]:
        """The headers by their names in lower case; values of one name are joined by ", "."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self._fields.items()}

    @property
    def content_type(self) -> str:
        """The content type as sent; "" without one."""
        return self._fields.get(b"content-type", b"").decode("latin-1")

    def take(self) -> bytes:
        """Return all bytes of the body since the last call, once `ready` returned True; b"" at the end of the body.

        Raises the UpstreamError that ended the response, after all received bytes have been taken.
        """
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self.unread = 0
            self.handed_at = self._connection.clock()
            if self._connection.reading_paused:
                self._connection.resume()
            return data
        if self.error is not None:
            raise copy(self.error)  # a copy, as the raised error refers to this frame and so to the response: a cycle
        return b""

    @property
    def is_readable(self) -> bool:
        """True if `take` need not wait."""
        return self._over or bool(self._parts)

    @property
    def over(self) -> bool:
        """True if the whole body was taken and is complete."""
        return self._over and not self._parts and self.error is None

    def ready(
        self, seconds: float = inf, callback: DataCallback | None = None, until: float = inf
    ) -> asyncio.Future[bool]:
        """Wait until `take` has data or an end, or an error status has arrived; result False after `seconds`.

        callback: called in `data_received` with data that arrives meanwhile; each time, the seconds begin anew.  If it
        wakes the task, `take` may have nothing.
        until: the time, at least `seconds` away, at which the result is False even if data has arrived meanwhile.
        """
        self._waiter = waiter = self._connection.loop.create_future()
        self._callback, self._seconds, self._until = callback, seconds, until
        if self._parts or self._over:
            self._end_wait(readable=True)
        else:
            self._connection.timer.set(seconds, self._time_out)
        return waiter

    def close(self) -> None:
        """Keep the connection if the body is complete and keep-alive holds, else close its socket at once."""
        if not self._closed:
            self._closed, self._callback = True, None
            self._connection.release(keep=self._over and self._keep)
            self._parts.clear()
            if not self._over:
                self.end(ConnectionLost("the response was closed before its end"))

    async def send(self, piece: bytes, seconds: float) -> bool:
        """Send a piece of the request's body, once the connection is open; return True when it takes more.

        Return True also if the response has failed; False if the backend reads nothing for so many seconds.
        """
        return await self._connection.send_piece(piece, seconds)

    # Called by the connection.

    def notify_reader(self) -> bool:
        """Hand new data to the callback or wake the reader; return True if reading has to pause.

        Raises UpstreamInvalid for more than 64 KiB without a byte of body.
        """
        callback = self._callback
        if not self._parts:
            if self.unread > HEAD_LIMIT:
                raise UpstreamInvalid("it sent 64 KiB without a byte of body")
            if self._over:
                self._end_wait(readable=True)
        elif callback:
            now = self._connection.clock()
            outcome = callback(b"".join(self._parts), now)
            if outcome is not DECLINED:
                self._parts.clear()
                self.unread = 0
                self.handed_at = now  # the timer looks at it when it fires
            if outcome is HANDLED:
                return False
            self._end_wait(readable=True)  # a task has to wake for it
        else:
            self._end_wait(readable=True)
        return self.unread > UNREAD_LIMIT and not self._over

    def end(self, error: UpstreamError | None = None) -> None:
        """End the response; only the first call counts."""
        if not self._over:
            self._over = True
            self.error = error
        self._end_wait(readable=True)

    def connection_closed_by_peer(self) -> None:
        """End the response: successfully if its body has no length, as only the close ends such a body."""
        if self._ends_at_eof:
            self.end()
        self.fail_as_broken()

    def fail_as_broken(self) -> None:
        """End the response with ConnectionLost or NoResponse."""
        self.broken_at = self._connection.clock()
        lost = ConnectionLost if self.status or self.unread else NoResponse
        self.end(lost("The backend closed the connection before its response was complete."))

    # Called by the parser, as is on_body.

    def on_message_begin(self) -> None:
        """Raise UpstreamInvalid for a second response."""
        if self._over:
            raise UpstreamInvalid("it sent more than one response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        if not self.status:  # a later field is a trailer
            key, fields = name.lower(), self._fields
            fields[key] = b"%b, %b" % (fields[key], value) if key in fields else value

    def on_headers_complete(self) -> None:
        """Check the headers and set the status; skip an informational response.

        Raises UpstreamInvalid for too large headers, an invalid status or an encoded body.
        """
        fields = self._fields
        if self.unread > HEAD_LIMIT and sum(len(k) + len(v) + 4 for k, v in fields.items()) > HEAD_LIMIT:
            raise UpstreamInvalid("its headers are larger than 64 KiB")
        parser = self._connection.parser
        assert parser
        status = parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            fields.clear()
            return
        if not 200 <= status < 600:
            raise UpstreamInvalid(f"its status {status} is invalid")
        encoding = fields.get(b"content-encoding")
        if encoding and encoding.lower() != b"identity" and status == 200:
            raise UpstreamInvalid(_COMPRESSED.format(safe_name(encoding.decode("latin-1"))))
        if b"content-length" not in fields:
            self._ends_at_eof = not fields.get(b"transfer-encoding", b"").lower().rstrip().endswith(b"chunked")
        self._keep = parser.should_keep_alive()
        self.status = status
        if status != 200:
            self._end_wait(readable=True)

    def on_message_complete(self) -> None:
        """Note the end of the response."""
        if self.status:  # otherwise it was an informational response
            self._over, self._callback = True, None  # notify_reader wakes the reader

    def _time_out(self) -> None:
        """End the wait, unless the seconds have begun anew."""
        if self._waiter is None or self._waiter.done():
            return
        begun = -inf if self.handed_at is None else self.handed_at
        left = min(begun + self._seconds, self._until) - self._connection.clock()
        if left > 0:
            self._connection.timer.set(left, self._time_out)
        else:
            self._end_wait(readable=False)

    def _end_wait(self, *, readable: bool) -> None:
        """Give the reader its result, if it waits; data that follows is its own to take."""
        self._callback = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(readable)


class UpstreamConnection(asyncio.Protocol):
    """A socket, perhaps with TLS over it, that carries one response at a time.

    keep: keeps the connection while it is idle; returns False if it does not.  discard: called once it is closed.
    """

    _raw: asyncio.Transport  # the socket
    _out: asyncio.Transport  # the target of requests: the socket or its TLS

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        keep: Callable[["UpstreamConnection"], bool],
        discard: Callable[["UpstreamConnection"], None],
    ) -> None:
        # Defaults of the class would make each change of them a search.
        self._opening: asyncio.Task[None] | None = None  # until the connection is established
        self._response: UpstreamResponse | None = None
        self._full: asyncio.Future[None] | None = None  # while the buffer of unsent data is full
        self.parser: httptools.HttpResponseParser | None = None  # of the current response
        self._parse: Callable[[bytes], None] | None = None  # the method of the parser, looked up once
        self.loop = loop
        self.timer, self.clock = DeadlineTimer(loop), perf_counter
        self.closed = loop.create_future()  # done when the socket is closed
        self._keep, self._discard = keep, discard
        self.reading_paused = False

    def open(self, connect: OpenConnection, head: bytes, body: bytes) -> UpstreamResponse:
        """Connect, then send a request; return its response at once."""
        response = self._begin_response()  # before connecting, as some servers refuse before they get a request
        self._opening = self.loop.create_task(self._connect_and_send(connect, response, head, body))
        return response

    async def start_tls(self, context: tls.SSLContext, host: str) -> None:
        """Start TLS on the socket."""
        try:
            out = await self.loop.start_tls(self._raw, self, context, server_hostname=host)
        except (OSError, asyncio.CancelledError):
            self._raw.abort()
            raise
        assert out is not None  # None only if the socket was closed before
        self._out = out

    def send_request(self, head: bytes, body: bytes) -> UpstreamResponse:
        """Send a request on the established connection."""
        response = self._begin_response()
        self._write_request(response, head, body)
        return response

    def abort(self) -> None:
        """Close the socket at once and discard unsent data."""
        self._discard(self)
        if self._opening:
            self._opening.cancel()
            self.timer.cancel()
        else:
            self._raw.abort()

    # Called by the response.

    def resume(self) -> None:
        """Read from the socket again."""
        self.reading_paused = False
        self._raw.resume_reading()

    def release(self, *, keep: bool) -> None:
        """End the response: keep the connection if it can carry another one, else close it."""
        # The parser and the timer refer to the response, which refers to this connection: cycles.
        self._response = self.parser = self._parse = None
        self.timer.stop()
        if not (keep and self._is_reusable() and self._keep(self)):
            self.abort()

    async def send_piece(self, piece: bytes, seconds: float) -> bool:
        """Send a piece of the request's body; see UpstreamResponse.send."""
        if self._opening:
            await asyncio.wait((self._opening,))
        if self._response is None or self._response.error:
            return True
        self._out.write(piece)
        if self._full is None:
            return True
        done, _ = await asyncio.wait((self._full,), timeout=None if seconds == inf else seconds)
        return bool(done)

    # Called by the transport.

    def pause_writing(self) -> None:
        """Note that the backend reads more slowly than the gateway sends."""
        self._full = self.loop.create_future()

    def resume_writing(self) -> None:
        """Note that the backend reads again."""
        if self._full:
            self._full.set_result(None)
            self._full = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvloop's is no subclass
        """Note the transport."""
        self._raw = self._out = transport  # both asyncio and uvloop have set TCP_NODELAY

    def data_received(self, data: bytes) -> None:
        """Parse data, and notify the reader; close the socket after data that is not HTTP or belongs to no request."""
        response, parse = self._response, self._parse
        if response is None or parse is None:  # no request is open
            self.abort()
            return
        response.unread += len(data)
        try:
            parse(data)
            if response.notify_reader():
                self._pause_reading()
        except (httptools.HttpParserError, UpstreamInvalid) as error:
            response.end(UpstreamInvalid(_invalid_text(error)))
            self.abort()

    def eof_received(self) -> None:
        """End the response and close the socket."""
        if self._response is not None:
            self._response.connection_closed_by_peer()
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail an open response, and mark the connection as closed."""
        if self._response is not None and not self._opening:
            self._response.fail_as_broken()
        self._discard(self)
        self.timer.cancel()
        self.resume_writing()
        self.closed.set_result(None)

    async def _connect_and_send(
        self, connect: OpenConnection, response: UpstreamResponse, head: bytes, body: bytes
    ) -> None:
        if failed := await connect(self):
            response.end(failed)
            return
        self._opening, response.connected_at = None, self.clock()
        self._write_request(response, head, body)

    def _write_request(self, response: UpstreamResponse, head: bytes, body: bytes) -> None:
        if self._raw.is_closing():
            response.fail_as_broken()
        elif len(body) < _LARGE:
            self._out.write(head + body)  # one write takes half as long as two
        else:
            self._out.writelines((head, body))

    def _is_reusable(self) -> bool:
        """Return True if the connection can carry another request."""
        unsent = self._out.get_write_buffer_size() or self._raw.get_write_buffer_size()
        return not (unsent or self._raw.is_closing())

    def _begin_response(self) -> UpstreamResponse:
        """Begin a new response."""
        response = self._response = UpstreamResponse(self)
        # Each response has its own parser: a reused one leaks trailers into the headers of the next response.
        self.parser = parser = httptools.HttpResponseParser(response)
        self._parse = parser.feed_data
        return response

    def _pause_reading(self) -> None:
        # Pause the socket, never its TLS.  A paused TLS transport of asyncio drops its data when the connection breaks,
        # while the kernel still hands out the data that arrived before.
        self.reading_paused = True
        self._raw.pause_reading()


def _invalid_text(error: Exception) -> str:
    """Return the message for a failed parse.  A function, as a local variable of its caller would be a cycle."""
    cause = error.__context__ or error
    what = "an invalid response" if isinstance(cause, UpstreamInvalid) else "no valid HTTP"
    return f"The backend sent {what}: {cause}."
