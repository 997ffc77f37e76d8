"""Make an upstream call that opens a WebSocket to a backend, and pass on its messages."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from time import perf_counter
from typing import Any, Never

from msgspec import Struct
from websockets import Subprotocol
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from gateway.errors import ConnectionLost, UpstreamError, UpstreamInvalid, UpstreamTimeout, UpstreamUnreachable
from gateway.server.observability.request_record import RequestRecord
from gateway.server.upstream.backend import Backend, auth_headers
from gateway.server.upstream.failure_text import cause_text, end_sentence
from gateway.server.upstream.passed_call import PassedRequest
from gateway.server.upstream.slots import QueueIdentity
from gateway.server.upstream.upstream_call import HttpUpstreamCall

_UNSENDABLE = (1005, 1006, 1015)  # RFC 6455, 7.4.1: these stand for a close without a code
_NORMAL = 1000
_MAX_REASON = 123  # bytes, RFC 6455, 5.5
_MAX_MESSAGE = 16 << 20  # bytes of a message of the backend, which is in memory as a whole
_CLOSE_SECONDS = 5.0  # timeout for the backend's own close


class Close(Struct, frozen=True):
    """The close of a WebSocket."""

    code: int = _NORMAL
    reason: str = ""

    def sendable(self) -> "Close":
        """Return the close with a code and a reason that a frame can have."""
        code = _NORMAL if self.code in _UNSENDABLE else self.code
        return Close(code, self.reason.encode()[:_MAX_REASON].decode(errors="ignore"))


class _Handshake(connect):
    """A handshake that follows no redirect.  connect_seconds: timeout for the connection, TLS included; 0: none."""

    connect_seconds = 0.0

    async def open_tcp_connection(self) -> ClientConnection:
        """Connect; raise UpstreamTimeout or UpstreamUnreachable."""
        seconds = self.connect_seconds
        try:
            async with asyncio.timeout(seconds or None):
                return await super().open_tcp_connection()
        except TimeoutError:
            message = f"The backend did not accept a connection within {seconds:g} s (timeouts.connect)."
            raise UpstreamTimeout(message) from None
        except (OSError, UnicodeError) as error:  # a UnicodeError for a name that DNS cannot hold
            message = f"The backend cannot be reached: {end_sentence(cause_text(error))}"
            raise UpstreamUnreachable(message) from None

    def process_redirect(self, exc: Exception) -> Exception:
        """Return the error as it is."""
        return exc


class PassedSocket(HttpUpstreamCall):
    """An upstream call for a WebSocket: `open` it, then `send` and `receive` messages, and `end` it."""

    _socket: ClientConnection | None = None

    def __init__(
        self, backend: Backend, request: PassedRequest, identity: QueueIdentity, record: RequestRecord
    ) -> None:
        super().__init__(backend, request.recorded, _unused, request.path, identity, record)

    async def open(self, subprotocols: Sequence[str]) -> str | None:
        """Wait for a slot and open the WebSocket; return the subprotocol that the backend has chosen.

        Raises UpstreamError; the failure is reported already.
        """
        if not self._slot.is_acquired:
            await self._acquire_slot(inf)
        if self._recorder:
            self._recorder.slot_acquired()
        self._socket = await self._opened(subprotocols)
        if self._trace_step:
            self._trace_step.status = 101
        if self._recorder:
            self._recorder.record_headers("", None)
        return self._socket.subprotocol

    async def _opened(self, subprotocols: Sequence[str]) -> ClientConnection:
        try:
            async with asyncio.timeout(None if self._deadline == inf else self._deadline - perf_counter()):
                return await self._handshake(subprotocols)
        except TimeoutError:
            raise self._record_and_name(self._timeout()) from None
        except InvalidStatus as error:
            self._reject(error)
        except InvalidHandshake:
            raise self._record_and_name(
                UpstreamInvalid("The backend did not answer the handshake of a WebSocket.")
            ) from None
        except UpstreamError as error:
            raise self._record_and_name(error) from None

    async def send(self, data: bytes, *, text: bool) -> None:
        """Send a message; wait while the backend does not read.  Drop it if the backend has closed."""
        assert self._socket
        with suppress(ConnectionClosed):  # `receive` reports it
            await self._socket.send(data, text=text)

    async def receive(self) -> str | bytes:
        """Return the next message.  Raise ConnectionClosed at the end of the connection."""
        assert self._socket
        return await self._socket.recv()

    def close_of(self, error: ConnectionClosed) -> Close:
        """Return the backend's close.  Raise UpstreamError if the connection broke without one."""
        if not error.rcvd:
            self._fail(error)
        return Close(error.rcvd.code, error.rcvd.reason)

    async def end(self, close: Close) -> None:
        """Close the WebSocket."""
        assert self._socket
        await self._socket.close(close.code, close.reason)

    def close(self) -> None:
        """Release the slot and the connection."""
        super().close()
        if self._recorder:
            self._recorder.read(b"")
        if self._socket:
            self._socket.transport.abort()

    def _handshake(self, subprotocols: Sequence[str]) -> _Handshake:
        """Return the handshake, to be awaited.  A message of the backend waits until the client has read the last."""
        settings = self._backend.settings
        options: dict[str, Any] = {"ssl": self._backend.tls} if self._backend.tls else {}
        made = _Handshake(
            f"ws{settings.root.removeprefix('http')}{settings.path_of(self._path)}",
            subprotocols=[Subprotocol(one) for one in subprotocols] or None,
            additional_headers={**auth_headers(settings), **(self._trace_step.headers if self._trace_step else {})},
            user_agent_header=None,
            compression=None,
            proxy=None,
            open_timeout=None,
            ping_interval=None,
            close_timeout=_CLOSE_SECONDS,
            max_size=_MAX_MESSAGE,
            max_queue=1,
            **options,
        )
        made.connect_seconds = settings.timeouts.connect
        return made

    def _reject(self, error: InvalidStatus) -> Never:
        """Raise the error of another status than that of an upgrade."""
        response = error.response
        if self._trace_step:
            self._trace_step.status = response.status_code
        headers = {name.lower(): value for name, value in response.headers.raw_items()}
        raise self._record_refusal(response.status_code, headers, bytes(response.body), None) from None

    def _fail(self, error: ConnectionClosed) -> Never:
        """Raise the error of a connection that has no close of the backend."""
        reason = error.sent.reason if error.sent else ""
        lost = UpstreamInvalid(f"The backend broke the rules of a WebSocket: {reason}.") if reason else None
        raise self._record_and_name(
            lost or ConnectionLost("The backend closed the connection without a close.")
        ) from None


def _unused(content_type: str) -> None:
    """Do nothing: a WebSocket has no content type."""
