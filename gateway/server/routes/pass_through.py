"""Declare the endpoints that are passed on, and serve GET requests and WebSockets; POST requests go past FastAPI."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.backends.pass_through import PASS_THROUGH, PassThroughRow
from gateway.errors import UpgradeRequired
from gateway.server.middleware.request_context import RequestContextMiddleware

_JSON, _FORM = "application/json", "multipart/form-data"
_MEDIA = {"json": (_JSON,), "multipart": (_FORM,), "multipart or json": (_FORM, _JSON)}


class WebSocketAsRequest:
    """Serve a WebSocket as one request: its messages are the pieces of the request's body and of the response.

    So all that applies to a request applies to it: the record, the recording, keys, limits and errors before the
    upgrade.

        message                  of the application
        http.request             a message of the client; `text` says if it is one of text
          more_body False        the client's close, with `code` and `reason`
        http.response.start      status 101 accepts the WebSocket, with a `subprotocol`; another one refuses it
        http.response.body       with `text` a message to the client, with `code` a close, else the body of an error

    app: the application for the request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # the event that announces the connection
        request = {**scope, "type": "http", "method": "GET", "extensions": {}}
        await self._app(request, partial(_receive, receive), partial(_send, send))


async def _receive(receive: Receive) -> Message:
    """Return the client's next message as a part of the request."""
    message = await receive()
    if message["type"] == "websocket.receive":
        text = message.get("text")
        data = message["bytes"] if text is None else text.encode()
        return {"type": "http.request", "body": data, "more_body": True, "text": text is not None}
    if "reason" not in message:  # the connection is lost: a close has a reason, which may be empty
        return {"type": "http.disconnect"}
    end = {"code": message["code"], "reason": message["reason"]}
    return {"type": "http.request", "body": b"", "more_body": False, **end}


async def _send(send: Send, message: Message) -> None:
    """Send a part of the response as a message; drop one to a client that has left."""
    if "code" in message:
        with suppress(OSError, RuntimeError):
            await send({"type": "websocket.close", "code": message["code"], "reason": message["reason"]})
    elif "text" in message:
        data = {"text": message["body"].decode()} if message["text"] else {"bytes": message["body"]}
        with suppress(OSError, RuntimeError):
            await send({"type": "websocket.send", **data})
    elif message.get("status") == 101:
        chosen = {"subprotocol": message["subprotocol"], "headers": message["headers"]}
        await send({"type": "websocket.accept", **chosen})
    else:
        await send({**message, "type": f"websocket.{message['type']}"})


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
