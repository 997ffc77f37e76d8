"""Send the request of a line through the application, as its client."""

import asyncio

from msgspec import Struct, json
from starlette.types import ASGIApp, Message, Scope

from gateway.server.middleware.auth import BATCH_TENANT

_CANCELLED = 499
_FOREVER = (429, 503)  # statuses that end with time alone
_BRIEFLY = (500, 502, 504)
_TRIES = 5  # of a request that gets one of these
_LONGEST = 60  # seconds between two tries


class LineResponse(Struct, frozen=True):
    """A response to a line.  body: JSON on one line; headers: their first values."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def request_id(self) -> str:
        """The id of the request in logs and traces."""
        return self.headers.get(b"x-request-id", b"").decode()

    def pause(self, tries: int) -> float | None:
        """Return the seconds until the next try; None if the response is final.  tries: so far."""
        if self.headers.get(b"x-should-retry") == b"false":
            return None
        if self.status in _FOREVER or (self.status in _BRIEFLY and tries < _TRIES):
            wished = self.headers.get(b"retry-after", b"")
            return min(int(wished) if wished.isdigit() else 2 ** min(tries - 1, 6), _LONGEST)
        return None


class _LineClient:
    """The client of a request: it sends the body, and disconnects when it is told to."""

    def __init__(self, body: bytes, left: asyncio.Event) -> None:
        self._request: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._left, self._pieces = left, list[bytes]()
        self._status, self._headers = 0, dict[bytes, bytes]()

    async def receive(self) -> Message:
        """Return the body, then wait for the disconnect."""
        if message := self._request:
            self._request = None
            return message
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Keep the response."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], dict(message["headers"])
        else:
            self._pieces.append(message.get("body", b""))

    def response(self) -> LineResponse | None:
        """Return the response; None if the client disconnected before."""
        body = b"".join(self._pieces)
        if self._left.is_set() and (not body or self._status == _CANCELLED):
            return None
        return LineResponse(self._status, self._headers, json.format(body or b"null", indent=-1))


async def request_line(app: ASGIApp, path: str, tenant: str, body: bytes, left: asyncio.Event) -> LineResponse | None:
    """Return the response to a request of this tenant; None if `left` was set before."""
    client = _LineClient(body, left)
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": None,
        "server": ("localhost", 80),
        BATCH_TENANT: tenant,
    }
    await app(scope, client.receive, client.send)
    return client.response()
