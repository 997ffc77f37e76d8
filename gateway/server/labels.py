"""What every answer has: the id of its request, how long it took to begin, and no traceback."""

import asyncio
import re
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import STOPPED
from gateway.server import failures
from gateway.server.ids import new_id

_SOUND = re.compile(rb"[\x21-\x7e]{1,200}").fullmatch


class Labels:
    """Keeps a client's own `x-request-id` if it is printable, else gives one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, started = time.perf_counter(), False
        id = _given(scope) or new_id("req_").encode()

        async def labelled(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                took = b"%d" % ((time.perf_counter() - begun) * 1000)
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", id),
                    (b"openai-processing-ms", took),
                    (b"openai-version", b"2020-10-01"),
                ]
            await send(message)

        try:
            await self._app(scope, receive, labelled)
        except asyncio.CancelledError:  # by the server, which has no time left; a stream has been told
            if not started:
                await failures.response(STOPPED)(scope, receive, labelled)
        except Exception as error:  # noqa: BLE001 - the last place where a client can be told
            answer = failures.response(failures.unexpected(id.decode(), error))
            if not started:
                await answer(scope, receive, labelled)


def _given(scope: MutableMapping[str, Any]) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SOUND(value):
            return bytes(value)
    return None
