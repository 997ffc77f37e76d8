"""Relay one WebSocket that is passed on: messages in both directions, until a side closes or a timeout passes.

The client's WebSocket is here a request whose body and response are its messages (`server/routes/pass_through`).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from math import inf
from time import perf_counter
from typing import Any

from starlette.types import Message, Send
from websockets.exceptions import ConnectionClosed

from gateway.api.named_models import session_models
from gateway.backends.openai.usage import usage_at_end
from gateway.errors import ClientError, GatewayError, Problem, UpstreamTimeout
from gateway.events import Usage
from gateway.server.http.client_connection import CancelOnDisconnect
from gateway.server.http.request_reader import get_header
from gateway.server.observability.request_recorder import tee_lengths
from gateway.server.relay.passed_relay import CHOSEN, TAIL, PassThroughRelay
from gateway.server.relay.rounds import gateway_headers
from gateway.server.upstream.model_registry import BackendRoute
from gateway.server.upstream.passed_socket import Close, PassedSocket
from gateway.server.worker_thread import parse_body

_FAILED, _TIMED_OUT, _LEFT, _REFUSED = 1011, 1001, 1001, 1008
_SECRET = "openai-insecure-api-key."  # beginning of a subprotocol that holds a key of the client
_USAGE = b'"usage"'


class PassedSession(PassThroughRelay):
    """Relay a WebSocket to the first backend that opens one."""

    _active = 0.0  # time of the last message
    _is_settled = True  # False: a response has ended since the session was admitted

    async def run(self, send: Send) -> None:
        """Serve the session.  Raise GatewayError if no backend opens a WebSocket, and ClientDisconnect before that."""
        self._http.app.state.sockets.reject_if_closing()
        self._ended: asyncio.Future[Close] = asyncio.get_running_loop().create_future()
        with self._http.app.state.sockets.registered(self):
            await super().run(send)

    async def end(self, problem: Problem, code: int) -> None:
        """Close the session, as the gateway stops."""
        if not self._ended.done():
            self._ended.set_result(Close(code, problem.message))

    async def _attempt(self, route: BackendRoute, send: Send) -> None:
        """Serve the session by one backend; raise GatewayError if it opens no WebSocket."""
        request = await self._body.request(self._choose(route), route.upstream_model)
        with closing(PassedSocket(route.backend, request, self._targets.identity, self._record)) as call:
            with CancelOnDisconnect(self._http.scope, self._http.receive):
                chosen = await call.open(self._subprotocols())
            call.report_outcome(None)
            await self._accept(chosen, route, send)
            await self._serve(call, route, tee_lengths(send))

    def _subprotocols(self) -> list[str]:
        """Return the client's subprotocols without its key."""
        offered = (get_header(self._http.scope, b"sec-websocket-protocol") or "").split(",")
        return [one.strip() for one in offered if one.strip() and not one.strip().startswith(_SECRET)]

    async def _accept(self, subprotocol: str | None, route: BackendRoute, send: Send) -> None:
        self._record.streamed = True
        headers = gateway_headers(self._http, route, CHOSEN, self._record.ledger)
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        start: Message = {"type": "http.response.start", "status": 101, "headers": fields, "subprotocol": subprotocol}
        await self._grant.with_headers(send)(start)

    async def _serve(self, call: PassedSocket, route: BackendRoute, send: Send) -> None:
        """Pass messages on until the session ends, then close both sides."""
        try:
            close = await self._exchange(call, route, send)
        except GatewayError as error:
            close = self._close_for(error)
            await _send(send, error.problem.body().replace(b"{", b'{"type":"error",', 1), text=True)
        close = close.sendable()
        await send({"type": "http.response.body", "body": b"", "code": close.code, "reason": close.reason})
        await call.end(close)

    def _close_for(self, error: GatewayError) -> Close:
        """Note a failure of the backend, or a refused message of the client; return the close of the session."""
        if isinstance(error, ClientError):
            self._record.problem = error.problem
            return Close(_REFUSED, error.problem.message)
        self._fail(error.problem)
        return Close(_TIMED_OUT if isinstance(error, UpstreamTimeout) else _FAILED, error.problem.message)

    async def _exchange(self, call: PassedSocket, route: BackendRoute, send: Send) -> Close:
        """Return the first close; raise GatewayError if the backend fails or a timeout passes."""
        clock, times = asyncio.get_running_loop().time, route.backend.timeouts
        self._active = clock()
        last = self._active + times.total
        async with _running(self._to_backend(call, route), self._to_client(call, send)) as pumps:
            done: set[asyncio.Future[Close]] = set()
            while not done:
                limit, now = min(self._active + times.idle, last), clock()
                if now >= limit:
                    raise UpstreamTimeout(_timeout_text(now >= last, times.idle, times.total))
                seconds = None if limit == inf else limit - now
                done, _ = await asyncio.wait({*pumps, self._ended}, timeout=seconds, return_when="FIRST_COMPLETED")
            return done.pop().result()

    async def _to_backend(self, call: PassedSocket, route: BackendRoute) -> Close:
        """Pass on the client's messages; return its close.

        Raise Forbidden for another model that the key excludes, and the errors of a key or a limit behind a response.
        """
        while True:
            message = await self._http.receive()
            if message["type"] == "http.disconnect":
                return Close(_LEFT)
            if not message["more_body"]:
                return Close(message["code"], message["reason"])
            self._active = asyncio.get_running_loop().time()
            if not self._is_settled:
                await self._admit_another()
            if self._targets.is_restricted:
                for model in await parse_body(session_models, message["body"]) - {
                    route.upstream_model,
                    self._body.model,
                }:
                    self._targets.require_model(model)
            await call.send(message["body"], text=message["text"])

    async def _admit_another(self) -> None:
        """Admit the next response as a request of its own: the session may outlive a key, and all limits."""
        self._is_settled = True
        await self._http.app.state.authenticator.authenticate(self._http, self._row.scope)
        await self._grant.renew()

    async def _to_client(self, call: PassedSocket, send: Send) -> Close:
        """Pass on the backend's messages; return its close."""
        while True:
            try:
                message = await call.receive()
            except ConnectionClosed as error:
                return call.close_of(error)
            self._active = asyncio.get_running_loop().time()
            self._record.pace.chunk_received(perf_counter(), True)
            data = message.encode() if isinstance(message, str) else message
            if isinstance(message, str) and _USAGE in data and (usage := usage_at_end(data[-TAIL:])):
                self._add_usage(usage)
            await _send(send, data, text=isinstance(message, str))

    def _add_usage(self, usage: Usage) -> None:
        """Add the tokens of a response: each response of the session states its own."""
        total, counted = self._record.usage() + usage, self._grant.used() if self._grant.used else 0
        self._is_settled = False
        self._record.usage = lambda: total
        self._grant.used = lambda: counted + usage.prompt + usage.completion


async def _send(send: Send, data: bytes, *, text: bool) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True, "text": text})


@asynccontextmanager
async def _running(*pumps: Any) -> AsyncIterator[set[asyncio.Task[Close]]]:  # noqa: ANN401 - coroutines
    """Run the pumps within the block."""
    tasks = {asyncio.create_task(one) for one in pumps}
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _timeout_text(is_total: bool, idle: float, total: float) -> str:
    if is_total:
        return f"The session was not closed after {total:g} s (timeouts.total)."
    return f"No message was sent in the session for {idle:g} s (timeouts.idle)."
