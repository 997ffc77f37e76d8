"""Idempotency-Key: a request that is sent twice is answered once, and both get the same answer.

Only answers that came to a good end are kept: after a failure of any kind, sending it again is to try again.
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
from starlette.types import Message, Send

from gateway.errors import BadRequest, Problem, StoreFailed
from gateway.server.http.request_reader import get_header
from gateway.server.ids import new_id
from gateway.server.middleware import error_responses
from gateway.store import idempotency_keys
from gateway.store.database import Database
from gateway.store.records import IdempotencyState, StoredAnswer

_log = logging.getLogger("gateway")
_MOST_KEY = 255  # characters
_MOST_KEPT = 8 << 20  # bytes of an answer
_RENEW = 20.0  # seconds, a third of how long a key is held at a time
_WARNINGS = b"x-gateway-warnings"
_UNKEPT = b"dropped:idempotency_key"
_TOO_LONG = f"Invalid 'Idempotency-Key' header: string too long. Expected a string with maximum length {_MOST_KEY}."
_REUSED = (
    "Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a key"
    " other than '{}' if you meant to execute a different request."
)
_RUNNING = "Another request with the same idempotency key is still being processed. Please retry in a few seconds."

ResponseHandler = Callable[[Send], Awaitable[bool]]  # True if it came to a good end


class IdempotencyKey(Struct, frozen=True):
    """A tenant's key for one request, and the lease to answer it."""

    store: Database
    tenant: str
    key: str
    digest: str
    holder: str

    async def begin(self) -> IdempotencyState | StoredAnswer:
        async with self.store.writing() as db:
            return await idempotency_keys.begin(db, self.tenant, self.key, self.digest, self.holder, _now())

    async def renew_forever(self, seconds: float = _RENEW) -> None:
        """Say again and again that it is still being answered."""
        while True:
            await asyncio.sleep(seconds)
            with suppress(StoreFailed):
                async with self.store.writing() as db:
                    await idempotency_keys.renew(db, self.tenant, self.key, self.holder, _now())

    async def end(self, answer: StoredAnswer | None) -> None:
        """Keep the answer, or let others try; if not even that can be done, the key is free when it is not held."""
        try:
            async with self.store.writing() as db:
                if answer:
                    await idempotency_keys.finish(db, self.tenant, self.key, self.holder, answer)
                else:
                    await idempotency_keys.give_up(db, self.tenant, self.key, self.holder)
        except StoreFailed as error:
            _log.warning("an answer could not be kept for its idempotency key: %s", error.__cause__)


def idempotency_key(http: HttpRequest, body: bytes, store: Database, tenant: str) -> IdempotencyKey | None:
    """The request's key; None without one.  Raises BadRequest."""
    key = get_header(http.scope, b"idempotency-key")
    if not key:
        return None
    if len(key) > _MOST_KEY:
        raise BadRequest(_TOO_LONG, code="string_above_max_length")
    digest = sha256(http.scope["path"].encode() + b"\0" + body).hexdigest()
    return IdempotencyKey(store, tenant, key, digest, new_id("hold_"))


async def replay_or_run(key: IdempotencyKey, answer: ResponseHandler, http: HttpRequest, send: Send) -> None:
    """Answer the request, unless it has been or is being answered; without its key where that cannot be stored."""
    try:
        begun = await key.begin()
    except StoreFailed as error:
        _log.warning("an idempotency key could not be looked up: %s", error.__cause__)
        await answer(_warning(send))
        return
    if begun is IdempotencyState.NEW:
        await _first(key, answer, send)
    else:
        await _repeated(key, begun)(http.scope, http.receive, send)


async def _first(key: IdempotencyKey, answer: ResponseHandler, send: Send) -> None:
    """Send the last piece after the response is stored, so that a client that has all of it gets all of it again."""
    tape, kept = ResponseCapture(send), None
    holding = asyncio.create_task(key.renew_forever())
    try:
        if await answer(tape.take):
            kept = tape.answer()
    finally:
        holding.cancel()
        await key.end(kept)
    await tape.send_last_message()


def _repeated(key: IdempotencyKey, begun: IdempotencyState | StoredAnswer) -> Response:
    if isinstance(begun, StoredAnswer):
        headers = {"content-type": begun.type, "idempotent-replayed": "true"}
        return Response(begun.body, begun.status, headers)
    if begun is IdempotencyState.RUNNING:
        return error_responses.error_response(Problem(409, _RUNNING, "idempotency_key_in_use"), {"retry-after": "1"})
    return error_responses.error_response(Problem(400, _REUSED.format(key.key), "idempotency_key_reused"))


class ResponseCapture:
    """Passes an answer on and takes it down; its last message waits for `release`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._status, self._type = 0, ""
        self._pieces: list[bytes] = []
        self._size = 0
        self._last: Message | None = None

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status, self._type = message["status"], _content_type(message)
        else:
            self._add(message["body"])
            if not message.get("more_body"):
                self._last = message
                return
        await self._send(message)

    def answer(self) -> StoredAnswer | None:
        """Return all of the response; None if it is too long to be kept."""
        if self._size > _MOST_KEPT:
            return None
        return StoredAnswer(self._status, self._type, b"".join(self._pieces))

    async def send_last_message(self) -> None:
        if self._last:
            await self._send(self._last)

    def _add(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > _MOST_KEPT:
            self._pieces.clear()
        else:
            self._pieces.append(body)


def _content_type(message: Message) -> str:
    return Headers(raw=message["headers"])["content-type"]


def _warning(send: Send) -> Send:
    """Says in the head of the answer that the key had no effect."""

    async def warned(message: Message) -> None:
        if message["type"] == "http.response.start":
            items = [value for name, value in message["headers"] if name == _WARNINGS]
            others = [header for header in message["headers"] if header[0] != _WARNINGS]
            message["headers"] = [*others, (_WARNINGS, b", ".join([*items, _UNKEPT]))]
        await send(message)

    return warned


def _now() -> int:
    return int(time.time())
