"""Create the application: its resources, middleware and routes."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial, reduce
from math import inf

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from gateway import __version__
from gateway.backends.pass_through import PASS_THROUGH
from gateway.config import Config, StoreSettings
from gateway.errors import StoreFailed
from gateway.server import routes
from gateway.server.admin.inspector import ReplayRunner
from gateway.server.admin.recording_files import RecordingFiles
from gateway.server.batches.batch_manager import BatchManager
from gateway.server.conversations.encryption import EncryptionKeys
from gateway.server.conversations.past_cache import PastCache
from gateway.server.fetch.stored_files import PastFileReader, StoredFileReader
from gateway.server.handler import GatewayApp, ModelEndpoint, ModelRequestHandler
from gateway.server.http.request_reader import counts_of
from gateway.server.http.uvicorn_protocol import STOPPING
from gateway.server.limits import ANTHROPIC_HEADERS, BUDGETS_HEADER, HEADERS, RateLimiter
from gateway.server.middleware import error_responses
from gateway.server.middleware.auth import Authenticator
from gateway.server.middleware.auth_throttle import AuthThrottle
from gateway.server.middleware.concurrency_limit import ConcurrencyLimit
from gateway.server.middleware.proxy_users import TrustedProxyMiddleware, peer_networks
from gateway.server.middleware.request_context import RequestContextMiddleware
from gateway.server.observability import logs
from gateway.server.observability.telemetry import Telemetry
from gateway.server.relay.pass_through import PassThroughEndpoint
from gateway.server.relay.request_parser import RequestParser
from gateway.server.relay.responder import Responder, TokenCounting
from gateway.server.routes import model_endpoints, pass_through
from gateway.server.routes.readiness import Readiness
from gateway.server.tools import ToolRegistry
from gateway.server.upstream.model_registry import ModelRegistry
from gateway.server.websocket.endpoint import add_websocket
from gateway.store import expiry
from gateway.store.database import Database
from gateway.store.file_store import FileStore

_log = logging.getLogger("gateway")
_DAY = 86_400
_EXPIRY_INTERVAL = 600.0  # seconds


def create_app(
    config: Config,
    concurrency: ConcurrencyLimit | None = None,
    throttle: AuthThrottle | None = None,
    telemetry: Telemetry | None = None,
) -> GatewayApp:
    """Return the application for this config; it makes no connection before the first request.

    concurrency: counts concurrent requests; throttle: delays clients with wrong keys; telemetry: of all requests.
    Each is created if None.
    """

    logs.apply_settings(config.logs)
    concurrency = concurrency or ConcurrencyLimit()
    app = GatewayApp(
        title="gateway",
        version=__version__,
        lifespan=partial(_living, config, concurrency),
        docs_url=None,
        redoc_url=None,
    )
    app.router.redirect_slashes = False  # a redirected client would send its key along
    authenticator = Authenticator(config, throttle or AuthThrottle())
    app.state.config, app.state.authenticator = config, authenticator
    app.state.keyring, app.state.leaving, app.state.buffers = EncryptionKeys(config.store), False, concurrency.buffers
    app.state.telemetry = telemetry or Telemetry()
    app.state.telemetry.follow(config)
    add_websocket(app, model_endpoints.RESPONSES_PATH, config, authenticator)
    app.state.passed = {
        row.path: PassThroughEndpoint(app, config, authenticator, concurrency, row) for row in PASS_THROUGH
    }
    routes.add_routes(app, config)
    pass_through.add_sockets(app)
    app.add_head_routes()
    error_responses.add_handlers(app)
    _add_layers(app, config, authenticator, concurrency)
    return app


@asynccontextmanager
async def _living(
    config: Config, concurrency: ConcurrencyLimit, app: FastAPI
) -> AsyncIterator[dict[str, Callable[[], None]]]:
    """Hold the resources of the application for its lifetime."""
    _make_resources(config, concurrency, app)
    state, telemetry = app.state, app.state.telemetry
    beside = [asyncio.create_task(expire_forever(state.store, state.files, config.store))]
    try:
        async with (
            telemetry.usage.writing_to(state.store if config.store.keeps_usage else None),
            telemetry.of(state.directory.backends, state.store.queue),
            state.directory.run_probes(),
            state.authenticator.following(state.store),
            state.handler.jobs.running() as state.stopping,
            state.batches.running(state.stopping),
        ):
            beside.append(asyncio.create_task(state.sockets.close_when(state.stopping)))
            yield {STOPPING: state.stopping.set}
    finally:
        for task in beside:
            task.cancel()
        await state.tool_registry.close()
        await state.directory.close()
        await state.limits.close()
        await state.store.close()
        await telemetry.flush()


async def expire_forever(
    database: Database, files: FileStore, settings: StoreSettings, seconds: float = _EXPIRY_INTERVAL
) -> None:
    """Delete stored data that is too old or too large every ten minutes, if a database exists.

    A gateway that stores nothing creates none.
    """
    while True:
        await asyncio.sleep(seconds)
        with logs.survive("the deletion of expired data"):
            try:
                if database.exists():
                    await expiry.expire(database, int(time.time()), settings.ttl_days * _DAY, settings.max_bytes)
                    await files.sweep()
            except StoreFailed as error:
                _log.warning("expired data could not be deleted: %s", error.reason)


def _make_resources(config: Config, concurrency: ConcurrencyLimit, app: FastAPI) -> None:
    """Add the store, the backends and what uses them to the state of the application."""
    state, telemetry = app.state, app.state.telemetry
    store = Database(config.store.url.get_secret_value(), telemetry.record_store_failure)
    directory, limits = ModelRegistry(config, telemetry.failed), RateLimiter(config, store)
    tools, files = ToolRegistry(config.tools), FileStore(store)
    stored = StoredFileReader(store, config, concurrency.buffers)
    # The reasoning memory looks up messages with their files as the client sent them.
    pasts = PastCache(None if config.responses.reasoning_memory else PastFileReader(stored, tools.pdfs).contents)
    parser = RequestParser(store, state.keyring, config, tools, counts_of(config), pasts, stored)
    joined = partial(concurrency.acquire, config.limits.concurrent or inf)
    state.store, state.files, state.tool_registry, state.stored_files = store, files, tools, stored
    state.directory, state.limits = directory, limits
    state.handler = ModelRequestHandler(parser, directory, limits, joined, telemetry, state.authenticator.job_owner)
    state.readiness = Readiness(config, directory.backends, store, limits)
    state.batches, state.replays = BatchManager(app, store, files, config), ReplayRunner()
    state.recording_files = RecordingFiles(config.recording.directory if config.inspector.recordings else None)


def _add_layers(app: GatewayApp, config: Config, authenticator: Authenticator, concurrency: ConcurrencyLimit) -> None:
    """Add the middleware before the routes and the model endpoints."""
    layers = [*_layers(app, config)]
    for layer in layers:
        app.add_middleware(layer)
    for path, endpoint in _endpoints(app, config, authenticator, concurrency).items():
        app.model_endpoints[path] = reduce(lambda inner, layer: layer(inner), layers, endpoint)


def _layers(app: GatewayApp, config: Config) -> Iterator[Callable[[ASGIApp], ASGIApp]]:
    """Yield the middleware from the innermost to the outermost."""
    yield partial(RequestContextMiddleware, telemetry=app.state.telemetry)
    if config.server.cors:
        yield partial(
            CORSMiddleware,
            allow_origins=config.server.cors,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=[
                "x-request-id",
                "request-id",
                "x-gateway-warnings",
                "idempotent-replayed",
                "retry-after",
                "x-should-retry",
                *HEADERS,
                *ANTHROPIC_HEADERS,
                BUDGETS_HEADER,
            ],
        )
    if proxies := [*peer_networks(config.server.forwarded_allow_ips)]:
        yield lambda inner: ProxyHeadersMiddleware(inner, proxies)  # type: ignore[arg-type,return-value,misc] # as uvicorn has it
        if config.auth.header:
            yield partial(TrustedProxyMiddleware, proxies=proxies)


def _endpoints(
    app: GatewayApp, config: Config, authenticator: Authenticator, concurrency: ConcurrencyLimit
) -> dict[str, ASGIApp]:
    """Return the endpoints that request a model, by their paths."""
    post = partial(ModelEndpoint, app, config, authenticator, concurrency)
    return {
        **{row.path: app.state.passed[row.path] for row in PASS_THROUGH if row.method == "POST"},
        model_endpoints.CHAT_PATH: post(RequestParser.chat_completion, Responder),
        model_endpoints.TEXT_PATH: post(RequestParser.completion, Responder),
        model_endpoints.RESPONSES_PATH: post(RequestParser.response, Responder),
        model_endpoints.COMPACT_PATH: post(RequestParser.compaction, Responder),
        model_endpoints.COUNT_PATH: post(RequestParser.token_count_request, TokenCounting),
        model_endpoints.MESSAGES_PATH: post(RequestParser.message, Responder),
        model_endpoints.MESSAGES_COUNT_PATH: post(RequestParser.message_token_count, TokenCounting),
    }
