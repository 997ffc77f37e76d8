"""/v1/tokenize and /v1/detokenize: one request of the model's backend each."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from gateway.config import Config
from gateway.server import openapi
from gateway.server.auth import Authenticator
from gateway.server.service import ServiceEndpoint
from gateway.services import tokens


def add(app: FastAPI, config: Config, door: Authenticator) -> None:
    encoding = ServiceEndpoint(app, config, door, tokens.parse_tokenize)
    decoding = ServiceEndpoint(app, config, door, tokens.parse_detokenize)

    @app.post("/v1/tokenize", openapi_extra=openapi.TOKENIZE)
    async def tokenize(request: Request) -> Response:
        """The tokens of a text."""
        return await encoding.answer(request)

    @app.post("/v1/detokenize", openapi_extra=openapi.DETOKENIZE)
    async def detokenize(request: Request) -> Response:
        """The text of tokens."""
        return await decoding.answer(request)
