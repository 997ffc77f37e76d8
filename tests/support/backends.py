"""Several scripted model servers, and a gateway with a model on all of them.

    async with fleet([whole("no", 503)], [HELLO]) as site:
        answer = await site.chat(stream=True)
        assert site.posts() == [1, 1]

The backends are b0, b1, …, in priority groups of their own unless `together`: so b0 comes first.
"""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from gateway.server.app import create_app
from support.app import Site, running, settings
from support.upstream import KEY, Upstream
from support.wait import DEADLINE


class Fleet(Site):
    """A Site with several upstreams; `upstreams`: by the name of the backend."""

    def __init__(self, upstreams, client, app):
        super().__init__(upstreams["b0"], client, app)
        self.upstreams = upstreams

    def posts(self):
        """Return the number of requests of each backend."""
        return [len(upstream.posts) for upstream in self.upstreams.values()]

    def backend(self, name):
        """Return a backend of the gateway."""
        return self.app.state.directory.backends[name]


def circuit_state(site, name="b0"):
    """Return the state of the circuit of a backend: closed, open or half_open."""
    return site.backend(name).limiter.health.state(asyncio.get_running_loop().time())


def extend_pauses(site, name="b0"):
    """Make the pauses of a circuit last for minutes, so that none ends by time during a test."""
    site.app.state.directory.backends[name].limiter.health._random = lambda: 500.0


@asynccontextmanager
async def fleet(*scripts, together=False, backends=(), model=None, **sections):
    """Yield a Fleet.  scripts: per server; backends: settings per backend, if any."""
    async with AsyncExitStack() as stack:
        upstreams = {
            f"b{i}": await stack.enter_async_context(Upstream(one, ()).serving()) for i, one in enumerate(scripts)
        }
        of_each = dict(zip(upstreams, backends, strict=False))
        more = {
            name: {"url": upstream.url, "api_key": KEY, "probe_seconds": 0, **of_each.get(name, {})}
            for name, upstream in upstreams.items()
        }
        targets = [{"name": name, "priority": 0 if together else i} for i, name in enumerate(upstreams)]
        app = create_app(
            settings("http://127.0.0.1:1", model={"backends": targets, **(model or {})}, more_backends=more, **sections)
        )
        url = await stack.enter_async_context(running(app))
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=DEADLINE, verify=False))
        yield Fleet(upstreams, client, app)
