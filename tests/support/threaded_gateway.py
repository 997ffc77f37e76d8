"""A gateway on a socket of this machine, in a thread of its own, for clients that block."""

import tempfile
import threading
from contextlib import contextmanager

import httpx
import uvicorn
import uvloop

from gateway.config import StoreSettings
from gateway.server.app import create_app


@contextmanager
def served(config):
    """Run a gateway within the block, and yield its root URL; its store is temporary."""
    with tempfile.TemporaryDirectory() as folder:
        store = StoreSettings(url=f"sqlite:///{folder}/gateway.db", usage=False)
        with listening(create_app(config.model_copy(update={"store": store}))) as url:
            yield url


@contextmanager
def listening(app):
    """Run an application within the block, and yield its root URL."""
    settings = uvicorn.Config(
        app, port=0, log_config=None, http="httptools", lifespan="on", timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(settings)
    socket = settings.bind_socket()
    socket.listen()  # from here on, connections are accepted
    thread = threading.Thread(target=uvloop.run, args=(server.serve([socket]),))
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


def underneath(url):
    """Return a client of a llama.cpp underneath another server.

    llama.cpp closes connections after some responses, so each request has its own.  On a busy machine it may refuse one
    of the many connections, so the client retries.
    """
    alone = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_keepalive_connections=0), retries=3, trust_env=False)
    return httpx.AsyncClient(base_url=url, timeout=100, trust_env=False, transport=alone)
