"""Admit WebSocket connections, and close all of this process.  A refused one gets the HTTP error of a request."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from fastapi import FastAPI
from starlette.requests import HTTPConnection
from starlette.routing import WebSocketRoute
from starlette.types import Receive, Scope, Send

from gateway.config import Config
from gateway.errors import GatewayError, Problem, UpgradeRequired, UpstreamUnavailable
from gateway.server.handler import ModelRequestHandler
from gateway.server.middleware import error_responses
from gateway.server.middleware.auth import Authenticator, OriginCheck
from gateway.server.websocket.connection import WebSocketConnection

_RESTARTS = 1012
_STOPPING = "The gateway is stopping."
_NOT_HERE = "WebSocket is not supported here. Send the request by POST, with 'stream': true for events."


class OpenConnection(Protocol):
    """A connection that the registry can close."""

    async def end(self, problem: Problem, code: int) -> None:
        """Admit nothing new, and close the connection with this code and the problem's message."""


class ConnectionRegistry:
    """The open connections of a process."""

    def __init__(self) -> None:
        self._open: set[OpenConnection] = set()
        self._closing = False

    @contextmanager
    def registered(self, connection: OpenConnection) -> Iterator[None]:
        """Register a connection within the block."""
        self._open.add(connection)
        try:
            yield
        finally:
            self._open.discard(connection)

    def reject_if_closing(self) -> None:
        """Raise UpstreamUnavailable if no more connections are admitted."""
        if self._closing:
            raise UpstreamUnavailable(_STOPPING)

    async def close_when(self, stopping: asyncio.Event) -> None:
        """Close all connections once the event is set."""
        await stopping.wait()
        await self.close()

    async def close(self) -> None:
        """Admit no new connection, and close each one as soon as no response runs in it."""
        self._closing = True
        problem = UpstreamUnavailable(_STOPPING).problem
        await asyncio.gather(*(connection.end(problem, _RESTARTS) for connection in self._open))


def add_websocket(app: FastAPI, path: str, config: Config, authenticator: Authenticator) -> None:
    """Add the route.  Connections close when `close_when` of `app.state.sockets` gets the stop event."""
    app.state.sockets = ConnectionRegistry()
    app.router.routes.append(WebSocketRoute(path, WebSocketEndpoint(app, config, authenticator)))


def websocket_unsupported() -> UpgradeRequired:
    """Return the error for a WebSocket: clients that try WebSocket first continue with HTTP after this status."""
    return UpgradeRequired(_NOT_HERE)


class WebSocketEndpoint:
    """The ASGI application for the scope `websocket`."""

    def __init__(self, app: FastAPI, config: Config, authenticator: Authenticator) -> None:
        self._app, self._config, self._authenticator, self._pages = app, config, authenticator, OriginCheck(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # the event that announces the connection
        http = HTTPConnection(scope)
        handler: ModelRequestHandler = self._app.state.handler
        sockets: ConnectionRegistry = self._app.state.sockets
        try:
            sockets.reject_if_closing()
            await self._admit(http)
        except GatewayError as error:
            await error_responses.response_for(error, scope)(scope, receive, send)
            return
        authenticate = partial(self._authenticator.authenticate, http)
        connection = WebSocketConnection(scope, receive, send, authenticate, self._config.limits.body_bytes)
        with sockets.registered(connection):
            await connection.run(handler)

    async def _admit(self, http: HTTPConnection) -> None:
        if not self._config.responses.websocket:
            raise websocket_unsupported()
        self._pages.check_origin(http)
        await self._authenticator.authenticate(http)
