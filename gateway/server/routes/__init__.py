"""Serve the routes that request no generation: one module per resource."""

from collections.abc import Iterator

from fastapi import APIRouter, FastAPI

from gateway.config import Config
from gateway.server.admin import keys, usage
from gateway.server.admin import routes as admin
from gateway.server.routes import (
    audit_log,
    batches,
    chat_completions,
    conversations,
    embeddings,
    files,
    health,
    metrics,
    model_endpoints,
    model_services,
    models,
    pass_through,
    responses,
    uploads,
)


def add_routes(app: FastAPI, config: Config) -> None:
    """Add the routes of all resources; the routes themselves are the same ones in each application.

    FastAPI's `include_router` would examine each endpoint again, for 10 ms in all.
    """
    for router in _routers(config):
        app.router.routes.extend(router.routes)


def _routers(config: Config) -> Iterator[APIRouter]:
    """Yield the routers of this configuration; of two routes for a path, the first one counts."""
    yield model_endpoints.router
    yield models.router
    yield responses.router
    yield conversations.router
    yield chat_completions.router
    yield files.router
    yield uploads.router
    yield batches.router
    yield embeddings.router
    yield model_services.router
    yield health.router
    yield metrics.router
    yield admin.router
    if config.inspector.enabled:
        yield admin.inspector_router
    yield audit_log.router
    if config.auth.stored_keys:
        yield keys.router
    yield usage.router
    yield pass_through.router
