"""Run the server of one process, and reload its application for a new config."""

import asyncio
import gc
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from gateway.config import Config
from gateway.config.difference import differences
from gateway.errors import StoreFailed
from gateway.server.app import create_app
from gateway.server.http.memory import return_memory
from gateway.server.http.server_config import ServerConfig
from gateway.server.middleware.auth import AuthThrottle
from gateway.server.middleware.concurrency_limit import ConcurrencyLimit
from gateway.server.observability.metrics_store import SharedFolder
from gateway.server.observability.telemetry import Telemetry
from gateway.server.process.app_reloader import AppReloader
from gateway.store import Database, audit_log

if TYPE_CHECKING:
    from gateway.store.audit_log import AuditEntry

_log = logging.getLogger("gateway")
_LISTENERS = 8  # connections that a turn of the loop accepts, since uvloop accepts one for each listener
_PATIENCE = 1.0  # seconds of a stop, after which the log says what it waits for
_WAITING = "the gateway stops: running responses have up to %d s to end; a second signal or Ctrl-C ends them at once"
ConfigPoll = Callable[[], Awaitable[Config | None]]  # returns a new config, or None


def make_server(
    config: Config, news: ConfigPoll, shared: SharedFolder | None = None, *, logs_reloads: bool = True
) -> "WorkerServer":
    """Return the server of this process.

    shared: the metrics of all workers; logs_reloads: one of the workers writes reloads to the audit log.
    """
    make = partial(create_app, concurrency=ConcurrencyLimit(), throttle=AuthThrottle(), telemetry=Telemetry(shared))
    generations = AppReloader(make, config)
    return_memory()
    # Exempt all existing objects: a garbage collection over them stalls a thousand streams for 0.2 s.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    return WorkerServer(generations, ServerConfig(generations, config), news, config if logs_reloads else None)


class WorkerServer(uvicorn.Server):
    """A uvicorn server that polls for a new config; `serve_socket` blocks until it is stopped.

    After the stop signal it serves for `drain_delay_seconds` more, so that load balancers notice.
    logged: the first configuration, to log the difference of each reload; None: another process logs reloads.
    """

    _left_at: float | None = None

    def __init__(
        self, generations: AppReloader, settings: ServerConfig, news: ConfigPoll, logged: Config | None = None
    ) -> None:
        super().__init__(settings)
        self._generations, self._settings, self._news = generations, settings, news
        self._logged = logged
        self._writing: asyncio.Task[None] | None = None

    def serve_socket(self, sock: socket.socket) -> None:
        """Serve the connections of a socket until a signal stops this process; then close the socket."""
        sock.setblocking(False)  # else `dup` makes it blocking for all processes, and one of them blocks in accept
        self.run([sock, *(sock.dup() for _ in range(_LISTENERS - 1))])

    async def on_tick(self, counter: int) -> bool:
        """Reload for a new config; return True when the server has to stop.  Called by uvicorn ten times a second."""
        if not self.should_exit and (config := await self._news()):
            await self._renew(config)
        return await super().on_tick(counter) and self._has_left()

    def _has_left(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._left_at is None:
            self._generations.begin_drain()
            self._settings.leaving = True
            self._left_at = now + self._settings.drain_delay_seconds
        return self.force_exit or now >= self._left_at

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse connections, and return when all requests have ended."""
        loop, seconds = asyncio.get_running_loop(), self._settings.timeout_graceful_shutdown
        announcing = loop.call_later(_PATIENCE, _log.info, _WAITING, seconds)
        try:
            await super().shutdown(sockets)
        finally:
            announcing.cancel()

    async def _renew(self, config: Config) -> None:
        try:
            self._settings.set_certificate(config)
            await self._generations.reload(config)
        except Exception as error:  # noqa: BLE001 - the running application stays as it is
            _log.error("the new configuration cannot be applied, the previous one stays in use", exc_info=error)
        else:
            self._settings.follow(config)
            self._log_reload(config)

    def _log_reload(self, config: Config) -> None:
        """Write the reload to the audit log, behind those before, without holding up the server."""
        if self._logged and config.store.is_named:
            self._writing = asyncio.create_task(_write_reload(self._logged, config, self._writing))
        self._logged = self._logged and config

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a stop signal; the second one cancels all running requests, which then send an error."""
        if self.should_exit:
            self.force_exit = True
            asyncio.get_running_loop().call_soon_threadsafe(self._break_off)
        super().handle_exit(sig, frame)

    def _break_off(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()


async def _write_reload(before: Config, after: Config, earlier: asyncio.Task[None] | None) -> None:
    if earlier:
        await asyncio.wait([earlier])
    entry = await asyncio.to_thread(_reload_entry, before, after, int(time.time()))
    store = Database(after.store.url.get_secret_value())
    try:
        async with store.writing() as db:
            await audit_log.add(db, entry)
    except StoreFailed as error:
        _log.warning("the reload cannot be written to the audit log: %s", error.reason)
    finally:
        await store.close()


def _reload_entry(before: Config, after: Config, now: int) -> "AuditEntry":
    """Return the entry of a reload.  The first one imports SQLAlchemy, in 0.2 s.

    Without a changed setting, the files of the certificate have changed.
    """
    changes = differences(before, after) or [{"path": "server.tls.certificate", "secret": "changed"}]
    return audit_log.AuditEntry(now, f"gateway:{socket.gethostname()}", "configuration.reloaded", None, changes)
