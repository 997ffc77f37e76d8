"""Declare the endpoints that are passed on, and serve GET requests and WebSockets; POST requests go past FastAPI."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, FastAPI, Request
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


def add_sockets(app: FastAPI) -> None:
    """Add the routes of WebSockets, whose endpoints are those of the application."""
    for row in PASS_THROUGH:
        if row.websocket:
            session = RequestContextMiddleware(app.state.passed[row.path], app.state.telemetry)
            app.router.routes.append(WebSocketRoute(row.path, WebSocketAsRequest(session)))


def _route(path: str) -> Callable[[Request], Awaitable[Response]]:
    async def passed(request: Request) -> Response:
        return _PassedResponse(request.app.state.passed[path])

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


router = APIRouter()
for _row in PASS_THROUGH:
    router.add_api_route(
        _row.path,
        _upgrade_required if _row.websocket else _route(_row.path),
        methods=[_row.method],
        name=_row.name,
        description=_row.summary,
        openapi_extra=_described(_row),
    )
