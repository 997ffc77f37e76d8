"""A gateway with several worker processes."""

from contextlib import asynccontextmanager

import httpx

from gateway.server.app import create_app
from gateway.server.observability.telemetry import Telemetry
from support.app import Site, running, settings
from support.upstream import HELLO, Upstream
from support.wait import DEADLINE


@asynccontextmanager
async def gateway_with(shared, **more):
    """Run a gateway with this shared state within the block."""
    async with Upstream([HELLO], ()).serving() as upstream:
        app = create_app(settings(upstream.url, **more), telemetry=Telemetry(shared))
        async with running(app) as url, httpx.AsyncClient(base_url=url, timeout=DEADLINE, verify=False) as client:
            yield Site(upstream, client, app)
