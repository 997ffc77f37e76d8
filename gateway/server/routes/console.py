"""Serve the overview as JSON and, if enabled, as a page."""

import asyncio
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from msgspec import json
from starlette.responses import HTMLResponse, Response

from gateway.config import Config
from gateway.errors import NotFound
from gateway.server.auth import Authenticator
from gateway.server.console import page
from gateway.server.console.document import Overview
from gateway.server.console.overview import build_overview

_KEYS = ("authorization", "api-key")  # headers


def add(app: FastAPI, config: Config, door: Authenticator) -> None:
    async def seen() -> Overview:
        return await build_overview(config, app.state.directory, app.state.telemetry)

    @app.get("/admin/overview", include_in_schema=False)
    async def document(request: Request) -> Response:
        """For a key of the scope admin."""
        await door.admit(request, "admin")
        said = json.encode(await seen())
        return Response(said, media_type="application/json", headers={"cache-control": "no-store"})

    if config.inspector.enabled:
        _add_pages(app, config, door, seen)


def _add_pages(app: FastAPI, config: Config, door: Authenticator, seen: Callable[[], Awaitable[Overview]]) -> None:
    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        """Show that there is a gateway and how to use it, to clients without the needed key."""
        shown = None
        if not config.auth.keys or any(name in request.headers for name in _KEYS):
            await door.admit(request, "admin")
            shown = await seen()
        root = str(request.base_url).rstrip("/")
        return HTMLResponse(await asyncio.to_thread(page.render_overview, root, shown), headers=page.HEADERS)

    @app.get("/assets/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        """Serve an asset of the pages; none is secret."""
        found = page.assets().get(name)
        if not found:
            raise NotFound(f"Invalid URL (GET /assets/{name}).")
        data, type = found
        return Response(data, headers={**page.ASSET_HEADERS, "content-type": type})
