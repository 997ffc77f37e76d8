"""Serve the health checks; they need no key."""

import asyncio
from contextlib import suppress

from fastapi import FastAPI
from starlette.responses import JSONResponse

from gateway.config import Config
from gateway.server.middleware.auth import Authenticator
from gateway.server.upstream.backend import Backend

_READY_SECONDS = 1.0


def add(app: FastAPI, _: Config, __: Authenticator) -> None:
    """Add the routes of the health checks."""

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Return 200 while the process runs."""
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Return 200 if a backend responds; 503 if none does, the store is lost, or the gateway is about to stop."""
        if app.state.leaving or app.state.stopping.is_set():
            return JSONResponse({"status": "draining"}, 503, {"connection": "close"})
        backends = app.state.directory.backends
        states = dict(zip(backends, await asyncio.gather(*map(_state, backends.values())), strict=True))
        lost = app.state.store.lost
        well = "ok" in states.values() and not lost
        return JSONResponse({"backends": states} | ({"store": "lost"} if lost else {}), 200 if well else 503)


async def _state(backend: Backend) -> str:
    with suppress(TimeoutError):
        async with asyncio.timeout(_READY_SECONDS):
            return "ok" if await backend.alive() else "unreachable"
    return "unreachable"
