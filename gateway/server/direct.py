"""To the client past ASGI's messages, which take several times as long: what uvicorn writes for them, as one write."""

from collections.abc import Callable
from operator import itemgetter

from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from gateway.server.replies import Fields
from gateway.server.writing import Joining

_OK = STATUS_LINE[200]
_CLOSE = (b"connection", b"close")
_value = itemgetter(1)
_line = b"%b: %b\r\n".__mod__


class Direct:
    """The way to the client of one POST; False, and nothing is given, where that has to wait or takes a message.

    send: of uvicorn in our own protocol, else nothing goes this way.
    """

    def __init__(self, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        self._cycle = None
        if isinstance(cycle, RequestResponseCycle) and isinstance(cycle.transport, Joining):
            self._cycle, self._transport = cycle, cycle.transport
        self._lost: Callable[[], None] | None = None

    def piece(self, piece: bytes) -> bool:
        """Of a body that goes on."""
        cycle = self._cycle
        if not cycle or cycle.flow.write_paused or cycle.disconnected or cycle.response_complete:
            return False
        if not cycle.chunked_encoding:
            return False
        self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    def whole(self, fields: Fields, body: bytes) -> bool:
        """An answer of status 200, whose fields have the length of its body."""
        cycle = self._cycle
        if not cycle or cycle.flow.write_paused or cycle.disconnected or cycle.response_started:
            return False
        if HEADER_VALUE_RE.search(b"".join(map(_value, fields))):
            return False
        if not cycle.keep_alive:
            fields = [*fields, _CLOSE]
        head = b"".join(map(_line, fields))
        cycle.response_started = cycle.response_complete = True
        self._transport.alone().write(b"%b%b\r\n%b" % (_OK, head, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self._transport.close()
        cycle.on_response()
        return True

    def watch(self, lost: Callable[[], None]) -> bool:
        """It is called when the connection is lost, until `unwatch`."""
        cycle = self._cycle
        if not cycle or cycle.disconnected:
            return False
        self._lost = self._transport.lost = lost
        return True

    def unwatch(self) -> None:
        if self._transport.lost is self._lost:  # else that of the next request
            self._transport.lost = None
        self._lost = None
