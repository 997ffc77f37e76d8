"""Run the server of one process, and replace its application for a new config; running requests end in the old one.

The jobs of an old generation are like jobs of another process: they are found, followed and cancelled through the
store.
"""

import asyncio
import gc
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import _lru_cache_wrapper, partial
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI
from fastapi.dependencies import models
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config import Config
from gateway.config.difference import differences
from gateway.errors import StoreFailed
from gateway.server.app import create_app
from gateway.server.http.memory import return_memory
from gateway.server.http.server_config import ServerConfig
from gateway.server.http.uvicorn_protocol import STOPPING
from gateway.server.middleware.auth_throttle import AuthThrottle
from gateway.server.middleware.concurrency_limit import ConcurrencyLimit
from gateway.server.observability.metric_values import SharedFolder
from gateway.server.observability.telemetry import Telemetry
from gateway.store import Database, audit_log

if TYPE_CHECKING:
    from gateway.store.audit_log import AuditEntry


_log = logging.getLogger("gateway")
_LISTENERS = 8  # connections that a turn of the loop accepts, since uvloop accepts one for each listener
_PATIENCE = 1.0  # seconds of a stop, after which the log says what it waits for
_WAITING = "the gateway stops: running responses have up to %d s to end; a second signal or Ctrl-C ends them at once"
ConfigPoll = Callable[[], Awaitable[Config | None]]  # returns a new config, or None
_LAST_WORDS = 5.0  # seconds to store responses that the server has cancelled


class AppInstance:
    """One generation of the application: `begin` it, `stop` it with the gateway, and `end` it when it is idle."""

    def __init__(self, app: FastAPI) -> None:
        self._app, self._running = app, AsyncExitStack()
        self._inside, self._left, self._given_up = 0, asyncio.Event(), False

    async def begin(self) -> None:
        """Start the application; raises the errors of its start."""
        state = await self._running.enter_async_context(self._app.router.lifespan_context(self._app))
        assert state is not None, "it has what stops it"
        self._stop: Callable[[], None] = state[STOPPING]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1
            self._left.set()

    async def wait_idle(self) -> None:
        """Return when the application has no request and no job."""
        while self._inside and not self._given_up:
            self._left.clear()
            await self._left.wait()
        await self._app.state.handler.jobs.wait_idle()

    def begin_drain(self) -> None:
        """Fail the readiness check from now on, but continue to serve."""
        self._app.state.leaving = True

    def stop(self) -> None:
        """Let jobs and WebSocket connections end; other requests continue to their end."""
        self._stop()

    def stop_waiting(self) -> None:
        """Make `wait_idle` wait for the jobs only."""
        self._given_up = True
        self._left.set()

    async def end(self) -> None:
        """Close the resources of the application."""
        await self._running.aclose()


class AppReloader:
    """An ASGI application that passes requests to the newest generation; `reload` it after its start.

    make: builds the application of a config, possibly in another thread.
    """

    def __init__(self, make: Callable[[Config], FastAPI], config: Config) -> None:
        self._make = make
        self._newest = AppInstance(make(config))
        self._old: dict[AppInstance, asyncio.Task[None]] = {}
        self._lifespan: ASGIApp = Router(lifespan=self._lives)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (self._lifespan if scope["type"] == "lifespan" else self._newest)(scope, receive, send)

    async def reload(self, config: Config) -> None:
        """Serve new requests with this config; raises the errors of the new application's start."""
        new = AppInstance(await asyncio.to_thread(self._make, config))
        await new.begin()
        old, self._newest = self._newest, new
        self._retire(old)

    def begin_drain(self) -> None:
        """Announce the stop of the gateway; the configuration is not reloaded after that."""
        self._newest.begin_drain()

    def stop(self) -> None:
        """Stop all generations."""
        for generation in {self._newest, *self._old}:
            generation.stop()

    @asynccontextmanager
    async def _lives(self, _: object) -> AsyncIterator[dict[str, Callable[[], None]]]:
        await self._newest.begin()
        with suppress(asyncio.CancelledError):  # a second signal: uvicorn would log it as a failure
            try:
                yield {STOPPING: self.stop}
            finally:
                await self._end_all()

    async def _end_all(self) -> None:
        self._retire(self._newest)
        self.stop()
        await asyncio.wait([*self._old.values()], timeout=_LAST_WORDS)
        for generation in self._old:
            generation.stop_waiting()
        await asyncio.gather(*self._old.values())

    def _retire(self, old: AppInstance) -> None:
        self._old[old] = asyncio.create_task(self._outlive(old))

    async def _outlive(self, old: AppInstance) -> None:
        await old.wait_idle()
        await old.end()
        del self._old[old], old
        _forget()


def _forget() -> None:
    """Clear FastAPI's caches, which keep thousands of endpoints and so their applications.

    The garbage is collected at once, as a serving process collects it seldom.
    """
    for cache in vars(models).values():
        if isinstance(cache, _lru_cache_wrapper):
            cache.cache_clear()
    gc.collect()


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
