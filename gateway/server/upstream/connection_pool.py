"""Keep the connections to one backend, and send requests on them.

If a request fails on an idle connection, it is sent once more on a new one.
"""

import asyncio
import re
import ssl as tls
from collections.abc import Mapping
from copy import copy
from functools import lru_cache, partial
from math import inf
from urllib.parse import urlsplit

from gateway.errors import NoResponse, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from gateway.server.upstream.failure_text import cause_text, end_sentence
from gateway.server.upstream.http_connection import UpstreamConnection, UpstreamResponse

_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t -~\x80-\xff]*")  # RFC 9110, 5.5
_PATH = re.compile(r"/[!-\"$-~]*")
_HOST = re.compile(r"[\w.:%\[\]-]+", re.ASCII)  # with its port; without a user, as credentials belong into a header
_PATHS = 16  # paths with cached header lines; a backend is called at one or two
_RESERVED = {"host", "content-length", "transfer-encoding"}


class PendingPost:
    """A POST on its way.  Its owner has to close it.

    response: exists from the moment of sending.
    kept: the response on a connection that was kept; without one the pool sends the request on a new connection.
    until: time of `perf_counter`.  If a kept connection closes by then without a byte, the backend closed it before
    the request arrived, so the pool sends the request again.  Later, a model may have worked on the request.
    repeated: the request was sent again.
    """

    def __init__(
        self,
        pool: "ConnectionPool",
        head: bytes,
        body: bytes,
        kept: UpstreamResponse | None = None,
        until: float = -inf,
    ) -> None:
        self._pool, self._head, self._body, self._until = pool, head, body, until
        self.response, self.repeated = kept or pool.post_on_new_connection(head, body), False

    def headers_received(self) -> bool:
        """Return True if status and headers are known; if False, wait with `response.ready` before the next call.

        If the backend closed a kept connection while the request was on its way, the request is sent again.  Any other
        UpstreamError of the response is raised.
        """
        response = self.response
        if response.status or not response.error:
            return response.status > 0
        if not (isinstance(response.error, NoResponse) and response.broken_at <= self._until):
            raise copy(response.error)  # a copy, as the raised error refers to this frame, which would be a cycle
        response.close()
        self.response, self._until, self.repeated = (
            self._pool.post_on_new_connection(self._head, self._body),
            -inf,
            True,
        )
        return False

    def close(self) -> None:
        """Close the response; see UpstreamResponse.close."""
        self.response.close()


class IdleConnections:
    """The idle connections, at most `limit`; the one used last goes first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._connections: dict[UpstreamConnection, None] = {}

    def add(self, connection: UpstreamConnection) -> bool:
        """Keep a connection; return False if the limit is reached."""
        if len(self._connections) >= self.limit:
            return False
        self._connections[connection] = None
        return True

    def pop(self) -> UpstreamConnection | None:
        """Remove and return the connection used last; None if no connection is idle."""
        return self._connections.popitem()[0] if self._connections else None

    def discard(self, connection: UpstreamConnection) -> None:
        """Remove a connection, if it is kept."""
        self._connections.pop(connection, None)


class ConnectionPool:
    """The connections to one backend."""

    def __init__(  # noqa: PLR0913 - all but the URL have a default
        self,
        url: str,
        *,
        connect: float = 5,
        idle_connections: int = 32,
        reused: float = 0.2,
        headers: Mapping[str, str] = {},
        ssl: tls.SSLContext | None = None,
        without: str = "",
    ) -> None:
        """Set up the pool without connecting; `tls` is the context of its connections, None without TLS.

        url: the root of the server, which may have a path.
        connect: seconds for a connection, TLS included; 0: no limit.
        reused: seconds in which a request is sent again if its kept connection turns out to be closed; 0: never.
        headers: sent with every request, unless a request has its own of that name.
        without: the beginning of paths that the server's own paths lack.
        Raises ValueError for an invalid URL or header.
        """
        parts = urlsplit(url)
        sound = parts.hostname and _HOST.fullmatch(parts.netloc) and _PATH.fullmatch(parts.path or "/")
        if parts.scheme not in {"http", "https"} or not sound or parts.query or parts.fragment:
            raise ValueError("the url of a backend must be http(s)://host[:port][/path]")
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix, self._without = parts.path.rstrip("/"), without
        self.tls = (ssl or tls.create_default_context()) if parts.scheme == "https" else None
        self._connect_seconds, self._resend_seconds = connect, reused
        self._idle = IdleConnections(idle_connections)
        common = {"accept-encoding": "identity", "content-type": "application/json", **headers}
        self._common_lines = {"host": f"host: {parts.netloc}", **_header_lines(common)}
        self._cached_head = lru_cache(_PATHS)(partial(self._head_without_length, headers={}))

    def post(self, path: str, body: bytes, headers: Mapping[str, str] = {}, method: str = "POST") -> PendingPost:
        """Send a request.  Raises ValueError for a path or header that cannot be sent safely.

        If no connection can be made, the response fails with UpstreamUnreachable, or with UpstreamTimeout after
        `connect`.
        """
        head = self._head(path, len(body), headers, method)
        if idle := self._idle.pop():
            until = idle.clock() + self._resend_seconds if self._resend_seconds else -inf
            return PendingPost(self, head, body, idle.send_request(head, body), until)
        return PendingPost(self, head, body)

    def upload(self, path: str, length: int | None, headers: Mapping[str, str]) -> PendingPost:
        """Send the headers of a request on a connection of its own; `PendingPost.response` sends the body.

        length: of the body; None for a body in chunks.
        """
        framing = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
        head = b"%b%b\r\n\r\n" % (self._head_without_length(path, headers), framing)
        none = IdleConnections(0)
        connection = UpstreamConnection(asyncio.get_running_loop(), none.add, none.discard)
        return PendingPost(self, head, b"", connection.open(self._open_connection, head, b""))

    def post_on_new_connection(self, head: bytes, body: bytes) -> UpstreamResponse:
        """Send a request on a new connection."""
        connection = UpstreamConnection(asyncio.get_running_loop(), self._idle.add, self._idle.discard)
        return connection.open(self._open_connection, head, body)

    async def close(self) -> None:
        """Close idle connections, and keep none from now on.  Responses in progress can be read to their end."""
        self._idle.limit = 0
        while connection := self._idle.pop():
            connection.abort()
            await connection.closed

    def _head(self, path: str, size: int, headers: Mapping[str, str], method: str) -> bytes:
        is_plain = not headers and method == "POST"
        before = self._cached_head(path) if is_plain else self._head_without_length(path, headers, method)
        return b"%bcontent-length: %d\r\n\r\n" % (before, size)

    def _head_without_length(self, path: str, headers: Mapping[str, str], method: str = "POST") -> bytes:
        """Return the request line and all headers but the content length."""
        if not _PATH.fullmatch(path):
            raise ValueError(f"not a path: {path!r}")
        lines = "\r\n".join({**self._common_lines, **_header_lines(headers)}.values())
        return f"{method} {self._prefix}{path.removeprefix(self._without)} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")

    async def _open_connection(self, connection: UpstreamConnection) -> UpstreamError | None:
        try:
            async with asyncio.timeout(self._connect_seconds or None):
                await connection.loop.create_connection(lambda: connection, self._host, self._port)
                if self.tls is not None:
                    await connection.start_tls(self.tls, self._host)
        except TimeoutError:
            return UpstreamTimeout(
                f"The backend did not accept a connection within {self._connect_seconds:g} s (timeouts.connect)."
            )
        except (OSError, UnicodeError) as error:  # a UnicodeError for a name that DNS cannot hold
            return UpstreamUnreachable(f"The backend cannot be reached: {end_sentence(cause_text(error))}")
        return None


def _header_lines(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the header lines by their names in lower case; raise ValueError for one that cannot be sent."""
    for name, value in headers.items():
        if name.lower() in _RESERVED or not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise ValueError(f"header {name!r} cannot be sent")  # without its value, which may be a secret
    return {name.lower(): f"{name}: {value}" for name, value in headers.items()}
