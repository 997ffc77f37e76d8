"""/v1/embeddings: one request of the model's backend."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from gateway.config import Config
from gateway.server import openapi
from gateway.server.auth import Authenticator
from gateway.server.service import ServiceEndpoint
from gateway.services import embeddings


def add(app: FastAPI, config: Config, door: Authenticator) -> None:
    service = ServiceEndpoint(app, config, door, embeddings.parse_embeddings)

    @app.post("/v1/embeddings", openapi_extra=openapi.EMBEDDINGS)
    async def create_embeddings(request: Request) -> Response:
        """The vectors of texts."""
        return await service.answer(request)
