"""Serve stored chat completions: /v1/chat/completions with GET and /v1/chat/completions/{id}."""

import re
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request

from gateway.api.body import decode_update
from gateway.api.chat.whole import listed_message
from gateway.api.validation import check_metadata, object_of
from gateway.errors import NotFound
from gateway.server.http.client_connection import JsonBytesResponse
from gateway.server.http.request_reader import read_fields
from gateway.server.middleware.auth import authenticate_tenant
from gateway.server.routes import pagination
from gateway.server.routes.pagination import item_page
from gateway.store import chat_completions
from gateway.store.records import CompletionFilter, StoredCompletion

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_PATH = "/v1/chat/completions"
_ONE = f"{_PATH}/{{id}}"
_LABEL = re.compile(r"metadata\[(.+)\]")
_UPDATE = object_of({"metadata": check_metadata})
router = APIRouter()


@router.get(_PATH)
async def list_completions(request: Request) -> JsonBytesResponse:
    """List the stored completions, filtered by `model` and by `metadata[key]`."""
    tenant, page = await authenticate_tenant(request), pagination.page_params(request, order="asc")
    async with request.app.state.store.reading() as db:
        behind = None
        if page.after is not None and not (behind := await chat_completions.find(db, tenant, page.after)):
            raise page.not_found()
        wanted, order = _wanted(request), page.newest_first
        found = await chat_completions.page(db, tenant, wanted, page.limit + 1, newest_first=order, behind=behind)
    return JsonBytesResponse(page.of([one.body for one in found]))


@router.get(f"{_ONE}/messages")
async def list_messages(request: Request, id: str) -> JsonBytesResponse:
    """List the input messages of a stored completion."""
    tenant, page = await authenticate_tenant(request), pagination.page_params(request, order="asc")
    async with request.app.state.store.reading() as db:
        return JsonBytesResponse(
            await item_page(db, tenant, [(await _found(db, tenant, id)).messages], page, listed_message)
        )


@router.get(_ONE)
async def retrieve_completion(request: Request, id: str) -> JsonBytesResponse:
    """Retrieve a stored completion."""
    tenant = await authenticate_tenant(request)
    async with request.app.state.store.reading() as db:
        return JsonBytesResponse((await _found(db, tenant, id)).body)


@router.post(_ONE)
async def update_completion(request: Request, id: str) -> JsonBytesResponse:
    """Replace the metadata of a stored completion."""
    tenant = await authenticate_tenant(request)
    body = await read_fields(request, _UPDATE, decode_update)
    async with request.app.state.store.writing() as db:
        return JsonBytesResponse(
            (await chat_completions.set_metadata(db, await _found(db, tenant, id), body["metadata"])).body
        )


@router.delete(_ONE)
async def delete_completion(request: Request, id: str) -> JsonBytesResponse:
    """Delete a stored completion."""
    tenant = await authenticate_tenant(request)
    async with request.app.state.store.writing() as db:
        await _found(db, tenant, id)
        await chat_completions.remove(db, id)
    return JsonBytesResponse({"id": id, "object": "chat.completion.deleted", "deleted": True})


async def _found(db: "AsyncConnection", tenant: str, id: str) -> StoredCompletion:
    if completion := await chat_completions.find(db, tenant, id):
        return completion
    raise NotFound(f"Chat completion with id '{id}' not found.")


def _wanted(request: Request) -> CompletionFilter:
    params = request.query_params
    labels = {label[1]: value for name, value in params.items() if (label := _LABEL.fullmatch(name))}
    return CompletionFilter(params.get("model"), labels)
