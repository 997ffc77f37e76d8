"""Handle one model request in named steps: authenticate, read, parse, route, limit, respond.

Model requests go straight to their endpoint, all others to FastAPI's routes.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack
from copy import copy
from functools import cached_property, partial
from math import inf
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from msgspec import Struct
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api.named_models import models_in_fields
from gateway.config import ApiKey, Config
from gateway.errors import GatewayError
from gateway.server.conversations.stored_context import StoredContext
from gateway.server.http.client_connection import scope_without_connection
from gateway.server.http.memory import Room
from gateway.server.http.paths import corrected, roots
from gateway.server.http.request_reader import arrived_body, header_dict, read_body
from gateway.server.jobs.job_manager import JobManager
from gateway.server.jobs.job_responses import JobResponder
from gateway.server.limits import RateLimiter, estimate_tokens, with_anthropic_headers
from gateway.server.middleware import error_responses, idempotency
from gateway.server.middleware.auth import BATCH_TENANT, Authenticator, may_use_model, require_model
from gateway.server.middleware.concurrency_limit import ConcurrencyLimit, overloaded_error
from gateway.server.observability.request_record import record_of
from gateway.server.observability.telemetry import Telemetry
from gateway.server.relay.model_request import ModelRequest
from gateway.server.relay.request_parser import RequestParser
from gateway.server.relay.responder import Responder, TokenCounting
from gateway.server.relay.responses_request import ResponseIdentity, ResponsesRequest
from gateway.server.relay.retry_policy import RetryPolicy, affinity_key
from gateway.server.upstream.model_registry import ModelRegistry
from gateway.store.records import StoredJob

_SESSION = b"x-claude-code-session-id"
ParseRequest = Callable[[RequestParser, bytes, str, AsyncExitStack], Awaitable[ModelRequest]]


class IncomingRequest(Struct, frozen=True):
    """The request of a client: headers, body and API key."""

    http: HttpRequest
    raw: bytes
    key: ApiKey | None

    @property
    def tenant(self) -> str:
        """The name of the API key; "" without one."""
        return self.key.name if self.key else ""

    @property
    def session(self) -> str | None:
        """The session of Claude Code that the request belongs to; None for another client."""
        named = header_dict(self.http.scope).get(_SESSION)
        return named.decode("latin-1") if named else None


class ModelRequestHandler:
    """Handle requests for a model, each in the same steps: parse, route, limit, then respond.

    acquire_concurrency: counts work that no open request stands for; it raises UpstreamUnavailable at the limit.
    job_owner: returns the key of a job that is repeated; it raises Unauthorized if the key is no longer valid.
    """

    def __init__(
        self,
        parser: RequestParser,
        models: ModelRegistry,
        limits: RateLimiter,
        acquire_concurrency: Callable[..., AbstractContextManager[None]],
        telemetry: Telemetry,
        job_owner: Callable[[str], Awaitable[ApiKey | None]],
    ) -> None:
        self._job_owner = job_owner
        self._parser, self._models, self._limits, self._config = parser, models, limits, parser.config
        self.acquire_concurrency, self.telemetry = acquire_concurrency, telemetry
        self.store, self.counts = parser.store, parser.counts
        self.jobs = JobManager(parser.store, parser.config, self._rebuild_job_request, telemetry)

    async def handle(
        self, incoming: IncomingRequest, parse: ParseRequest, responder: type[Responder | TokenCounting], send: Send
    ) -> bool:
        """Respond; return True at a good end.  Raise a GatewayError for all that has a status of its own."""
        record = record_of(incoming.http.scope)
        if record.recorder:
            record.recorder.record_request(incoming.http.scope, incoming.raw)
        async with AsyncExitStack() as held:
            request = await parse(self._parser, incoming.raw, incoming.tenant, held)
            if request.keeps_headers:
                request.keep_headers(incoming.http.headers)
            record.ledger, record.usage, request.request_id = request.ledger, request.usage, record.id
            request.sticky = request.sticky or incoming.session
            try:
                counts, spare = responder is TokenCounting, BATCH_TENANT in incoming.http.scope
                targets = await self._route(request, incoming.key, faithful=counts, spare=spare)
                record.model = targets.served.model
                limited = targets.served.is_limited or incoming.key
                if limited and self._limits.apply_to(incoming.key, targets.served.model, targets.served.settings):
                    send = await self._limit(request, targets, incoming, held, send, counts=counts)
                if request.request.may_name_files:
                    await self._read_files(request, incoming.tenant, held)
                if request.can_outlive_client and isinstance(request, ResponsesRequest):
                    job = await self._start_job(request, targets, incoming, held)
                    if job:
                        return await job.run(incoming.http.scope, incoming.http.receive, send)
                return await responder(incoming.http, request, targets, self._config).run(send)
            except GatewayError as error:
                error.problem = request.localizer()(error.problem)
                raise

    async def _read_files(self, request: ModelRequest, tenant: str, held: AsyncExitStack) -> None:
        """Put the stored files that a request names into its messages.  Raise BadRequest for too much content."""
        files = self._parser.files
        request.room = files.room_for_urls(request.request, held)
        request.request = await files.inline(request.request, tenant, request.ledger, held)

    async def _route(
        self, request: ModelRequest, key: ApiKey | None, *, faithful: bool = False, spare: bool = False
    ) -> RetryPolicy:
        """Return the targets of a request.  Raise NotFound, or PermissionDenied for a model that the key excludes.

        faithful: no fallback model will do; spare: only slots that other requests leave free.
        """
        name = request.request.model
        served = await self._models.get(name, lambda text, model: may_use_model(key, text, model))
        if key and key.models is not None:
            request.keep_to_models((name, *key.models))
            require_model(key, name, served.model, models_in_fields(request.request.fields))
        return RetryPolicy(served, key, affinity_key(request.request, request.sticky, served), faithful, spare)

    async def _limit(
        self,
        request: ModelRequest,
        targets: RetryPolicy,
        incoming: IncomingRequest,
        held: AsyncExitStack,
        send: Send,
        *,
        counts: bool,
    ) -> Send:
        """Count the request against its limits; return a `send` that adds their headers.  Raise RateLimited.

        counts: the request only counts its tokens.
        """
        estimate = int if counts else partial(estimate_tokens, request.request)
        grant = await self._limits.acquire(incoming.key, targets.served.model, targets.served.settings, estimate)
        grant.used = request.used_tokens
        if error_responses.is_messages_api(incoming.http.scope):
            grant.headers = with_anthropic_headers(grant.headers)
        await held.enter_async_context(grant)
        return grant.with_headers(send)

    async def _start_job(
        self, request: ResponsesRequest, targets: RetryPolicy, incoming: IncomingRequest, held: AsyncExitStack
    ) -> JobResponder | None:
        """Start the job of a response that may outlive its client; None if the client has to wait for the response."""
        held.callback(record_of(incoming.http.scope).retain())
        if request.params.background:
            held.enter_context(self.acquire_concurrency(already_counted=1))
        scope = scope_without_connection(incoming.http.scope)  # the job is its own client
        job = await self.jobs.start(scope, incoming.raw, incoming.tenant, (request, targets), held)
        return JobResponder(job, self.store, self._config.stream.keepalive_seconds) if job else None

    async def _rebuild_job_request(
        self, job: StoredJob, identity: ResponseIdentity, held: AsyncExitStack
    ) -> tuple[ResponsesRequest, RetryPolicy]:
        """Return the request of a job that is repeated, and its targets; raise as `handle` does."""
        stored = StoredContext(self.store, job.tenant, self._parser.pasts)
        key = await self._job_owner(job.tenant)
        request = await self._parser.response_in_context(stored, job.request, held, identity)
        await self._read_files(request, job.tenant, held)
        return request, await self._route(request, key)


class GatewayApp(FastAPI):
    """FastAPI, with a direct way to the model endpoints.

    The layers of the framework cost a third of a whole response (docs/decisions/004-model-requests-bypass-fastapi.md).
    model_endpoints: for POST, by path.
    """

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - FastAPI's
        super().__init__(**settings)
        self.model_endpoints: dict[str, ASGIApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
            return
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self.model_endpoints.get(scope["path"]) if is_post else None
        if not endpoint:
            scope = corrected(scope, self._roots)
            endpoint = self.model_endpoints.get(scope["path"]) if is_post else None
        await (endpoint or super().__call__)(scope, receive, send)

    @cached_property
    def paths(self) -> list[str]:
        """The documented paths, once all routes are added."""
        return [route.path_format for route in self.routes if isinstance(route, Route) and route.include_in_schema]

    @cached_property
    def _roots(self) -> frozenset[str]:
        return roots(self.paths)

    def add_head_routes(self) -> None:
        """Add HEAD to each GET route but the path of the WebSocket; the server leaves out the body."""
        sockets = {route.path for route in self.routes if isinstance(route, WebSocketRoute)}
        for route in [*self.routes]:
            if isinstance(route, APIRoute) and "GET" in (route.methods or ()) and route.path not in sockets:
                head = copy(route)  # FastAPI would examine the endpoint again, which is half of the time
                head.methods, head.include_in_schema = {"HEAD"}, False
                self.router.routes.append(head)


class ModelEndpoint:
    """Serve POST requests for a model, as plain ASGI.

    concurrency: at its limit a request is refused before any of it is read.
    parse: makes a model request of a body, for a tenant; responder: sends the response.
    """

    def __init__(
        self,
        app: GatewayApp,
        config: Config,
        authenticator: Authenticator,
        concurrency: ConcurrencyLimit,
        parse: ParseRequest,
        responder: type[Responder | TokenCounting],
    ) -> None:
        self._app, self._authenticator, self._concurrency = app, authenticator, concurrency
        self._parse, self._responder, self._max_concurrent = parse, responder, config.limits.concurrent or inf
        self._max_body, self._max_memory = config.limits.body_bytes, config.limits.memory_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._concurrency.in_progress >= self._max_concurrent:
            await error_responses.response_for(overloaded_error(), scope)(scope, receive, send)
            return
        self._concurrency.in_progress += 1
        try:
            http = HttpRequest(scope, receive, send)
            key = await self._authenticator.authenticate(http)
            if (small := arrived_body(http, self._max_body)) is not None:
                await self._handle_once(IncomingRequest(http, small, key), send)
                return
            with Room(self._concurrency.buffers, self._max_memory) as room:
                incoming = IncomingRequest(http, await read_body(http, self._max_body, room), key)
                await self._handle_once(incoming, send)
        except GatewayError as error:
            record_of(scope).problem = error.problem
            await error_responses.response_for(error, scope)(scope, receive, send)
        except ClientDisconnect:
            pass  # before its request was read: no client is left
        finally:
            self._concurrency.in_progress -= 1

    def _handle_once(self, incoming: IncomingRequest, send: Send) -> Awaitable[object]:
        """Handle a request; one with an idempotency key runs once, and each repeat gets the same response."""
        handler, parse, responder = self._handler, self._parse, self._responder
        if not header_dict(incoming.http.scope).get(idempotency.HEADER):
            return handler.handle(incoming, parse, responder, send)
        key = idempotency.idempotency_key(incoming.http, incoming.raw, handler.store, incoming.tenant)
        return idempotency.replay_or_run(key, partial(handler.handle, incoming, parse, responder), incoming.http, send)

    @cached_property
    def _handler(self) -> ModelRequestHandler:
        """The handler, which exists from the application's start on."""
        handler: ModelRequestHandler = self._app.state.handler
        return handler
