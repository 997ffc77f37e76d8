"""Serve the routes that ask no model: one module per resource."""

from fastapi import FastAPI

from gateway.config import Config
from gateway.server.auth import Authenticator
from gateway.server.routes import (
    completions,
    console,
    conversations,
    embeddings,
    health,
    inspector,
    metrics,
    models,
    rerank,
    responses,
    tokenize,
)

_RESOURCES = (
    models, responses, conversations, completions, embeddings, rerank, tokenize, health, metrics, console, inspector,
)  # fmt: skip


def add_routes(app: FastAPI, config: Config, door: Authenticator) -> None:
    for resource in _RESOURCES:
        resource.add(app, config, door)
