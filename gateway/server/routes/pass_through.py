"""Declare the endpoints that are passed on, and serve GET requests and WebSockets; POST requests go past FastAPI."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.backends.pass_through import PASS_THROUGH, PassThroughRow
from gateway.errors import UpgradeRequired
from gateway.server.middleware.request_context import RequestContextMiddleware
from gateway.server.websocket.as_request import WebSocketAsRequest

_JSON, _FORM = "application/json", "multipart/form-data"
_MEDIA = {"json": (_JSON,), "multipart": (_FORM,), "multipart or json": (_FORM, _JSON)}


class _PassedResponse(Response):
    """A response that an endpoint sends."""

    def __init__(self, endpoint: ASGIApp) -> None:
        super().__init__()
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoint(scope, receive, send)


def declare(app: FastAPI, build: Callable[[PassThroughRow], ASGIApp]) -> None:
    """Add a route for each row.  build: returns its endpoint."""
    for row in PASS_THROUGH:
        if row.websocket:
            session = RequestContextMiddleware(build(row), app.state.telemetry)
            app.router.routes.append(WebSocketRoute(row.path, WebSocketAsRequest(session)))
        app.add_api_route(
            row.path,
            _upgrade_required if row.websocket else _route(build(row)),
            methods=[row.method],
            name=row.name,
            description=row.summary,
            openapi_extra=_described(row),
        )


def _route(endpoint: ASGIApp) -> Callable[[], Awaitable[Response]]:
    async def passed() -> Response:
        return _PassedResponse(endpoint)

    return passed


async def _upgrade_required() -> None:
    """Refuse a request that opens no WebSocket."""
    raise UpgradeRequired("This endpoint is a WebSocket. Open it with a ws:// or wss:// URL.")


def _described(row: PassThroughRow) -> dict[str, Any]:
    """Return the description of the request for OpenAPI."""
    model = {"type": "string"}
    if row.place == "query":
        return {"parameters": [{"name": "model", "in": "query", "required": True, "schema": model}]}
    schema = {"type": "object", "required": ["model"], "properties": {"model": model}}
    content = {"schema": schema, **({"example": dict(row.example)} if row.example else {})}
    return {"requestBody": {"required": True, "content": dict.fromkeys(_MEDIA[row.place], content)}}
