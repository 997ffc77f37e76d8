"""Support Idempotency-Key: a repeated request gets the response of the first one.

Only responses with a good end are kept.  After a failure of any kind, the request runs again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Message, Scope, Send

from gateway.errors import BadRequest, Problem, StoreFailed
from gateway.server.http.request_reader import header_dict
from gateway.server.ids import new_id
from gateway.server.middleware import error_responses
from gateway.store import idempotency_keys
from gateway.store.database import Database
from gateway.store.records import IdempotencyState, StoredAnswer

_log = logging.getLogger("gateway")
HEADER = b"idempotency-key"
_MAX_KEY = 255  # characters
_MAX_KEPT = 8 << 20  # bytes of a response
_RENEW = 20.0  # seconds between renewals, a third of the lease
_WARNINGS = b"x-gateway-warnings"
_UNKEPT = b"dropped:idempotency_key"
_TOO_LONG = f"Invalid 'Idempotency-Key' header: string too long. Expected a string with maximum length {_MAX_KEY}."
_REUSED = (
    "Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a key"
    " other than '{}' if you meant to execute a different request."
)
_RUNNING = "Another request with the same idempotency key is still being processed. Please retry in a few seconds."

ResponseHandler = Callable[[Send], Awaitable[bool]]  # returns True at a good end of the response


class IdempotencyKey(Struct, frozen=True):
    """A tenant's idempotency key for one request, and the lease of the process that runs it."""

    store: Database
    tenant: str
    key: str
    digest: str
    holder: str

    async def begin(self) -> IdempotencyState | StoredAnswer:
        """Claim the key; return its state, or the stored response.  Raises StoreFailed."""
        async with self.store.writing() as db:
            return await idempotency_keys.begin(db, self.tenant, self.key, self.digest, self.holder, _now())

    async def renew_forever(self, seconds: float = _RENEW) -> None:
        """Renew the lease until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            with suppress(StoreFailed):
                async with self.store.writing() as db:
                    await idempotency_keys.renew(db, self.tenant, self.key, self.holder, _now())

    async def end(self, answer: StoredAnswer | None) -> None:
        """Store the response, or release the key for None; if the store fails, the lease expires by itself."""
        try:
            async with self.store.writing() as db:
                if answer:
                    await idempotency_keys.finish(db, self.tenant, self.key, self.holder, answer)
                else:
                    await idempotency_keys.give_up(db, self.tenant, self.key, self.holder)
        except StoreFailed as error:
            _log.warning("a response could not be stored for its idempotency key: %s", error.reason)


def idempotency_key(http: HttpRequest, body: bytes, store: Database, tenant: str) -> IdempotencyKey:
    """Return the key of a request that has one.  Raises BadRequest for a key that is too long."""
    key = header_dict(http.scope)[HEADER].decode("latin-1")
    if len(key) > _MAX_KEY:
        raise BadRequest(_TOO_LONG, code="string_above_max_length")
    digest = sha256(http.scope["path"].encode() + b"\0" + body).hexdigest()
    return IdempotencyKey(store, tenant, key, digest, new_id("hold_"))


async def replay_or_run(key: IdempotencyKey, answer: ResponseHandler, http: HttpRequest, send: Send) -> None:
    """Send the stored response of the key, or run `answer` for a new key.

    A key in use gets an error.  If the store fails, the request runs without its key and with a warning.
    """
    try:
        begun = await key.begin()
    except StoreFailed as error:
        _log.warning("an idempotency key could not be looked up: %s", error.reason)
        await answer(_warning(send))
        return
    if begun is IdempotencyState.NEW:
        await _first(key, answer, send)
    else:
        await _repeated(key, begun, http.scope)(http.scope, http.receive, send)


async def _first(key: IdempotencyKey, answer: ResponseHandler, send: Send) -> None:
    """Send the last message after the response is stored, so that a client with a complete response can repeat it."""
    capture, kept = ResponseCapture(send), None
    holding = asyncio.create_task(key.renew_forever())
    try:
        if await answer(capture.take):
            kept = capture.answer()
    finally:
        holding.cancel()
        await key.end(kept)
    await capture.send_last_message()


def _repeated(key: IdempotencyKey, begun: IdempotencyState | StoredAnswer, scope: Scope) -> Response:
    if isinstance(begun, StoredAnswer):
        headers = {"content-type": begun.type, "idempotent-replayed": "true"}
        return Response(begun.body, begun.status, headers)
    if begun is IdempotencyState.RUNNING:
        running = Problem(409, _RUNNING, "idempotency_key_in_use")
        return error_responses.error_response(running, scope, {"retry-after": "1"})
    return error_responses.error_response(Problem(400, _REUSED.format(key.key), "idempotency_key_reused"), scope)


class ResponseCapture:
    """Pass on a response and keep it; its last message waits for `send_last_message`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._status, self._type = 0, ""
        self._pieces: list[bytes] = []
        self._size = 0
        self._last: Message | None = None

    async def take(self, message: Message) -> None:
        """Pass on and keep a message; to be used as the `send` of the response."""
        if message["type"] == "http.response.start":
            self._status, self._type = message["status"], _content_type(message)
        else:
            self._add(message["body"])
            if not message.get("more_body"):
                self._last = message
                return
        await self._send(message)

    def answer(self) -> StoredAnswer | None:
        """Return the complete response; None if it is too long to be stored."""
        if self._size > _MAX_KEPT:
            return None
        return StoredAnswer(self._status, self._type, b"".join(self._pieces))

    async def send_last_message(self) -> None:
        """Send the message that was held back."""
        if self._last:
            await self._send(self._last)

    def _add(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > _MAX_KEPT:
            self._pieces.clear()
        else:
            self._pieces.append(body)


def _content_type(message: Message) -> str:
    return Headers(raw=message["headers"])["content-type"]


def _warning(send: Send) -> Send:
    """Return a `send` that adds the warning about the ineffective key to the response headers."""

    async def warned(message: Message) -> None:
        if message["type"] == "http.response.start":
            items = [value for name, value in message["headers"] if name == _WARNINGS]
            others = [header for header in message["headers"] if header[0] != _WARNINGS]
            message["headers"] = [*others, (_WARNINGS, b", ".join([*items, _UNKEPT]))]
        await send(message)

    return warned


def _now() -> int:
    return int(time.time())
