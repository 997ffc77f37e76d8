"""Dispatch requests: model requests go straight to their handler, all others to FastAPI's routes."""

from functools import cached_property, partial
from math import inf
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config import Config
from gateway.errors import GatewayError
from gateway.server import failures, idempotency
from gateway.server.answer import Responder
from gateway.server.asking import IncomingRequest, ModelRequestHandler, Read
from gateway.server.auth import Authenticator
from gateway.server.body import read_body
from gateway.server.buffers import Room
from gateway.server.counting import TokenCounting
from gateway.server.crowd import ConcurrencyLimit, overloaded_error
from gateway.server.paths import corrected, roots
from gateway.server.telemetry.observation import record_of

_FULL = failures.response_for(overloaded_error())


class GatewayApp(FastAPI):
    """asking: what answers a POST to these paths; the way through an application's layers costs as much as that."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - FastAPI's
        super().__init__(**settings)
        self.asking: dict[str, ASGIApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
            return
        asks = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self.asking.get(scope["path"]) if asks else None
        if not endpoint:
            scope = corrected(scope, self._roots)
            endpoint = self.asking.get(scope["path"]) if asks else None
        await (endpoint or super().__call__)(scope, receive, send)

    @cached_property
    def paths(self) -> list[str]:
        """Return the paths that are documented; there are no further ones once the application is made."""
        return [route.path_format for route in self.routes if isinstance(route, Route) and route.include_in_schema]

    @cached_property
    def _roots(self) -> frozenset[str]:
        return roots(self.paths)

    def answer_head(self) -> None:
        """Answer HEAD wherever there is an answer to GET; the server leaves out the body.

        The GET of a WebSocket's path has none but that it is one.
        """
        sockets = {route.path for route in self.routes if isinstance(route, WebSocketRoute)}
        for route in [*self.routes]:
            if isinstance(route, APIRoute) and "GET" in (route.methods or ()) and route.path not in sockets:
                self.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)


class ModelEndpoint:
    """POST a question to a model, as plain ASGI.

    crowd: the concurrent requests; above the limit others are refused before anything of them is read.
    read: makes a question of a body, for a tenant; reply: what the client gets for it.
    """

    def __init__(
        self,
        app: GatewayApp,
        config: Config,
        door: Authenticator,
        crowd: ConcurrencyLimit,
        read: Read,
        reply: type[Responder | TokenCounting],
    ) -> None:
        self._app, self._door, self._crowd = app, door, crowd
        self._read, self._reply, self._most = read, reply, config.limits.concurrent or inf
        self._most_bytes, self._memory = config.limits.body_bytes, config.limits.memory_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._crowd.inside >= self._most:
            await _FULL(scope, receive, send)
            return
        self._crowd.inside += 1
        try:
            request = Request(scope, receive, send)
            key = await self._door.admit(request)
            with Room(self._crowd.buffers, self._memory) as room:
                ask = IncomingRequest(request, await read_body(request, self._most_bytes, room), key)
                asking, read, reply = self._asking, self._read, self._reply
                if again := idempotency.idempotency_key(request, ask.raw, asking.store, ask.tenant):
                    await idempotency.replay_or_run(again, partial(asking.answer, ask, read, reply), request, send)
                else:
                    await asking.answer(ask, read, reply, send)
        except GatewayError as error:
            record_of(scope).problem = error.problem
            await failures.response_for(error)(scope, receive, send)
        except ClientDisconnect:
            pass  # before its request was read: no client is left
        finally:
            self._crowd.inside -= 1

    @cached_property
    def _asking(self) -> ModelRequestHandler:
        """There is one from the application's start on."""
        asking: ModelRequestHandler = self._app.state.asking
        return asking
