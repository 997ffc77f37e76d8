"""Backends of speech sessions, which are scripted WebSocket servers, and a gateway in front of them.

async with speaking(echo) as site, session(site) as socket:
    await socket.send("Hello")
"""

from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from gateway.server.app import create_app
from support.app import Site, running, settings
from support.upstream import KEY
from support.wait import DEADLINE

PATH = "/v1/realtime"


class Speaker:
    """A server whose sessions are a function of their socket.  sockets: of all sessions."""

    def __init__(self, handle):
        self._handle, self.sockets = handle, []

    async def __call__(self, socket):
        self.sockets.append(socket)
        with suppress(ConnectionClosed):
            await self._handle(socket)
        await socket.wait_closed()


async def echo(socket):
    """Send each message back."""
    async for message in socket:
        await socket.send(message)


def _chosen(connection, offered):
    """Return the subprotocol of a session."""
    return "realtime" if "realtime" in offered else None


@asynccontextmanager
async def speaking(*handlers, refuse=None, ssl=None, max_size=None, model=None, urls=(), up=None, path="", **sections):
    """Yield a Site with `speakers`: a backend of the model `m` for each function, or for each of `urls` before them.

    refuse: as `process_request` of the servers' library; up: settings of the backend `up`, for other models.
    path: of the URLs of the servers.
    """
    async with AsyncExitStack() as stack:
        speakers = [Speaker(one) for one in handlers]
        found = [*urls]
        for one in speakers:
            server = await stack.enter_async_context(
                serve(
                    one, "127.0.0.1", 0, process_request=refuse, ssl=ssl, max_size=max_size, select_subprotocol=_chosen,
                    ping_interval=None,
                )
            )  # fmt: skip
            port = server.sockets[0].getsockname()[1]
            found.append(f"https://localhost:{port}{path}" if ssl else f"http://127.0.0.1:{port}{path}")
        backend = sections.pop("backend", {})
        more = {f"b{i}": {"url": url, "api_key": KEY, "probe_seconds": 0, **backend} for i, url in enumerate(found)}
        targets = [{"name": name, "priority": i} for i, name in enumerate(more)]
        known = settings(
            found[0], backend=up, model={"backends": targets, **(model or {})}, more_backends=more, **sections
        )
        app = create_app(known)
        url = await stack.enter_async_context(running(app, known))
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=DEADLINE, verify=False))
        site = Site(None, client, app)
        site.speakers = speakers
        yield site


def session(site, path=f"{PATH}?model=m", **options):
    """Open a session, as a context manager or awaited."""
    url = f"ws://127.0.0.1:{site.client.base_url.port}{path}"
    return connect(url, compression=None, max_size=None, ping_interval=None, proxy=None, **options)
