"""An event stream as it is sent: the headers are those of sse-starlette, the sending is our own.

The pieces are ready bytes, and who watches the client and keeps it alive is the exchange.  Without the library's own
tasks for that, and a lock and a time limit around every piece, a stream costs half as much (`docs/decisions.md`).
"""

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send


class EventStream(EventSourceResponse):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for piece in self.body_iterator:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
