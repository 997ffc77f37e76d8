"""HTTP/1.1 to one backend: a POST out, the bytes of the answer in, and nothing that arrived is lost.

It knows sockets and HTTP, and nothing of models, events or the choice between backends.  A pool belongs to one event
loop, an answer to one reader at a time.

    pool = Pool("http://127.0.0.1:8000")
    answer = await pool.post("/v1/chat/completions", body, first_byte=600)
    try:
        while data := await answer.read(idle=120):
            ...
    finally:
        answer.close()
"""

from gateway.server.client.answer import Answer, Ear, Lost
from gateway.server.client.pool import Pool

__all__ = ["Answer", "Ear", "Lost", "Pool"]
