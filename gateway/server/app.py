"""The application: routes, and what holds for all of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import __version__
from gateway.config import Config, Key
from gateway.errors import GatewayError, NotFound, TooLarge, Unsupported, UpgradeRequired
from gateway.server import failures, openapi, questions
from gateway.server.answer import Answer
from gateway.server.auth import Doorkeeper, allow_model, may_use
from gateway.server.backend import Backend, Listed
from gateway.server.directory import Directory
from gateway.server.labels import Labels
from gateway.server.questions import Question
from gateway.server.sealing import Keyring

_READY_SECONDS = 1.0
_CHAT_PATH = "/v1/chat/completions"
_RESPONSES_PATH = "/v1/responses"


def create_app(config: Config) -> FastAPI:
    """The gateway for this config; nothing is connected to before the first request."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.directory = Directory(config)
        try:
            yield
        finally:
            await app.state.directory.close()

    app = FastAPI(title="gateway", version=__version__, lifespan=lifespan, redoc_url=None)
    door = Doorkeeper(config.auth)
    _add_questions(app)
    _add_models(app, door)
    _add_health(app)
    failures.add_handlers(app)
    app.add_middleware(Shortcut, endpoints=_endpoints(app, config, door))
    app.add_middleware(Labels)
    if config.server.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.server.cors,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "x-gateway-warnings"],
        )
    return app


class Shortcut:
    """A POST to one of these paths goes straight to its endpoint: what lies between costs as much as all our work."""

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, ASGIApp]) -> None:
        self._app, self._endpoints = app, endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["path"]) if scope["type"] == "http" else None
        if not endpoint or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            await endpoint(scope, receive, send)
        except GatewayError as error:
            await failures.told(error)(scope, receive, send)
        except ClientDisconnect:
            pass  # before its request was read: nobody is there to be answered


def _endpoints(app: FastAPI, config: Config, door: Doorkeeper) -> dict[str, ASGIApp]:
    """The paths that ask a model."""
    keyring = Keyring(config.store)

    def response(raw: bytes, key: Key | None) -> Question:
        return questions.response(raw, config.responses, keyring.sealer(key.name if key else ""))

    return {
        _CHAT_PATH: Ask(app, config, door, lambda raw, _: questions.chat_completion(raw)),
        _RESPONSES_PATH: Ask(app, config, door, response),
    }


class Ask:
    """POST a question to a model, as plain ASGI.  `read` makes a question of a body, for the key that sent it."""

    def __init__(
        self, app: FastAPI, config: Config, door: Doorkeeper, read: Callable[[bytes, Key | None], Question]
    ) -> None:
        self._app, self._config, self._door, self._read = app, config, door, read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        key = self._door.admit(request.headers)
        question = self._read(await read_body(request, self._config.limits.body_bytes), key)
        model = question.request.model
        route = await self._app.state.directory.find(model)
        allow_model(key, model, route.model)
        await Answer(request, question, route, self._config).run(send)


def _add_questions(app: FastAPI) -> None:
    """Described here, and other methods refused; the Shortcut before them answers."""

    @app.post(_CHAT_PATH, openapi_extra=openapi.CHAT)
    async def chat_completions() -> None:
        """Answer a conversation: one JSON body, or server-sent events where `stream` is true."""

    @app.post(_RESPONSES_PATH, openapi_extra=openapi.RESPONSES)
    async def responses() -> None:
        """Answer a conversation of items: one Response, or its events where `stream` is true."""

    @app.get(_RESPONSES_PATH, include_in_schema=False)
    async def responses_by_websocket(request: Request) -> None:
        """Clients that try WebSocket first go on with HTTP at once when they hear this status."""
        if request.headers.get("upgrade", "").lower() == "websocket":
            raise UpgradeRequired("WebSocket is not supported here: POST the request, with stream: true for events.")
        raise HTTPException(405, headers={"allow": "POST"})


def _add_models(app: FastAPI, door: Doorkeeper) -> None:
    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        """The models that a client may name."""
        key = door.admit(request.headers)
        directory: Directory = app.state.directory
        listed = [one for one in await directory.list() if may_use(key, one.id, directory.model(one.id))]
        return {"object": "list", "data": [_model(one) for one in listed]}

    @app.get("/v1/models/{id:path}")
    async def model(request: Request, id: str) -> dict[str, Any]:
        """One of them."""
        key = door.admit(request.headers)
        for listed in await app.state.directory.list():
            if listed.id == id and may_use(key, id, app.state.directory.model(id)):
                return _model(listed)
        message = f"The model '{id}' does not exist or you do not have access to it."
        raise NotFound(message, code="model_not_found", param="model")


def _add_health(app: FastAPI) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """The gateway is alive."""
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """The gateway has a backend that answers; 503 while it has none."""
        backends = app.state.directory.backends
        states = dict(zip(backends, await asyncio.gather(*map(_state, backends.values())), strict=True))
        return JSONResponse({"backends": states}, 200 if "ok" in states.values() else 503)


async def read_body(request: Request, limit: int) -> bytes:
    """The body, if it is no larger than allowed and not encoded."""
    if (encoding := request.headers.get("content-encoding", "identity")).lower() != "identity":
        message = f"The content encoding '{encoding}' is not supported: send the body as it is."
        raise Unsupported(message, code="unsupported_content_encoding")
    pieces, size = [], 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise TooLarge(f"The request body is larger than {limit} bytes.")
    return b"".join(pieces)


def _model(listed: Listed) -> dict[str, Any]:
    return {"id": listed.id, "object": "model", "created": listed.created, "owned_by": "gateway"}


async def _state(backend: Backend) -> str:
    with suppress(TimeoutError):
        async with asyncio.timeout(_READY_SECONDS):
            return "ok" if await backend.alive() else "unreachable"
    return "unreachable"
