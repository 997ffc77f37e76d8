"""Call backends: the HTTP client, slots and queues, discovery, metadata and the registry of models.

The client uses HTTP/1.1 with one backend: it sends a POST and hands out the bytes of the response.  It never loses
bytes that have arrived.  It knows sockets and HTTP, but no models, events or routing.  A pool is for one event loop,
a response for one reader at a time.  All waits can be cancelled without losing data; only `close` discards it.

    pool = ConnectionPool("http://127.0.0.1:8000")
    post = pool.post("/v1/chat/completions", body)
    try:
        while not post.headers_received():
            if not await post.response.ready(600):
                raise TimeoutError
        while await post.response.ready(120) and (data := post.response.take()):
            ...
    finally:
        post.close()
"""

from gateway.server.upstream.connection_pool import ConnectionPool, PendingPost
from gateway.server.upstream.data_callback import DECLINED, HANDLED, WAKE, DataCallback, DataOutcome
from gateway.server.upstream.http_connection import UpstreamResponse

__all__ = [
    "DECLINED",
    "HANDLED",
    "WAKE",
    "ConnectionPool",
    "DataCallback",
    "DataOutcome",
    "PendingPost",
    "UpstreamResponse",
]
