"""Keep the connections to one backend, and send requests on them.

A request that fails on an idle connection is sent once more on a new one.
"""

import asyncio
import re
import ssl as tls
from collections.abc import Mapping
from copy import copy
from functools import lru_cache, partial
from math import inf
from urllib.parse import urlsplit

from gateway.errors import UpstreamError, UpstreamTimeout, UpstreamUnreachable
from gateway.server.upstream.http_connection import IdleConnections, NoResponse, UpstreamConnection, UpstreamResponse

_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t -~\x80-\xff]*")  # RFC 9110, 5.5
_PATH = re.compile(r"/[!-\"$-~]*")
_HOST = re.compile(r"[\w.:%\[\]-]+", re.ASCII)  # with its port; without a user, as that belongs into a header
_PATHS = 16  # whose heads are kept; a server is asked at one or two
_OURS = {"host", "content-length", "transfer-encoding"}


class PendingPost:
    """answer: what it gets, from the moment in which it was sent; the owner of a post has to close it.

    kept: the answer on a connection that was kept; without one the pool sends the request on a new connection.
    until: on the loop's clock.  A kept connection that closes by then without a byte was given up before the request
    came, so the pool sends it again.  Later than that a model may have worked on it.
    repeated: it was sent again.
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
        self.answer, self.repeated = kept or pool.post_on_new_connection(head, body), False

    def headers_received(self) -> bool:
        """Return True if status and headers are known; otherwise `answer.ready` tells when to look again.

        Raises what came instead, but for a connection that the backend had given up while the request was on its way.
        """
        answer = self.answer
        if answer.status or not answer.error:
            return answer.status > 0
        if not (isinstance(answer.error, NoResponse) and answer.broken_at <= self._until):
            raise copy(answer.error)  # as what is raised knows this frame, they would be a cycle
        answer.close()
        self.answer, self._until, self.repeated = self._pool.post_on_new_connection(self._head, self._body), -inf, True
        return False

    def close(self) -> None:
        """As the answer is closed."""
        self.answer.close()


class ConnectionPool:
    """Connections to one backend."""

    def __init__(
        self,
        url: str,
        *,
        connect: float = 5,
        idle_connections: int = 32,
        reused: float = 0.2,
        headers: Mapping[str, str] = {},
        ssl: tls.SSLContext | None = None,
    ) -> None:
        """`url` is the root of the server and may have a path; `connect` is seconds, TLS included (0: no limit).

        `reused`: so many seconds later a request is sent again if its kept connection turns out to be closed; 0: never.

        `headers` go with every request, unless a request has its own of that name.
        """
        parts = urlsplit(url)
        sound = parts.hostname and _HOST.fullmatch(parts.netloc) and _PATH.fullmatch(parts.path or "/")
        if parts.scheme not in {"http", "https"} or not sound or parts.query or parts.fragment:
            raise ValueError("the url of a backend is http(s)://host[:port][/path]")
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._tls = (ssl or tls.create_default_context()) if parts.scheme == "https" else None
        self._connect, self._reused = connect, reused
        self._idle = IdleConnections(idle_connections)
        common = {"accept-encoding": "identity", "content-type": "application/json", **headers}
        self._lines = {"host": f"host: {parts.netloc}", **_lines(common)}
        self._plain = lru_cache(_PATHS)(partial(self._before, headers={}))

    def post(self, path: str, body: bytes, headers: Mapping[str, str] = {}) -> PendingPost:
        """Send.  A path or header that cannot be sent safely is a ValueError.

        Where there is no connection, its answer is Unreachable, or UpstreamTimeout if it took too long.
        """
        head = self._head(path, len(body), headers)
        if idle := self._idle.pop():
            until = idle.loop.time() + self._reused if self._reused else -inf
            return PendingPost(self, head, body, idle.ask(head, body), until)
        return PendingPost(self, head, body)

    def post_on_new_connection(self, head: bytes, body: bytes) -> UpstreamResponse:
        """Send on a connection of its own."""
        return UpstreamConnection(asyncio.get_running_loop(), self._idle).open(self._opened, head, body)

    async def close(self) -> None:
        """Close what is idle, and keep nothing from now on; answers that are being read come to their end."""
        self._idle.limit = 0
        while connection := self._idle.pop():
            connection.abort()
            await connection.gone

    def _head(self, path: str, size: int, headers: Mapping[str, str]) -> bytes:
        before = self._before(path, headers) if headers else self._plain(path)
        return b"%bcontent-length: %d\r\n\r\n" % (before, size)

    def _before(self, path: str, headers: Mapping[str, str]) -> bytes:
        """Return the part of the headers that all requests share."""
        if not _PATH.fullmatch(path):
            raise ValueError(f"not a path: {path!r}")
        lines = "\r\n".join({**self._lines, **_lines(headers)}.values())
        return f"POST {self._prefix}{path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")

    async def _opened(self, connection: UpstreamConnection) -> UpstreamError | None:
        try:
            async with asyncio.timeout(self._connect or None):
                await connection.loop.create_connection(lambda: connection, self._host, self._port)
                if self._tls is not None:
                    await connection.start_tls(self._tls, self._host)
        except TimeoutError:
            return UpstreamTimeout("The backend took no connection in time.")
        except (OSError, UnicodeError) as error:  # a UnicodeError for a name that DNS cannot hold
            return UpstreamUnreachable(f"no connection to the backend: {type(error).__name__}")
        return None


def _lines(headers: Mapping[str, str]) -> dict[str, str]:
    """The line of each header by its name in lower case."""
    for name, value in headers.items():
        if name.lower() in _OURS or not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise ValueError(f"header {name!r} cannot be sent")  # without its value, which may be a secret
    return {name.lower(): f"{name}: {value}" for name, value in headers.items()}
