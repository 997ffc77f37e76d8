"""Pass on the requests of an endpoint: authenticate, read up to the model, route and limit; a relay does the rest."""

from contextlib import AsyncExitStack, closing
from functools import partial
from math import inf

from fastapi import FastAPI
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.types import Receive, Scope, Send

from gateway.backends.pass_through import PassThroughRow
from gateway.config import ApiKey, Config
from gateway.errors import GatewayError
from gateway.server.http.memory import Room
from gateway.server.http.request_reader import counts_of, get_header, read_body
from gateway.server.http.upload import ClientUpload
from gateway.server.limits import RateLimiter, RateLimitPermit
from gateway.server.middleware import error_responses
from gateway.server.middleware.auth import Authenticator, may_use_model, require_model
from gateway.server.middleware.concurrency_limit import ConcurrencyLimit
from gateway.server.observability.request_record import record_of
from gateway.server.relay.passed_body import JsonBody, MultipartBody, PassedBody, QueryModel
from gateway.server.relay.passed_relay import PassThroughRelay
from gateway.server.relay.retry_policy import RetryPolicy
from gateway.server.upstream.model_registry import ModelRegistry
from gateway.server.worker_thread import parse_body


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
                targets = await self._route(http, key, body)
                grant = await held.enter_async_context(await self._limit(key, targets, body))
                await self._relay_class()(http, self._row, body, targets, grant).run(send)
        except GatewayError as error:
            record_of(scope).problem = error.problem
            await error_responses.response_for(error, scope)(scope, receive, send)
        except ClientDisconnect:
            pass  # no client is left

    def _relay_class(self) -> type[PassThroughRelay]:
        if not self._row.websocket:
            return PassThroughRelay
        from gateway.server.relay.passed_session import PassedSession  # noqa: PLC0415 - 0.7 MB, 15 ms

        return PassedSession

    async def _body(self, http: HttpRequest, held: AsyncExitStack) -> PassedBody:
        """Return the request, read at least up to the model's name.  held: holds its memory."""
        limits = self._config.limits
        if self._row.place == "query":
            return QueryModel(http, uses_tokens=self._row.websocket)
        if self._row.place == "json" or (self._row.place == "multipart or json" and _is_json(http)):
            room = held.enter_context(Room(self._concurrency.buffers, limits.memory_bytes))
            raw = await read_body(http, limits.body_bytes, room)
            return await parse_body(JsonBody, raw, counts_of(self._config))
        upload = held.enter_context(closing(ClientUpload(http, limits.upload_bytes)))
        return MultipartBody(upload, await upload.read_model())

    async def _route(self, http: HttpRequest, key: ApiKey | None, body: PassedBody) -> RetryPolicy:
        """Return the targets; raise NotFound, or Forbidden for a model that the key excludes."""
        directory: ModelRegistry = self._app.state.directory
        served = await directory.get(body.model, partial(may_use_model, key))
        record_of(http.scope).model = served.model
        require_model(key, body.model, served.model, body.other_models)
        return RetryPolicy(served, key, faithful=self._row.faithful)

    async def _limit(self, key: ApiKey | None, targets: RetryPolicy, body: PassedBody) -> RateLimitPermit:
        """Count the request against its limits; raise RateLimited."""
        limits: RateLimiter = self._app.state.limits
        served = targets.served
        return await limits.acquire(key, served.model, served.settings, body.estimated_tokens)


def _is_json(http: HttpRequest) -> bool:
    return (get_header(http.scope, b"content-type") or "").lower().startswith("application/json")
