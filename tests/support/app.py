"""A gateway in this process, in front of a scripted upstream, with a client.

    async with gateway([*head(), chunk("Hi"), chunk(finish="stop"), DONE, END]) as site:
        answer = await site.chat(stream=True)

`gateway` calls the application without a socket; `listening` serves it on one.
"""

import asyncio
import atexit
import inspect
import itertools
import json
import tempfile
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
import uvloop

from gateway import config, formats
from gateway.server.app import create_app
from gateway.server.handler import GatewayApp
from gateway.server.http.server_config import ServerConfig
from gateway.server.http.uvicorn_protocol import STOPPING
from gateway.server.limits import counters
from gateway.server.process.listener import open_listener
from support.upstream import KEY, Upstream
from support.wait import DEADLINE, until

# A deadline only ends tests that hang.  On a busy machine a store opens later, and a limit still holds.
counters._MAX_WAIT = counters._LONGEST = DEADLINE
STORES, NUMBERS = tempfile.TemporaryDirectory(), itertools.count()
atexit.register(STORES.cleanup)


def settings(url, *, backend=None, model=None, more_backends=None, more_models=None, store=None, **sections):
    """Return a config with the backend `up`, the model `m` on it unless `model` is False, and a new store."""
    models = {} if model is False else {"m": {"backends": ["up"], **(model or {})}}
    backends = {"up": {"url": url, "api_key": KEY, **(backend or {})}, **(more_backends or {})}
    url = f"sqlite:///{STORES.name}/{next(NUMBERS)}.db"
    store = {"url": url, "usage": False, "sealing_keys": ["s" * 32], **(store or {})}
    known = {"backends": backends, "models": {**models, **(more_models or {})}, "store": store}
    data = json.loads(json.dumps({**known, **sections}))  # as YAML has it
    return config.build_config(config.ConfigDocument("test.yaml", data), formats.format_names())


HELLO_MESSAGES = [{"role": "user", "content": "Hello"}]


def bearer(key):
    """Return the header that authenticates with a key."""
    return {"authorization": f"Bearer {key}"}


class Site:
    """A gateway with one upstream, and a client."""

    def __init__(self, upstream, client, app=None):
        self.upstream, self.client, self.app = upstream, client, app

    async def chat(self, body=None, *, headers=None, **fields):
        """POST a chat completion: `body` as it is, or the smallest one with these fields."""
        if body is None:
            body = json.dumps({"model": "m", "messages": HELLO_MESSAGES, **fields}).encode()
        return await self._post("/v1/chat/completions", body, headers)

    async def respond(self, body=None, *, headers=None, **fields):
        """POST a request for a response: `body` as it is, or the smallest one with these fields."""
        if body is None:
            body = json.dumps({"model": "m", "input": "Hello", **fields}).encode()
        return await self._post("/v1/responses", body, headers)

    async def message(self, *, headers=None, **fields):
        """POST the smallest message with these fields."""
        body = {"model": "m", "max_tokens": 100, "messages": HELLO_MESSAGES, **fields}
        return await self._post("/v1/messages", json.dumps(body).encode(), headers)

    async def _post(self, path, body, headers):
        all_headers = {"content-type": "application/json", **(headers or {})}
        return await self.client.post(path, content=body, headers=all_headers)

    async def respond_slowly(self, gate, waits=2, **fields):
        """Stream a response, and set the gate after `waits` further `response.in_progress` events.

        Return the response, and its text.
        """
        body, text = json.dumps({"model": "m", "input": "Hello", "stream": True, **fields}).encode(), ""
        async with self.client.stream("POST", "/v1/responses", content=body) as answer:
            async for piece in answer.aiter_text():
                text += piece
                if text.count("event: response.in_progress") > waits:
                    gate.set()
        return answer, text

    @property
    def upstream_body(self):
        """The body of the last request that reached the upstream."""
        return self.upstream.posts[-1].json


@asynccontextmanager
async def gateway(*scripts, models=(), path="", **sections):
    """Yield a Site without a socket in front: its client calls the application itself.

    path: of the backend's URL.
    """
    async with Upstream(scripts, models).serving() as upstream:
        app = create_app(settings(upstream.url + path, **sections))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=DEADLINE, verify=False) as client,
        ):
            yield Site(upstream, client, app)


def streaming(site, path="/v1/chat/completions", **fields):
    """POST a request whose response is streamed, as a context manager."""
    prompt_fields = {"messages": HELLO_MESSAGES} if "chat" in path else {"input": "Hello"}
    return site.client.stream("POST", path, json={"model": "m", "stream": True, **prompt_fields, **fields})


async def overheard(site, take, body, headers=None, path="/v1/chat/completions"):
    """POST a chat completion, or to another path; `take` gets each message of the response before the client does."""
    app = site.client._transport.app

    async def watched(scope, receive, send):
        async def tell(message):
            await take(message)
            await send(message)

        await app(scope, receive, tell)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(watched), base_url="http://gateway", verify=False
    ) as one:
        return await one.post(path, content=body, headers=headers)


@asynccontextmanager
async def listening(*scripts, models=(), **sections):
    """Yield a Site behind a real socket, at `site.client.base_url`."""
    async with Upstream(scripts, models).serving() as upstream:
        known = settings(upstream.url, **sections)
        app = create_app(known)
        async with (
            running(app, known) as url,
            httpx.AsyncClient(base_url=url, timeout=DEADLINE, verify=False) as client,
        ):
            yield Site(upstream, client, app)


@asynccontextmanager
async def running(app, configuration=None, request_seconds=60, idle_seconds=5):
    """Run an application in this loop as in production, and yield its URL; configuration: its config.

    request_seconds: the timeout between two pieces of an unfinished request.
    idle_seconds: the timeout between two requests.
    """
    sock = open_listener("127.0.0.1", 0)
    served = app if isinstance(app, GatewayApp) else released(app)
    server = uvicorn.Server(ServerConfig(served, configuration or config.Config()))
    server.config.request_seconds, server.config.timeout_keep_alive = request_seconds, idle_seconds
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup([sock])
    server.lifespan.state.setdefault(STOPPING, lambda: None)  # for applications other than the gateway
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        for listener in server.servers:
            listener.close()
        state = server.server_state
        for connection in [*state.connections]:
            connection.shutdown()
        await until(lambda: not state.connections and not state.tasks)
        await server.lifespan.shutdown()
        sock.close()


def released(app):
    """Return an application that takes the client's connection out of the scope, as the gateway's middleware does."""

    async def served(scope, receive, send):
        try:
            await app(scope, receive, send)
        finally:
            scope.pop("extensions", None)

    return served


def problem(answer):
    """Return status, type, code and param of an error response in the shape of the API."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status_code, error["type"], error["code"], error["param"]


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_both_loops(test):
    """Turn an async test into a plain one that runs on a new loop of each kind, for 60 seconds at most."""

    async def bounded(arguments):
        async with asyncio.timeout(60):
            await test(**arguments)

    def run(loop, **arguments):
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(bounded(arguments))

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    run.pytestmark = getattr(test, "pytestmark", [])
    own = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([own, *inspect.signature(test).parameters.values()])
    return pytest.mark.parametrize("loop", LOOPS)(run)
