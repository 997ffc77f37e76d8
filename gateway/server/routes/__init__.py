"""Serve the routes that request no generation: one module per resource."""

from fastapi import FastAPI

from gateway.config import Config
from gateway.server.admin import keys, usage
from gateway.server.admin import routes as admin
from gateway.server.middleware.auth import Authenticator
from gateway.server.routes import (
    audit_log,
    batches,
    chat_completions,
    conversations,
    embeddings,
    files,
    health,
    metrics,
    model_services,
    models,
    responses,
    uploads,
)

_RESOURCES = (
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
    keys,
    usage,
)


def add_routes(app: FastAPI, config: Config, authenticator: Authenticator) -> None:
    """Add the routes of all resources."""
    for resource in _RESOURCES:
        resource.add(app, config, authenticator)
