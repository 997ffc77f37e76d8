"""Serve embeddings: of texts, of objects with media, and of messages, whose files and images the gateway reads."""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

from fastapi import APIRouter, Request
from msgspec.structs import replace
from starlette.responses import Response

from gateway.api.embeddings import EmbeddingsRequest, parse_embeddings
from gateway.api.vectors import response_pieces
from gateway.backends.openai.usage import estimate_tokens_from_characters
from gateway.backends.request_fields import convert_parts
from gateway.server.fetch.attachments import inline_request_files
from gateway.server.fetch.stored_files import StoredFileReader
from gateway.server.routes import openapi
from gateway.server.routes.model_services import ServiceEndpoint
from gateway.server.tools import ToolRegistry
from gateway.server.upstream.backend import Backend
from gateway.warnings import Warnings


class EmbeddingsEndpoint(ServiceEndpoint[EmbeddingsRequest]):
    """Serve requests for embeddings; `messages` get their files and images as in a chat."""

    def estimated_tokens(self, put: EmbeddingsRequest, _: int) -> int:
        """Return the tokens of the texts, at least 1; the size of an image says nothing about its tokens."""
        return max(estimate_tokens_from_characters(put.characters), 1)

    async def with_files(
        self, http: Request, put: EmbeddingsRequest, tenant: str, ledger: Warnings, held: AsyncExitStack
    ) -> EmbeddingsRequest:
        """Return the request with the text of the files, and the stored images, that its messages name."""
        if not put.chat or put.chat.is_text_only:
            return put
        state = http.app.state
        stored: StoredFileReader = state.stored_files
        tools: ToolRegistry = state.tool_registry
        whole = await stored.inline(put.chat, tenant, ledger, held)
        return replace(put, chat=await inline_request_files(whole, state.config.files, ledger, tools.pdfs, tenant))

    async def for_backend(
        self, http: Request, put: EmbeddingsRequest, backend: Backend, ledger: Warnings
    ) -> EmbeddingsRequest:
        """Return the request with the parts of messages that the backend takes."""
        if not (put.chat and backend.services.embeds_messages):
            return put
        chat = put.chat  # the server fetches its images
        return replace(put, chat=replace(chat, messages=(*convert_parts(chat, backend.kind, ledger),)))

    def pieces(self, data: Any) -> Iterable[bytes | memoryview]:  # noqa: ANN401 - decoded JSON
        """Yield the JSON of a large response, without copies of its vectors."""
        return response_pieces(data)


router = APIRouter()
_EMBEDDINGS = EmbeddingsEndpoint(parse_embeddings)


@router.post("/v1/embeddings", openapi_extra=openapi.EMBEDDINGS)
async def create_embeddings(request: Request) -> Response:
    """Return the embedding vectors of texts; some models also take images, in `messages` or in objects of `input`.

    If a model makes a vector for each token, an input gets all of them.
    """
    return await _EMBEDDINGS.answer(request)
