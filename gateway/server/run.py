"""Runs the gateway on a socket until it is told to stop."""

import asyncio
import signal
import socket
import sys

from gateway.config import Config, ServerSettings
from gateway.server import logs
from gateway.server.source import ConfigSource
from gateway.server.watching import ConfigWatcher
from gateway.server.workers import Supervisor

_AGAIN = [signal.SIGHUP] if sys.platform != "win32" else []  # the signals to read the configuration again
_WAITING = 2048  # connections that are not accepted yet


def run_gateway(config: Config, *, greeting: str = "", source: ConfigSource | None = None) -> None:
    """Block until SIGINT or SIGTERM; streams then have `drain_seconds` to end.  Greets as soon as one can connect.

    source: where the config is from; it is read again on SIGHUP, and when it has changed.
    """
    sock = _listening(config.server)  # from now on connections wait to be taken instead of being refused
    host, port = sock.getsockname()[:2]
    watch = ConfigWatcher(config, source)
    for number in _AGAIN:
        signal.signal(number, watch.tell)
    sys.stderr.write((greeting or f"gateway listens on {host} port {port}") + "\n")
    sys.stderr.flush()
    logs.configure_logging()
    if config.server.workers > 1:
        Supervisor(sock, watch).run()
    else:
        _serve(config, sock, watch)


def _serve(config: Config, sock: socket.socket, watch: ConfigWatcher) -> None:
    from gateway.server.process import make_server  # noqa: PLC0415 - the supervisor does not need it

    async def news() -> Config | None:
        return await asyncio.to_thread(watch.news) if watch.due else None

    make_server(config, news).run([sock])


def _listening(server: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    try:
        return socket.create_server((server.host, server.port), family=family, backlog=_WAITING)
    except OSError as error:
        sys.exit(f"cannot listen on {server.host} port {server.port}: {error.strerror}")
