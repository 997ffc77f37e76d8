"""Replace the application when the configuration changes; requests of the old one stay there to their end.

For its jobs, an old generation is what another process would be: they are found, followed and cancelled by the store.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import _lru_cache_wrapper

from fastapi import FastAPI
from fastapi.dependencies import models
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config import Config
from gateway.server.http.protocol import STOPPING

_LAST_WORDS = 5.0  # seconds for answers that the server has broken off, which are stored as well


class AppInstance:
    """One application: `begin` it, `stop` it when the gateway stops, and `end` it when it is `deserted`."""

    def __init__(self, app: FastAPI) -> None:
        self._app, self._running = app, AsyncExitStack()
        self._inside, self._left, self._given_up = 0, asyncio.Event(), False

    async def begin(self) -> None:
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
        """Return when no request and no job is in it."""
        while self._inside and not self._given_up:
            self._left.clear()
            await self._left.wait()
        await self._app.state.handler.jobs.wait_idle()

    def begin_drain(self) -> None:
        """Announce a stop, and go on."""
        self._app.state.leaving = True

    def stop(self) -> None:
        """Give running requests some time to end."""
        self._stop()

    def stop_waiting(self) -> None:
        """Wait for the jobs only."""
        self._given_up = True
        self._left.set()

    async def end(self) -> None:
        await self._running.aclose()


class AppReloader:
    """An ASGI application; `renew` it after its start.

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
        """Requests from now on are answered as this says; raises what kept it from beginning."""
        new = AppInstance(await asyncio.to_thread(self._make, config))
        await new.begin()
        old, self._newest = self._newest, new
        self._retire(old)

    def begin_drain(self) -> None:
        """There is no newer one after that."""
        self._newest.begin_drain()

    def stop(self) -> None:
        for generation in {self._newest, *self._old}:
            generation.stop()

    @asynccontextmanager
    async def _lives(self, _: object) -> AsyncIterator[dict[str, Callable[[], None]]]:
        await self._newest.begin()
        try:
            yield {STOPPING: self.stop}
        finally:
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
    """FastAPI remembers thousands of endpoints, and with them their applications.

    What is left then is collected at once, as that happens seldom in a process that serves.
    """
    for cache in vars(models).values():
        if isinstance(cache, _lru_cache_wrapper):
            cache.cache_clear()
    gc.collect()
