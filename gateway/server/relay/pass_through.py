"""Pass on the requests of an endpoint: authenticate, read up to the model, route, limit, and stream the response."""

import asyncio
import logging
from contextlib import AsyncExitStack, closing
from functools import partial
from math import inf

from fastapi import FastAPI
from msgspec.structs import replace
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.types import Receive, Scope, Send

from gateway.backends.openai.usage import usage_at_end
from gateway.backends.pass_through import PassThroughRow
from gateway.config import ApiKey, Config
from gateway.errors import BadRequest, GatewayError, Problem
from gateway.formats.selection import FormatChoice
from gateway.server.http.client_connection import client_connection
from gateway.server.http.disconnect import CancelOnDisconnect
from gateway.server.http.memory import Room
from gateway.server.http.request_reader import counts_of, get_header, read_body
from gateway.server.http.upload import ClientUpload
from gateway.server.limits import RateLimiter, RateLimitPermit
from gateway.server.middleware import error_responses
from gateway.server.middleware.auth import Authenticator, may_use_model, require_model
from gateway.server.middleware.concurrency_limit import ConcurrencyLimit
from gateway.server.observability.request_record import record_of
from gateway.server.observability.request_recorder import tee_lengths
from gateway.server.relay import response_headers
from gateway.server.relay.passed_body import JsonBody, MultipartBody, PassedBody, QueryModel, accept_header
from gateway.server.relay.retry_policy import RetryPolicy
from gateway.server.upstream.model_registry import BackendRoute, ModelRegistry
from gateway.server.upstream.passed_call import PassedCall
from gateway.server.worker_thread import parsed

_log = logging.getLogger("gateway")
_CHOSEN = FormatChoice("native", "the response is passed on")
_TAIL = 64 << 10  # bytes at the end of a response in which its usage may stand
_EVENTS, _LINES = "text/event-stream", "application/x-ndjson"
_TEXTS = ("application/json", _LINES, "text/")  # beginnings of types that a recording has in full


class PassThroughEndpoint:
    """Serve the requests of one row, as plain ASGI."""

    def __init__(
        self,
        app: FastAPI,
        config: Config,
        authenticator: Authenticator,
        concurrency: ConcurrencyLimit,
        row: PassThroughRow,
    ) -> None:
        self._app, self._config, self._authenticator = app, config, authenticator
        self._concurrency, self._row = concurrency, row

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = HttpRequest(scope, receive, send)
        try:
            async with AsyncExitStack() as held:
                held.enter_context(self._concurrency.acquire(self._config.limits.concurrent or inf))
                key = await self._authenticator.authenticate(http, self._row.scope)
                body = await self._body(http, held)
                if recorder := record_of(scope).recorder:
                    recorder.record_request(scope, body.recorded)
                targets = await self._route(http, key, body.model)
                grant = await held.enter_async_context(await self._limit(key, targets, body))
                await PassThroughRelay(http, self._row, body, targets, grant).run(send)
        except GatewayError as error:
            record_of(scope).problem = error.problem
            await error_responses.response_for(error, scope)(scope, receive, send)
        except ClientDisconnect:
            pass  # no client is left

    async def _body(self, http: HttpRequest, held: AsyncExitStack) -> PassedBody:
        """Return the request, read at least up to the model's name.  held: holds its memory."""
        limits = self._config.limits
        if self._row.place == "query":
            return QueryModel(http)
        if self._row.place == "json" or (self._row.place == "multipart or json" and _is_json(http)):
            room = held.enter_context(Room(self._concurrency.buffers, limits.memory_bytes))
            raw = await read_body(http, limits.body_bytes, room)
            return await parsed(JsonBody, raw, counts_of(self._config))
        upload = held.enter_context(closing(ClientUpload(http, limits.upload_bytes)))
        return MultipartBody(upload, await upload.read_model())

    async def _route(self, http: HttpRequest, key: ApiKey | None, model: str) -> RetryPolicy:
        """Return the targets; raise NotFound, or Forbidden for a model that the key excludes."""
        directory: ModelRegistry = self._app.state.directory
        served = await directory.get(model, partial(may_use_model, key))
        record_of(http.scope).model = served.model
        require_model(key, model, served.model)
        return RetryPolicy(served, key, faithful=self._row.faithful)

    async def _limit(self, key: ApiKey | None, targets: RetryPolicy, body: PassedBody) -> RateLimitPermit:
        """Count the request against its limits; raise RateLimited."""
        limits: RateLimiter = self._app.state.limits
        served = targets.served
        return await limits.acquire(key, served.model, served.settings, body.estimated_tokens) or RateLimitPermit()


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
        target = self._targets.first()
        while True:
            await asyncio.sleep(target.pause)
            try:
                await self._attempt(target.route, send)
                return
            except GatewayError as error:
                another = self._body.is_repeatable and self._targets.next(error.problem, error.retry_after)
                if not another:
                    raise
                target = another

    async def _attempt(self, route: BackendRoute, send: Send) -> None:
        """Send the response of one backend; raise GatewayError if it begins none."""
        endpoint, record = self._row.kinds.get(route.backend.settings.kind), self._record
        if not endpoint:
            raise _unsupported(route, self._row)
        record.set_route(route.model, route.backend.name, "")
        if record.trace:
            record.trace.model = route.upstream_model
        request = await self._body.request(endpoint, route.upstream_model)
        request = replace(request, headers={**request.headers, **accept_header(self._http)})
        with closing(PassedCall(route.backend, request, self._answered, self._targets.identity, record)) as call:
            await call.upload()
            with CancelOnDisconnect(self._http.scope, self._http.receive):
                await call.ready()
                first = call.read()
                call.report_outcome(None)
                await self._begin(call, route, send)
                await self._stream(call, first, send)

    def _answered(self, content_type: str) -> None:
        self._type = content_type

    async def _begin(self, call: PassedCall, route: BackendRoute, send: Send) -> None:
        """Send the headers."""
        headers = {
            "content-type": self._type or "application/octet-stream",
            **({} if self._ending_for(b"") else call.response_headers),
            **response_headers.gateway_headers(self._http, route, _CHOSEN, self._record.ledger),
        }
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self._record.streamed = bool(self._ending_for(b""))
        await self._grant.with_headers(send)({"type": "http.response.start", "status": 200, "headers": fields})

    async def _stream(self, call: PassedCall, data: bytes, send: Send) -> None:
        """Send the body; a failure of the backend ends it."""
        is_text, tail = self._type.startswith(_TEXTS), b""
        send = send if is_text else tee_lengths(send)
        while data:
            self._record.pace.chunk_received(begun=True)
            tail = (tail + data)[-_TAIL:] if is_text else b""
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
            self._record.usage = lambda: usage
            self._grant.used = lambda: usage.prompt + usage.completion

    async def _break_off(self, problem: Problem, send: Send) -> None:
        """End the response with the problem where its type allows that; else close the client's connection."""
        self._record.problem = problem
        id, backend = self._record.id, self._record.backend
        _log.warning("backend %s: %s", backend, problem.code, extra={"request_id": id})
        if end := self._ending_for(problem.body()):
            await send({"type": "http.response.body", "body": end, "more_body": False})
        else:
            client_connection(self._http.scope).cut()

    def _ending_for(self, error: bytes) -> bytes:
        """Return the last piece of a stream that reports an error; b"" if the response is no stream."""
        if self._type.startswith(_EVENTS):
            return b"\n\nevent: error\ndata: " + error + b"\n\n"
        return b"\n" + error + b"\n" if self._type.startswith(_LINES) else b""


def _is_json(http: HttpRequest) -> bool:
    return (get_header(http.scope, b"content-type") or "").lower().startswith("application/json")


def _unsupported(route: BackendRoute, row: PassThroughRow) -> BadRequest:
    kind, name = route.backend.settings.kind, route.backend.name
    message = (
        f"The model '{route.model}' has no {row.path}: its backend '{name}' is of the kind '{kind}'. "
        f"Name a model of a backend of one of these kinds: {', '.join(row.kinds)}."
    )
    return BadRequest(message, code="unsupported_value", param="model")
