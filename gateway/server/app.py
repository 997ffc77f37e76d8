"""The application: routes, and what holds for all of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from math import inf

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from gateway import __version__
from gateway.config import Config
from gateway.errors import GatewayError
from gateway.server import failures, idempotency, logs, openapi, routes
from gateway.server.answer import Answer
from gateway.server.asking import Ask, Asking, Read
from gateway.server.auth import Doorkeeper
from gateway.server.body import read_body
from gateway.server.counting import Count
from gateway.server.crowd import Crowd, full
from gateway.server.directory import Directory
from gateway.server.labels import Labels
from gateway.server.limiting import HEADERS, Limits
from gateway.server.protocols import STOPPING
from gateway.server.reader import Reader
from gateway.server.sealing import Keyring
from gateway.server.strangers import Strangers
from gateway.server.sweeping import sweep_for_ever
from gateway.server.telemetry.observation import observed
from gateway.server.telemetry.telemetry import Telemetry
from gateway.server.tools import Workshop
from gateway.server.websocket import entrance
from gateway.store.database import Database

_CHAT_PATH = "/v1/chat/completions"
_TEXT_PATH = "/v1/completions"
_RESPONSES_PATH = "/v1/responses"
_COMPACT_PATH = "/v1/responses/compact"
_COUNT_PATH = "/v1/responses/input_tokens"
_FULL = failures.told(full())


def create_app(
    config: Config,
    crowd: Crowd | None = None,
    strangers: Strangers | None = None,
    telemetry: Telemetry | None = None,
) -> FastAPI:
    """The gateway for this config; nothing is connected to before the first request.

    crowd: who is in this process already; strangers: who has tried to be; telemetry: what it knows of its requests.
    """

    logs.follow(config.logs)
    crowd = crowd or Crowd()
    app = FastAPI(title="gateway", version=__version__, lifespan=partial(_living, config, crowd), redoc_url=None)
    app.router.redirect_slashes = False  # whoever is sent elsewhere takes the key along
    door = Doorkeeper(config, strangers or Strangers())
    app.state.keyring, app.state.leaving = Keyring(config.store), False
    app.state.telemetry = telemetry or Telemetry()
    _add_questions(app)
    entrance.add(app, _RESPONSES_PATH, config, door)
    routes.add(app, config, door)
    failures.add_handlers(app)
    _add_layers(app, config, door, crowd)
    return app


@asynccontextmanager
async def _living(config: Config, crowd: Crowd, app: FastAPI) -> AsyncIterator[dict[str, Callable[[], None]]]:
    """What it works with, as long as it lives."""
    state, telemetry = app.state, app.state.telemetry
    store = Database(config.store.url.get_secret_value(), telemetry.store_failed)
    directory = Directory(config, telemetry.failed)
    limits = Limits(config, store)
    joined = partial(crowd.joined, config.limits.concurrent or inf)
    workshop = Workshop(config.tools)
    asking = Asking(Reader(store, state.keyring, config, workshop), directory, limits, joined, telemetry)
    state.store, state.directory, state.limits, state.asking = store, directory, limits, asking
    state.workshop = workshop
    beside = [asyncio.create_task(sweep_for_ever(store, config.store))]
    try:
        async with telemetry.of(directory), directory.probing(), asking.jobs.at_work() as stopping:
            beside.append(asyncio.create_task(state.sockets.close_when(stopping)))
            state.stopping = stopping
            yield {STOPPING: stopping.set}
    finally:
        for task in beside:
            task.cancel()
        await workshop.close()
        await directory.close()
        await limits.close()
        await store.close()


def _add_layers(app: FastAPI, config: Config, door: Doorkeeper, crowd: Crowd) -> None:
    """What requests go through before the routes."""
    shortcut = partial(Shortcut, endpoints=_endpoints(app, config, door), crowd=crowd, most=config.limits.concurrent)
    app.add_middleware(shortcut)
    app.add_middleware(Labels, telemetry=app.state.telemetry)
    if config.server.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.server.cors,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "x-gateway-warnings", "idempotent-replayed", "retry-after", *HEADERS],
        )
    if proxies := config.server.forwarded_allow_ips:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=[*proxies])  # before all who ask for the client


class Shortcut:
    """A POST to one of these paths goes straight to its endpoint: what lies between costs as much as all our work.

    most: of these requests at a time, others are refused before anything of them is read; 0: any number.
    """

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, ASGIApp], crowd: Crowd, most: int) -> None:
        self._app, self._endpoints, self._crowd, self._most = app, endpoints, crowd, most or inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["path"]) if scope["type"] == "http" else None
        if not endpoint or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        if self._crowd.inside >= self._most:
            await _FULL(scope, receive, send)
            return
        self._crowd.inside += 1
        try:
            await endpoint(scope, receive, send)
        except GatewayError as error:
            observed(scope).problem = error.problem
            await failures.told(error)(scope, receive, send)
        except ClientDisconnect:
            pass  # before its request was read: nobody is there to be answered
        finally:
            self._crowd.inside -= 1


def _endpoints(app: FastAPI, config: Config, door: Doorkeeper) -> dict[str, ASGIApp]:
    """The paths that ask a model."""
    return {
        _CHAT_PATH: Post(app, config, door, Reader.chat_completion, Answer),
        _TEXT_PATH: Post(app, config, door, Reader.completion, Answer),
        _RESPONSES_PATH: Post(app, config, door, Reader.response, Answer),
        _COMPACT_PATH: Post(app, config, door, Reader.compaction, Answer),
        _COUNT_PATH: Post(app, config, door, Reader.prompt, Count),
    }


class Post:
    """POST a question to a model, as plain ASGI.

    read: makes a question of a body, for a tenant; reply: what the client gets for it.
    """

    def __init__(self, app: FastAPI, config: Config, door: Doorkeeper, read: Read, reply: type[Answer | Count]) -> None:
        self._app, self._config, self._door, self._read, self._reply = app, config, door, read, reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        key = await self._door.admit(request)
        ask = Ask(request, await read_body(request, self._config.limits.body_bytes), key)

        def answer(send: Send) -> Awaitable[bool]:
            asking: Asking = self._app.state.asking
            return asking.answer(ask, self._read, self._reply, send)

        if again := idempotency.key_of(request, ask.raw, self._app.state.store, ask.tenant):
            await idempotency.once(again, answer, request, send)
        else:
            await answer(send)


def _add_questions(app: FastAPI) -> None:
    """Described here, and other methods refused; the Shortcut before them answers."""

    @app.post(_CHAT_PATH, openapi_extra=openapi.CHAT)
    async def chat_completions() -> None:
        """Answer a conversation: one JSON body, or server-sent events where `stream` is true."""

    @app.post(_TEXT_PATH, openapi_extra=openapi.COMPLETIONS)
    async def completions() -> None:
        """Complete a text: one JSON body, or server-sent events where `stream` is true."""

    @app.post(_RESPONSES_PATH, openapi_extra=openapi.RESPONSES)
    async def responses() -> None:
        """Answer a conversation of items: one Response, or its events where `stream` is true.

        A GET with an upgrade opens a WebSocket for the same: `response.create` with these fields, an event a message.
        """

    @app.post(_COMPACT_PATH, openapi_extra=openapi.RESPONSES)
    async def compact() -> None:
        """Summarise a conversation of items: its users' messages, and an item that stands for all of it."""

    @app.post(_COUNT_PATH, openapi_extra=openapi.RESPONSES)
    async def input_tokens() -> None:
        """Count the tokens that a model would be given with a conversation of items."""

    @app.get(_RESPONSES_PATH, include_in_schema=False)
    async def responses_by_websocket(request: Request) -> None:
        """Here are upgrades that the server in front of the application knows nothing of."""
        if request.headers.get("upgrade", "").lower() == "websocket":
            raise entrance.not_here()
        raise HTTPException(405, headers={"allow": "POST"})
