"""The connections to one backend, and the one thing that is done with them: a POST."""

import asyncio
import re
import ssl as tls
from collections.abc import Mapping
from functools import lru_cache, partial
from math import inf
from urllib.parse import urlsplit

from gateway.errors import UpstreamError, UpstreamTimeout, UpstreamUnreachable
from gateway.server.client.answer import UpstreamResponse
from gateway.server.client.connection import IdleConnections, UpstreamConnection
from gateway.server.client.post import PendingPost

_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t -~\x80-\xff]*")  # RFC 9110, 5.5
_PATH = re.compile(r"/[!-\"$-~]*")
_HOST = re.compile(r"[\w.:%\[\]-]+", re.ASCII)  # with its port; without a user, as that belongs into a header
_PATHS = 16  # whose heads are kept; a server is asked at one or two
_OURS = {"host", "content-length", "transfer-encoding"}


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

    def anew(self, head: bytes, body: bytes) -> UpstreamResponse:
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
                    await connection.secure(self._tls, self._host)
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
