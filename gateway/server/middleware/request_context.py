"""Add the request id and the time to the first byte to each response, and hide tracebacks from clients.

The record of a request begins here.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import STOPPED
from gateway.server.http.client_connection import (
    ClientConnection,
    HeaderList,
    client_connection,
    remove_client_connection,
    set_client_connection,
)
from gateway.server.http.request_reader import header_dict
from gateway.server.ids import new_id
from gateway.server.middleware import error_responses
from gateway.server.observability.request_record import RequestRecord, endpoint_label, set_current_record, set_record
from gateway.server.observability.request_recorder import tee_send
from gateway.server.observability.telemetry import Telemetry

_PRINTABLE = re.compile(rb"[\x21-\x7e]{1,200}").fullmatch


class RequestContextMiddleware:
    """Begin and end the record of each request.

    A client's own `x-request-id` is kept if it is printable.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app, self._telemetry = app, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        label = endpoint_label(scope["method"], scope["path"])
        record = self._telemetry.begin(_client_id(scope) or new_id("req_"), label, scope["headers"], scope["method"])
        set_record(scope, record)
        set_current_record(record)
        connection = client_connection(scope)
        client = _RecordedConnection(record, connection, receive, send)
        set_client_connection(scope, client)
        try:
            await self._app(scope, client.receive, tee_send(client, record.recorder) if record.recorder else client)
        except asyncio.CancelledError:  # by the server, which has no time left; the relay has ended a stream
            if not record.status:
                await error_responses.error_response(STOPPED, scope)(scope, receive, client)
        except Exception as error:  # noqa: BLE001 - the last place where a client can get an error
            record.problem = error_responses.internal_error(record.id, error)
            if not record.status:
                await error_responses.error_response(record.problem, scope)(scope, receive, client)
        finally:
            remove_client_connection(scope)
            record.left = client.left and record.is_last_holder
            record.sent += connection.streamed
            record.release()


class _RecordedConnection(ClientConnection):
    """The connection of a request, and its `send`; it records the response and adds the headers of each response.

    left: the client disconnected before it had the whole response.
    """

    def __init__(self, record: RequestRecord, connection: ClientConnection, receive: Receive, send: Send) -> None:
        self._record, self._connection, self._receive, self._send = record, connection, receive, send
        self.try_write = connection.try_write  # type: ignore[method-assign] # no frame more for each chunk
        self._is_whole = self.left = False
        self._callback: Callable[[], None] = _do_nothing

    async def receive(self) -> Message:
        """Receive a message as ASGI has it."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._record.received += len(message.get("body", b""))
        else:
            self._client_left()
        return message

    def take_body(self) -> bytes | None:
        body = self._connection.take_body()
        if body:
            self._record.received += len(body)
        return body

    async def read_body(self, length: int) -> bytes | None:
        body = await self._connection.read_body(length)
        if body is not None:
            self._record.received += len(body)
            if len(body) < length:
                self._client_left()
        return body

    def on_disconnect(self, callback: Callable[[], None]) -> bool:
        watched = self._connection.on_disconnect(self._client_left)
        if watched:
            self._callback = callback
        return watched

    def clear_on_disconnect(self) -> None:
        self._connection.clear_on_disconnect()
        self._callback = _do_nothing

    def cut(self) -> None:
        self._connection.cut()

    def try_send(self, headers: HeaderList, body: bytes) -> bool:
        sent = self._is_whole = self._connection.try_send([*headers, *self._context_headers()], body)
        if sent:
            self._record.status, self._record.sent = 200, len(body)
        return sent

    def try_begin(self, headers: HeaderList) -> bool:
        begun = self._connection.try_begin([*headers, *self._context_headers()])
        if begun:
            self._record.status = 200
        return begun

    def try_end(self, piece: bytes) -> bool:
        ended = self._is_whole = self._connection.try_end(piece)
        return ended

    def __call__(self, message: Message) -> Awaitable[None]:
        if "status" in message:
            self._record.status = message["status"]
            message["headers"] = [*message["headers"], *self._context_headers()]
        else:
            self._record.sent += len(message.get("body", b""))
            self._is_whole = not message.get("more_body")
        return self._send(message)

    def _client_left(self) -> None:
        self.left = not self._is_whole
        self._callback()

    def _context_headers(self) -> list[tuple[bytes, bytes]]:
        id = self._record.id.encode()
        milliseconds = (time.perf_counter() - self._record.arrived) * 1000
        return [
            (b"x-request-id", id),
            (b"request-id", id),  # as Anthropic's API calls it
            (b"openai-processing-ms", b"%d" % milliseconds),
            (b"openai-version", b"2020-10-01"),
        ]


def _do_nothing() -> None:
    """Do nothing: no task waits for the disconnect."""


def _client_id(scope: MutableMapping[str, Any]) -> str | None:
    """Return the request id that the client has given, if it is printable."""
    given = header_dict(scope).get(b"x-request-id")
    return given.decode() if given and _PRINTABLE(given) else None
