"""Give each response its request id and its time to the first byte, and keep tracebacks from clients.

The record of a request begins here.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import STOPPED
from gateway.server.http.disconnect import DisconnectSource
from gateway.server.http.fast_send import direct
from gateway.server.http.request_reader import header_dict
from gateway.server.http.response_writer import FastSend, HeaderList
from gateway.server.ids import new_id
from gateway.server.middleware import error_responses
from gateway.server.observability.request_record import RequestRecord, endpoint_label, set_record
from gateway.server.observability.request_recorder import tee_send
from gateway.server.observability.telemetry import Telemetry

_SOUND = re.compile(rb"[\x21-\x7e]{1,200}").fullmatch


class RequestContextMiddleware:
    """Keeps a client's own `x-request-id` if it is printable, else gives one."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app, self._telemetry = app, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kind = endpoint_label(scope["method"], scope["path"])
        seen = self._telemetry.begin(_given(scope) or new_id("req_"), kind, scope["headers"], scope["method"])
        set_record(scope, seen)
        client = _RecordingSend(seen, receive, send)
        try:
            await self._app(scope, client.receive, tee_send(client, seen.recorder))
        except asyncio.CancelledError:  # by the server, which has no time left; a stream has been told
            if not seen.status:
                await error_responses.error_response(STOPPED)(scope, receive, client)
        except Exception as error:  # noqa: BLE001 - the last place where a client can be told
            seen.problem = error_responses.internal_error(seen.id, error)
            if not seen.status:
                await error_responses.error_response(seen.problem)(scope, receive, client)
        finally:
            seen.left = client.left and seen.is_last_holder
            seen.release()


class _RecordingSend(DisconnectSource, FastSend):
    """The `send` of a request, which records the response.  left: the client went before it had all."""

    def __init__(self, seen: RequestRecord, receive: Receive, send: Send) -> None:
        self._seen, self._receive, self._send, self._direct = seen, receive, send, direct(send)
        self._whole = self.left = False
        self._gone: Callable[[], None] = _nobody_waits

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen.received += len(message.get("body", b""))
        else:
            self._client_left()
        return message

    def take_body(self) -> bytes | None:
        body = self._direct.take_body()
        if body:
            self._seen.received += len(body)
        return body

    def watch(self, gone: Callable[[], None]) -> bool:
        watched = self._direct.watch(self._client_left)
        if watched:
            self._gone = gone
        return watched

    def clear_on_disconnect(self) -> None:
        self._direct.clear_on_disconnect()
        self._gone = _nobody_waits

    def whole(self, fields: HeaderList, body: bytes) -> bool:
        given = self._whole = self._direct.whole([*fields, *self._context_headers()], body)
        if given:
            self._seen.status, self._seen.sent = 200, len(body)
        return given

    def begin(self, fields: HeaderList) -> bool:
        given = self._direct.begin([*fields, *self._context_headers()])
        if given:
            self._seen.status = 200
        return given

    def now(self, piece: bytes) -> bool:
        given = self._direct.now(piece)
        if given:
            self._seen.sent += len(piece)
        return given

    def last(self, piece: bytes) -> bool:
        given = self._whole = self._direct.last(piece)
        if given:
            self._seen.sent += len(piece)
        return given

    def __call__(self, message: Message) -> Awaitable[None]:
        if "status" in message:
            self._seen.status = message["status"]
            message["headers"] = [*message["headers"], *self._context_headers()]
        else:
            self._seen.sent += len(message.get("body", b""))
            self._whole = not message.get("more_body")
        return self._send(message)

    def _client_left(self) -> None:
        self.left = not self._whole
        self._gone()

    def _context_headers(self) -> list[tuple[bytes, bytes]]:
        took = (time.perf_counter() - self._seen.arrived) * 1000
        return [
            (b"x-request-id", self._seen.id.encode()),
            (b"openai-processing-ms", b"%d" % took),
            (b"openai-version", b"2020-10-01"),
        ]


def _nobody_waits() -> None:
    """For it to go."""


def _given(scope: MutableMapping[str, Any]) -> str | None:
    given = header_dict(scope).get(b"x-request-id")
    return given.decode() if given and _SOUND(given) else None
