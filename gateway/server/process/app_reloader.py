"""Replace the application when the configuration changes; running requests end in the old one.

The jobs of an old generation are like jobs of another process: they are found, followed and cancelled through the
store.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import _lru_cache_wrapper

from fastapi import FastAPI
from fastapi.dependencies import models
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config import Config
from gateway.server.http.uvicorn_protocol import STOPPING

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
