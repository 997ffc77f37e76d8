"""Runs the application on a socket until it is told to stop."""

import gc
import logging
import sys
from functools import partial

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from gateway.config import Config
from gateway.server import stopping
from gateway.server.app import create_app

_PONG = 60.0  # seconds until one has to come; a client answers when it has read what it was sent before
_LAST_WORDS = 2  # seconds, beyond the drain, for those who are told that it is over


def run(config: Config, *, greeting: str = "") -> None:
    """Block until SIGINT or SIGTERM; streams then have `drain_seconds` to end.  Greets as soon as one can connect."""
    server = uvicorn.Config(
        partial(_application, config),
        factory=True,
        host=config.server.host,
        port=config.server.port,
        workers=config.server.workers,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        http=stopping.Http,
        ws=stopping.WebSocket,
        ws_max_size=config.limits.body_bytes,
        ws_ping_interval=config.stream.keepalive_seconds or None,
        ws_ping_timeout=_PONG,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=round(config.server.drain_seconds) + _LAST_WORDS,
    )
    sockets = [server.bind_socket()]
    sockets[0].listen(server.backlog)  # from now on connections wait for the workers instead of being refused
    host, port = sockets[0].getsockname()[:2]
    sys.stderr.write((greeting or f"gateway listens on {host} port {port}") + "\n")
    sys.stderr.flush()
    if config.server.workers > 1:
        Multiprocess(server, sockets).run()
    else:
        uvicorn.Server(server).run(sockets)


def _application(config: Config) -> FastAPI:
    """What every worker process begins with."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app = create_app(config)
    # What exists now stays: a collection that walks through it again stalls a thousand streams for 0.2 s.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    return app
