"""Serve the routes that request no generation: one module per resource."""

from fastapi import FastAPI

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

# Of two routes for a path, the first one counts.
_RESOURCES = (
    model_endpoints,
    models,
    responses,
    conversations,
    chat_completions,
    files,
    uploads,
    batches,
    embeddings,
    model_services,
    health,
    metrics,
    admin,
    audit_log,
    usage,
    pass_through,
)


def add_routes(app: FastAPI, config: Config) -> None:
    """Add the routes of all resources; the routes themselves are the same ones in each application.

    FastAPI's `include_router` would examine each endpoint again, for 10 ms in all.
    """
    routers = [resource.router for resource in _RESOURCES]
    routers += [admin.inspector_router] if config.inspector.enabled else []
    routers += [keys.router] if config.auth.stored_keys else []
    for router in routers:
        app.router.routes.extend(router.routes)
