"""HTTP/1.1 to one backend: a POST out, the bytes of the answer in, and nothing that arrived is lost.

It knows sockets and HTTP, and nothing of models, events or the choice between backends.  A pool belongs to one event
loop, an answer to one reader at a time.  All waits can be given up without giving up what is waited for; only who
closes does that.

    pool = Pool("http://127.0.0.1:8000")
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

from gateway.server.client.answer import ConnectionLost, DataCallback, UpstreamResponse
from gateway.server.client.pool import ConnectionPool
from gateway.server.client.post import PendingPost

__all__ = ["ConnectionLost", "ConnectionPool", "DataCallback", "PendingPost", "UpstreamResponse"]
