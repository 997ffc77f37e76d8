"""A gateway in front of a scripted Ollama, and requests for it."""

from contextlib import asynccontextmanager

import httpx

from gateway.server.app import create_app
from support.app import Site, settings
from support.ollama import NAME, ollama
from support.wait import DEADLINE

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}

TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Of a city", "parameters": CITY}},
    {"type": "function", "function": {"name": "clock"}},
]

FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]

USER = {"role": "user", "content": "Hello"}

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@asynccontextmanager
async def site(*turns, kind="ollama", model=None, pieces=None, able=None, window=4096, **sections):
    """Run a gateway in front of an Ollama; `site.server` is the Ollama."""
    able = able or ("completion", "tools", "thinking", "vision")
    async with ollama(*turns, able=able, window=window, pieces=pieces) as server:
        model = {"upstream_model": NAME, **(model or {})}
        app = create_app(settings(server.url, backend={"kind": kind}, model=model, **sections))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=DEADLINE, verify=False) as client,
        ):
            one = Site(None, client, app)
            one.server = server
            yield one
