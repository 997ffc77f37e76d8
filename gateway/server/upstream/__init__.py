"""Call backends: the HTTP client, slots and queues, discovery, metadata and the registry of models.

The client speaks HTTP/1.1 to one backend: a POST out, the bytes of the answer in, and nothing that arrived is lost.  It
knows sockets and HTTP, and nothing of models, events or the choice between backends.  A pool belongs to one event loop,
an answer to one reader at a time.  All waits can be cancelled without losing what is waited for; only `close` does
that.

    pool = ConnectionPool("http://127.0.0.1:8000")
    post = pool.post("/v1/chat/completions", body)
    try:
        while not post.headed():
            if not await post.answer.ready(600):
                raise TimeoutError
        while await post.answer.ready(120) and (data := post.answer.take()):
            ...
    finally:
        post.close()
"""

from gateway.server.upstream.connection_pool import ConnectionPool, PendingPost
from gateway.server.upstream.http_connection import (
    DECLINED,
    HANDLED,
    WAKE,
    ConnectionLost,
    DataCallback,
    DataOutcome,
    UpstreamResponse,
)

__all__ = [
    "DECLINED",
    "HANDLED",
    "WAKE",
    "ConnectionLost",
    "ConnectionPool",
    "DataCallback",
    "DataOutcome",
    "PendingPost",
    "UpstreamResponse",
]
