"""Handle one model request, as named steps.

Model requests go straight to their handler, all others to FastAPI's routes.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack
from functools import cached_property, partial
from math import inf
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.requests import Request as HttpRequest
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config import ApiKey, Config
from gateway.errors import GatewayError
from gateway.server.conversations.stored_context import Held, StoredContext
from gateway.server.http.memory import Room
from gateway.server.http.paths import corrected, roots
from gateway.server.http.request_reader import read_body
from gateway.server.jobs.job_manager import JobManager
from gateway.server.jobs.job_responses import JobResponder
from gateway.server.limits import RateLimiter, estimate_tokens
from gateway.server.middleware import error_responses, idempotency
from gateway.server.middleware.auth import Authenticator, require_model
from gateway.server.middleware.concurrency_limit import ConcurrencyLimit, overloaded_error
from gateway.server.observability.request_record import record_of
from gateway.server.observability.telemetry import Telemetry
from gateway.server.relay.model_request import ModelRequest, RequestParser, ResponseIdentity
from gateway.server.relay.responder import Responder, TokenCounting
from gateway.server.relay.retry_policy import RetryPolicy, affinity_key
from gateway.server.upstream.model_registry import ModelRegistry
from gateway.store.records import StoredJob

Read = Callable[[RequestParser, bytes, str, Held], Awaitable[ModelRequest]]
_FULL = error_responses.response_for(overloaded_error())


class IncomingRequest(Struct, frozen=True):
    """An incoming request: headers, body and API key."""

    http: HttpRequest
    raw: bytes
    key: ApiKey | None

    @property
    def tenant(self) -> str:
        return self.key.name if self.key else ""


class ModelRequestHandler:
    """counts: what one body may hold.

    joined: counts what has no request for as long as it is answered; raises Unavailable where that is too much.
    """

    def __init__(
        self,
        reader: RequestParser,
        directory: ModelRegistry,
        limits: RateLimiter,
        joined: Callable[..., AbstractContextManager[None]],
        telemetry: Telemetry,
    ) -> None:
        self._reader, self._directory, self._config, self._limits = reader, directory, reader.config, limits
        self.acquire_concurrency, self.telemetry, self.store, self.counts = (
            joined,
            telemetry,
            reader.store,
            reader.counts,
        )
        self.jobs = JobManager(reader.store, reader.config, self._rebuild_job_request, telemetry)

    async def answer(
        self, ask: IncomingRequest, read: Read, reply: type[Responder | TokenCounting], send: Send
    ) -> bool:
        """True if it came to a good end; raises a GatewayError for everything that has a status of its own."""
        seen = record_of(ask.http.scope)
        if seen.recorder:
            seen.recorder.record_request(ask.http.scope, ask.raw)
        async with Held() as held:
            question = await read(self._reader, ask.raw, ask.tenant, held)
            seen.ledger, seen.usage = question.ledger, question.usage
            try:
                ways = await self._resolve_targets(question, ask.key, faithful=reply is TokenCounting)
                seen.model = ways.served.model
                tokens = partial(estimate_tokens, question.request) if reply is Responder else int
                if grant := await self._limits.acquire(ask.key, ways.served.model, ways.served.settings, tokens):
                    grant.used, send = question.used_tokens, grant.with_headers(send)
                    await held.stack.enter_async_context(grant)
                if question.job_plan:
                    held.stack.callback(seen.retain())
                    if question.job_plan.background:
                        held.stack.enter_context(self.acquire_concurrency(beside=1))
                    job = await self.jobs.start(ask.http.scope, ask.raw, ask.tenant, (question, ways), held.stack)
                    if job:
                        seconds = self._config.stream.keepalive_seconds
                        accepted = JobResponder(job, self.store, seconds)
                        return await accepted.run(ask.http.scope, ask.http.receive, send)
                return await reply(ask.http, question, ways, self._config).run(send)
            except GatewayError as error:
                error.problem = question.localize_problem(error.problem)
                raise

    async def _resolve_targets(
        self, question: ModelRequest, key: ApiKey | None, *, faithful: bool = False
    ) -> RetryPolicy:
        name = question.request.model
        served = await self._directory.get(name)
        require_model(key, name, served.model)
        named = affinity_key(question.request, question.sticky, served)
        return RetryPolicy(served, key, named, faithful)

    async def _rebuild_job_request(
        self, job: StoredJob, named: ResponseIdentity, held: AsyncExitStack
    ) -> tuple[ModelRequest, RetryPolicy]:
        """The question of a job that has to be answered once more; raises as `answer` does."""
        state = StoredContext(self.store, job.tenant)
        key = next((key for key in self._config.auth.keys if key.name == job.tenant), None)
        question = await self._reader.response_in_context(state, job.request, Held(held), named)
        return question, await self._resolve_targets(question, key)


class GatewayApp(FastAPI):
    """asking: what answers a POST to these paths; the way through an application's layers costs as much as that."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - FastAPI's
        super().__init__(**settings)
        self.asking: dict[str, ASGIApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
            return
        asks = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self.asking.get(scope["path"]) if asks else None
        if not endpoint:
            scope = corrected(scope, self._roots)
            endpoint = self.asking.get(scope["path"]) if asks else None
        await (endpoint or super().__call__)(scope, receive, send)

    @cached_property
    def paths(self) -> list[str]:
        """Return the paths that are documented; there are no further ones once the application is made."""
        return [route.path_format for route in self.routes if isinstance(route, Route) and route.include_in_schema]

    @cached_property
    def _roots(self) -> frozenset[str]:
        return roots(self.paths)

    def answer_head(self) -> None:
        """Answer HEAD wherever there is an answer to GET; the server leaves out the body.

        The GET of a WebSocket's path has none but that it is one.
        """
        sockets = {route.path for route in self.routes if isinstance(route, WebSocketRoute)}
        for route in [*self.routes]:
            if isinstance(route, APIRoute) and "GET" in (route.methods or ()) and route.path not in sockets:
                self.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)


class ModelEndpoint:
    """POST a question to a model, as plain ASGI.

    concurrency: the concurrent requests; above the limit others are refused before anything of them is read.
    read: makes a question of a body, for a tenant; reply: what the client gets for it.
    """

    def __init__(
        self,
        app: GatewayApp,
        config: Config,
        door: Authenticator,
        concurrency: ConcurrencyLimit,
        read: Read,
        reply: type[Responder | TokenCounting],
    ) -> None:
        self._app, self._door, self._concurrency = app, door, concurrency
        self._read, self._reply, self._most = read, reply, config.limits.concurrent or inf
        self._most_bytes, self._memory = config.limits.body_bytes, config.limits.memory_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._concurrency.inside >= self._most:
            await _FULL(scope, receive, send)
            return
        self._concurrency.inside += 1
        try:
            request = Request(scope, receive, send)
            key = await self._door.authenticate(request)
            with Room(self._concurrency.buffers, self._memory) as room:
                ask = IncomingRequest(request, await read_body(request, self._most_bytes, room), key)
                asking, read, reply = self._asking, self._read, self._reply
                if again := idempotency.idempotency_key(request, ask.raw, asking.store, ask.tenant):
                    await idempotency.replay_or_run(again, partial(asking.answer, ask, read, reply), request, send)
                else:
                    await asking.answer(ask, read, reply, send)
        except GatewayError as error:
            record_of(scope).problem = error.problem
            await error_responses.response_for(error)(scope, receive, send)
        except ClientDisconnect:
            pass  # before its request was read: no client is left
        finally:
            self._concurrency.inside -= 1

    @cached_property
    def _asking(self) -> ModelRequestHandler:
        """There is one from the application's start on."""
        asking: ModelRequestHandler = self._app.state.asking
        return asking
