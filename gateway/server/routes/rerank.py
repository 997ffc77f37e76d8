"""/v1/rerank: one request of the model's backend."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from gateway.config import Config
from gateway.server import openapi
from gateway.server.auth import Authenticator
from gateway.server.service import ServiceEndpoint
from gateway.services import rerank


def add(app: FastAPI, config: Config, door: Authenticator) -> None:
    service = ServiceEndpoint(app, config, door, rerank.parse_rerank)

    @app.post("/v1/rerank", openapi_extra=openapi.RERANK)
    async def rank_documents(request: Request) -> Response:
        """Documents by how much they have to do with a query."""
        return await service.answer(request)
