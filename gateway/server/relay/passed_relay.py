"""Relay one request that is passed on: try one backend after another, and stream the response of the first."""

import asyncio
import logging
from contextlib import closing
from time import perf_counter

from msgspec.structs import replace
from starlette.requests import Request as HttpRequest
from starlette.types import Send

from gateway.backends.kind_row import KindEndpoint
from gateway.backends.openai.usage import usage_at_end
from gateway.backends.pass_through import PassThroughRow
from gateway.errors import BadRequest, GatewayError, Problem
from gateway.events import Usage
from gateway.formats.selection import FormatChoice
from gateway.server.http.client_connection import CancelOnDisconnect, client_connection
from gateway.server.limits import RateLimitPermit
from gateway.server.observability.request_record import record_of
from gateway.server.observability.request_recorder import tee_lengths
from gateway.server.relay.passed_body import PassedBody, accept_header
from gateway.server.relay.retry_policy import RetryPolicy, Target
from gateway.server.relay.rounds import gateway_headers
from gateway.server.upstream.model_registry import BackendRoute
from gateway.server.upstream.passed_call import PassedCall

_log = logging.getLogger("gateway")
CHOSEN = FormatChoice("native", "the response is passed on")
TAIL = 64 << 10  # bytes at the end of a response in which its usage may stand
_EVENTS, _LINES = "text/event-stream", "application/x-ndjson"
# A browser runs no page of a backend as one of the gateway's own, whose admin requests it could send.
_NO_PAGE = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox"}
_TEXTS = ("application/json", _LINES, "text/")  # beginnings of types that a recording has in full


class PassThroughRelay:
    """Relay one request to the first backend that begins a response."""

    def __init__(
        self, http: HttpRequest, row: PassThroughRow, body: PassedBody, targets: RetryPolicy, grant: RateLimitPermit
    ) -> None:
        self._http, self._row, self._body = http, row, body
        self._targets, self._grant, self._record = targets, grant, record_of(http.scope)
        self._type = ""  # of the response

    async def run(self, send: Send) -> None:
        """Send the response.  Raise GatewayError if no backend begins one, and ClientDisconnect."""
        first = self._targets.first()
        target = self._with_endpoint(first) or first
        while True:
            await asyncio.sleep(target.pause)
            try:
                await self._attempt(target.route, send)
                return
            except GatewayError as error:
                another = self._targets.next(error.problem, error.retry_after) if self._body.is_repeatable else None
                another = self._with_endpoint(another)
                if not another:
                    raise
                target = another

    def _with_endpoint(self, target: Target | None) -> Target | None:
        """Return the target, or the first further one whose backend has the endpoint; None without one."""
        while target and target.route.backend.settings.kind not in self._row.kinds:
            target = self._targets.skip()
        return target

    async def _attempt(self, route: BackendRoute, send: Send) -> None:
        """Send the response of one backend; raise GatewayError if it begins none."""
        endpoint, record = self._choose(route), self._record
        request = await self._body.request(endpoint, route.upstream_model)
        request = replace(request, headers={**request.headers, **accept_header(self._http)})
        with closing(
            PassedCall(route.backend, request, self._set_content_type, self._targets.identity, record)
        ) as call:
            await call.upload()
            with CancelOnDisconnect(self._http.scope, self._http.receive):
                await call.ready()
                first = call.read()
                call.report_outcome(None)
                await self._begin(call, route, send)
                await self._stream(call, first, send)

    def _choose(self, route: BackendRoute) -> KindEndpoint:
        """Note the route of an attempt; return the endpoint of its backend, or raise BadRequest if that has none."""
        endpoint, record = self._row.kinds.get(route.backend.settings.kind), self._record
        if not endpoint:
            raise _unsupported(route, self._row)
        record.set_route(route.model, route.backend.name, "")
        if record.trace:
            record.trace.model = route.upstream_model
        return endpoint

    def _set_content_type(self, content_type: str) -> None:
        self._type = content_type

    async def _begin(self, call: PassedCall, route: BackendRoute, send: Send) -> None:
        """Send the headers."""
        headers = {
            "content-type": self._type or "application/octet-stream",
            **_NO_PAGE,
            **({} if self._ending_for(b"") else call.response_headers),
            **gateway_headers(self._http, route, CHOSEN, self._record.ledger),
        }
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self._record.streamed = bool(self._ending_for(b""))
        await self._grant.with_headers(send)({"type": "http.response.start", "status": 200, "headers": fields})

    async def _stream(self, call: PassedCall, data: bytes, send: Send) -> None:
        """Send the body; a failure of the backend ends it."""
        is_text, tail = self._type.startswith(_TEXTS), b""
        send = send if is_text else tee_lengths(send)
        while data:
            self._record.pace.chunk_received(perf_counter(), True)
            tail = (tail + data)[-TAIL:] if is_text else b""
            await send({"type": "http.response.body", "body": data, "more_body": True})
            try:
                await call.ready()
                data = call.read()
            except GatewayError as error:
                await self._break_off(error.problem, send)
                return
        self._count(tail)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _count(self, tail: bytes) -> None:
        """Note the tokens that the end of the response states."""
        if usage := usage_at_end(tail):
            self._used(usage)

    def _used(self, usage: Usage) -> None:
        """Note the tokens of the request."""
        self._record.usage = lambda: usage
        self._grant.used = lambda: usage.prompt + usage.completion

    async def _break_off(self, problem: Problem, send: Send) -> None:
        """End the response with the problem where its type allows that; else close the client's connection."""
        self._fail(problem)
        if end := self._ending_for(problem.body()):
            await send({"type": "http.response.body", "body": end, "more_body": False})
        else:
            client_connection(self._http.scope).cut()

    def _fail(self, problem: Problem) -> None:
        """Note and log a failure after the beginning of the response."""
        self._record.problem = problem
        _log.warning("backend %s: %s", self._record.backend, problem.code, extra={"request_id": self._record.id})

    def _ending_for(self, error: bytes) -> bytes:
        """Return the last piece of a stream that reports an error; b"" if the response is no stream."""
        if self._type.startswith(_EVENTS):
            return b"\n\nevent: error\ndata: " + error + b"\n\n"
        return b"\n" + error + b"\n" if self._type.startswith(_LINES) else b""


def _unsupported(route: BackendRoute, row: PassThroughRow) -> BadRequest:
    kind, name = route.backend.settings.kind, route.backend.name
    message = (
        f"The model '{route.model}' has no {row.path}: its backend '{name}' is of the kind '{kind}'. "
        f"Name a model of a backend of one of these kinds: {', '.join(row.kinds)}."
    )
    return BadRequest(message, code="unsupported_value", param="model")
