"""Serve a WebSocket as one request: its messages are the pieces of the request's body and of the response.

So all that applies to a request applies to it: the record, the recording, keys, limits and errors before the upgrade.

    message                  of the application
    http.request             a message of the client; `text` says if it is one of text
      more_body False        the client's close, with `code` and `reason`
    http.response.start      status 101 accepts the WebSocket, with a `subprotocol`; another one refuses it
    http.response.body       with `text` a message to the client, with `code` a close, else the body of an error
"""

from contextlib import suppress
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class WebSocketAsRequest:
    """The ASGI application for the scope `websocket`.  app: the application for the request."""

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
