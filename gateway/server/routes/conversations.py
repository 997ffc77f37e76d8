"""Serve /v1/conversations: lists of items that requests can continue."""

import time
from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Request

from gateway.api.body import decode_update
from gateway.api.responses.input_items import HistoryRules, Item, referenced_ids
from gateway.api.responses.stored_items import complete_added_items, duplicate_item_error, visible_item
from gateway.api.validation import check_metadata, list_of, object_, object_of
from gateway.errors import NotFound
from gateway.server.conversations.stored_context import conversation_locked_error, conversation_not_found
from gateway.server.http.client_connection import JsonBytesResponse
from gateway.server.http.request_reader import read_fields
from gateway.server.ids import new_id
from gateway.server.middleware.auth import authenticate_tenant
from gateway.server.routes import pagination
from gateway.server.routes.pagination import item_page
from gateway.store import conversations, item_lists
from gateway.store.records import ItemRange, ListPosition, StoredConversation
from gateway.warnings import Warnings

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_PATH = "/v1/conversations"
_ONE = f"{_PATH}/{{id}}"
_ITEMS = f"{_ONE}/items"
_ITEM = f"{_ITEMS}/{{item_id}}"

_CREATE = object_of({}, {"items": list_of(object_, most=20), "metadata": check_metadata})
_DESCRIBE = object_of({"metadata": check_metadata})
_EXTEND = object_of({"items": list_of(object_, least=1, most=20)})
router = APIRouter()


@router.post(_PATH)
async def create_conversation(request: Request) -> JsonBytesResponse:
    """Create a conversation, optionally with items."""
    tenant, now = await authenticate_tenant(request), int(time.time())
    body = await read_fields(request, _CREATE)
    id = new_id("conv_")
    items = await _items(request.app, tenant, body.get("items", []))
    async with request.app.state.store.writing() as db:
        await conversations.create(db, tenant, id, body.get("metadata", {}), items, now)
        return JsonBytesResponse((await _found(db, tenant, id)).shown())


@router.get(_ONE)
async def retrieve_conversation(request: Request, id: str) -> JsonBytesResponse:
    """Retrieve a conversation, without its items."""
    tenant = await authenticate_tenant(request)
    async with request.app.state.store.reading() as db:
        return JsonBytesResponse((await _found(db, tenant, id)).shown())


@router.post(_ONE)
async def update_conversation(request: Request, id: str) -> JsonBytesResponse:
    """Replace the metadata of a conversation."""
    tenant = await authenticate_tenant(request)
    body = await read_fields(request, _DESCRIBE, decode_update)
    async with request.app.state.store.writing() as db:
        await _found(db, tenant, id)
        await conversations.set_metadata(db, id, body["metadata"])
        return JsonBytesResponse((await _found(db, tenant, id)).shown())


@router.delete(_ONE)
async def delete_conversation(request: Request, id: str) -> JsonBytesResponse:
    """Delete a conversation."""
    tenant = await authenticate_tenant(request)
    async with request.app.state.store.writing() as db:
        await _found(db, tenant, id)
        await conversations.remove(db, id)
    return JsonBytesResponse({"id": id, "object": "conversation.deleted", "deleted": True})


@router.get(_ITEMS)
async def list_conversation_items(request: Request, id: str) -> JsonBytesResponse:
    """List the items of a conversation."""
    tenant, page = await authenticate_tenant(request), pagination.page_params(request)
    show = partial(visible_item, include=pagination.include_params(request))
    async with request.app.state.store.reading() as db:
        return JsonBytesResponse(await item_page(db, tenant, [(await _found(db, tenant, id)).items], page, show))


@router.post(_ITEMS)
async def create_conversation_items(request: Request, id: str) -> JsonBytesResponse:
    """Add items to the end of a conversation."""
    tenant, include = await authenticate_tenant(request), pagination.include_params(request)
    body = await read_fields(request, _EXTEND)
    items = await _items(request.app, tenant, body["items"])
    async with request.app.state.store.writing() as db:
        await _extend(db, tenant, id, items)
    return JsonBytesResponse(pagination.list_object([visible_item(item, include) for item in items]))


@router.get(_ITEM)
async def retrieve_conversation_item(request: Request, id: str, item_id: str) -> JsonBytesResponse:
    """Retrieve an item of a conversation."""
    tenant, include = await authenticate_tenant(request), pagination.include_params(request)
    async with request.app.state.store.reading() as db:
        at = await _place(db, await _found(db, tenant, id), tenant, item_id)
        (item,) = await item_lists.read(db, [ItemRange(at.thread, at.end, at.end + 1)])
    return JsonBytesResponse(visible_item(item, include))


@router.delete(_ITEM)
async def delete_conversation_item(request: Request, id: str, item_id: str) -> JsonBytesResponse:
    """Delete an item of a conversation."""
    tenant = await authenticate_tenant(request)
    async with request.app.state.store.writing() as db:
        conversation = await _found(db, tenant, id)
        await item_lists.remove(db, await _place(db, conversation, tenant, item_id))
    return JsonBytesResponse(conversation.shown())


async def _found(db: "AsyncConnection", tenant: str, id: str) -> StoredConversation:
    if conversation := await conversations.find(db, tenant, id):
        return conversation
    raise conversation_not_found(id)


async def _place(db: "AsyncConnection", conversation: StoredConversation, tenant: str, item_id: str) -> ListPosition:
    if place := await item_lists.find(db, tenant, [conversation.items], item_id):
        return place
    raise NotFound(f"Item with id '{item_id}' not found.")


async def _items(app: FastAPI, tenant: str, given: list[Item]) -> list[Item]:
    """Return the client's items in full."""
    async with app.state.store.reading() as db:
        known = await item_lists.by_id(db, tenant, referenced_ids(given))
    approves = app.state.tool_registry.builtin_tool_filter is not None
    rules = HistoryRules(app.state.keyring.sealer(tenant).open, Warnings(), model="", items=known, approves=approves)
    return complete_added_items(given, "items", rules, new_id)


async def _extend(db: "AsyncConnection", tenant: str, id: str, items: list[Item]) -> None:
    """Add items, unless a response locks the conversation."""
    now, holder = time.time(), new_id("hold_")
    held = await conversations.acquire(db, id, holder, int(now * 1000), lease_ms=0)
    conversation = await _found(db, tenant, id)  # its state now that no other request can add to it
    if not held:
        raise conversation_locked_error()
    for item in items:
        if await item_lists.find(db, tenant, [conversation.items], item["id"]):
            raise duplicate_item_error(item["id"], "items")
    await conversations.append(db, conversation, items, int(now))
    await conversations.release(db, id, holder)
