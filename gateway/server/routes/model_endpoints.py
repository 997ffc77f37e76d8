"""Declare the model endpoints for OpenAPI and the router; a ModelEndpoint serves their POST requests first."""

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException

from gateway.server.routes import openapi
from gateway.server.websocket.endpoint import websocket_unsupported

CHAT_PATH = "/v1/chat/completions"
TEXT_PATH = "/v1/completions"
RESPONSES_PATH = "/v1/responses"
COMPACT_PATH = "/v1/responses/compact"
COUNT_PATH = "/v1/responses/input_tokens"
MESSAGES_PATH, MESSAGES_COUNT_PATH = "/v1/messages", "/v1/messages/count_tokens"

router = APIRouter()


@router.post(CHAT_PATH, openapi_extra=openapi.CHAT)
async def chat_completions() -> None:
    """Respond to a conversation: one JSON body, or server-sent events if `stream` is true."""


@router.post(TEXT_PATH, openapi_extra=openapi.COMPLETIONS)
async def completions() -> None:
    """Complete a text: one JSON body, or server-sent events if `stream` is true."""


@router.post(RESPONSES_PATH, openapi_extra=openapi.RESPONSES)
async def responses() -> None:
    """Respond to a conversation of items: one Response, or its events if `stream` is true.

    A GET with an upgrade opens a WebSocket for the same requests: send `response.create` with these fields; each
    event is a message.
    """


@router.post(COMPACT_PATH, openapi_extra=openapi.RESPONSES)
async def compact() -> None:
    """Compact a conversation of items to its user messages, and an item that represents the whole conversation."""


@router.post(COUNT_PATH, openapi_extra=openapi.RESPONSES)
async def input_tokens() -> None:
    """Count the tokens of the prompt that a model would get for a conversation of items."""


@router.get(RESPONSES_PATH, include_in_schema=False)
async def responses_by_websocket(request: Request) -> None:
    """Reject an upgrade that the server did not handle, and other GET requests."""
    if request.headers.get("upgrade", "").lower() == "websocket":
        raise websocket_unsupported()
    raise HTTPException(405, headers={"allow": "POST"})


@router.post(MESSAGES_PATH, openapi_extra=openapi.MESSAGES)
async def messages() -> None:
    """Respond to a conversation as Anthropic's API does: one message, or its events if `stream` is true."""


@router.post(MESSAGES_COUNT_PATH, openapi_extra=openapi.MESSAGE_COUNT)
async def count_tokens() -> None:
    """Count the tokens of the prompt that a model would get for a message."""
