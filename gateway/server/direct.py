"""To the client past ASGI's messages, which take several times as long: what uvicorn writes for them, as one write."""

from collections.abc import Callable
from operator import itemgetter

from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from gateway.server.replies import AtOnce, Fields
from gateway.server.writing import Joining

_OK = STATUS_LINE[200]
_CLOSE = (b"connection", b"close")
_CHUNKED = (b"transfer-encoding", b"chunked")
_value = itemgetter(1)
_line = b"%b: %b\r\n".__mod__


class Direct(AtOnce):
    """The way to the client of one POST.  send: of uvicorn in our own protocol, else nothing goes this way."""

    def __init__(self, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        self._cycle = None
        if isinstance(cycle, RequestResponseCycle) and isinstance(cycle.transport, Joining):
            self._cycle, self._transport = cycle, cycle.transport
        self._lost: Callable[[], None] | None = None

    def whole(self, fields: Fields, body: bytes) -> bool:
        if not (cycle := self._begun(fields)):
            return False
        self._transport.alone().write(_head(cycle, fields) + body)
        self._over(cycle)
        return True

    def begin(self, fields: Fields) -> bool:
        """It goes out with what follows it in the same turn of the loop."""
        if not (cycle := self._begun(fields)):
            return False
        cycle.chunked_encoding = True
        self._transport.write(_head(cycle, fields, _CHUNKED))
        return True

    def now(self, piece: bytes) -> bool:
        if not self._goes_on():
            return False
        self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    def last(self, piece: bytes) -> bool:
        if not (cycle := self._goes_on()):
            return False
        self._transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(piece), piece) if piece else b"0\r\n\r\n")
        self._over(cycle)
        return True

    def body(self) -> bytes | None:
        """As `receive` would give it, in one message."""
        cycle = self._cycle
        if not cycle or cycle.more_body or cycle.waiting_for_100_continue or not cycle.message_event.is_set():
            return None
        if cycle.disconnected or cycle.response_complete:
            return None
        cycle.flow.resume_reading()
        cycle.message_event.clear()
        body, cycle.body = bytes(cycle.body), bytearray()
        return body

    def watch(self, lost: Callable[[], None]) -> bool:
        """It is called when the connection is lost, until `unwatch`."""
        cycle = self._cycle
        if not cycle or cycle.disconnected:
            return False
        self._lost = self._transport.lost = lost
        return True

    def unwatch(self) -> None:
        if self._lost and self._transport.lost is self._lost:  # else that of the next request
            self._transport.lost = None
        self._lost = None

    def _begun(self, fields: Fields) -> RequestResponseCycle | None:
        """That of an answer that begins now."""
        cycle = self._cycle
        if not cycle or cycle.flow.write_paused or cycle.disconnected or cycle.response_started:
            return None
        if HEADER_VALUE_RE.search(b"".join(map(_value, fields))):
            return None
        cycle.response_started = True
        return cycle

    def _goes_on(self) -> RequestResponseCycle | None:
        """That of a body that does."""
        cycle = self._cycle
        if not cycle or cycle.flow.write_paused or cycle.disconnected or cycle.response_complete:
            return None
        return cycle if cycle.chunked_encoding else None

    def _over(self, cycle: RequestResponseCycle) -> None:
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self._transport.close()
        cycle.on_response()


def _head(cycle: RequestResponseCycle, fields: Fields, *more: tuple[bytes, bytes]) -> bytes:
    close = () if cycle.keep_alive else (_CLOSE,)
    return b"%b%b\r\n" % (_OK, b"".join(map(_line, (*fields, *close, *more))))
