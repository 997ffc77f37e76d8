"""Serve stored responses: /v1/responses/{id}."""

import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.api.responses.stored_items import visible_item
from gateway.errors import BadRequest, NotFound
from gateway.server.http.client_connection import JsonBytesResponse
from gateway.server.jobs.job_responses import JobEventsResponse
from gateway.server.middleware.auth import authenticate_tenant
from gateway.server.relay.rounds import WARNINGS
from gateway.server.routes import pagination
from gateway.server.routes.pagination import item_page
from gateway.store import event_logs, responses
from gateway.store.records import ItemRange, ItemsMissing, StoredResponse

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_PATH = "/v1/responses/{id}"
_RUNNING = ("queued", "in_progress")
_NO_EVENTS = (
    "This response cannot be streamed because it was not created with background=true and stream=true, or its events"
    " have expired."
)
_FORGOTTEN = "The events up to {} of this response have expired. Retrieve the response without 'stream'."
router = APIRouter()


@router.get(_PATH)
async def retrieve_response(request: Request, id: str) -> Response:
    """Retrieve a stored response; with `stream`, its events after `starting_after` and all further ones."""
    tenant, body = await authenticate_tenant(request), pagination.parameters(request)
    async with request.app.state.store.reading() as db:
        kept = await _found(db, tenant, id)
        if not body.get("stream"):
            data = {WARNINGS: warnings} if (warnings := responses.warnings(kept)) else {}
            return _shown(await responses.response_object(db, kept), body.get("include", ()), data)
        newest = await _newest(db, kept, after := body.get("starting_after", -1))
    seconds = request.app.state.config.stream.keepalive_seconds
    return JobEventsResponse(request.app.state.handler.jobs, id, after, newest, seconds)


@router.get(f"{_PATH}/input_items")
async def list_input_items(request: Request, id: str) -> JsonBytesResponse:
    """List the input of the model: the chain before a response, and its own input."""
    tenant, page = await authenticate_tenant(request), pagination.page_params(request)
    show = partial(visible_item, include=pagination.include_params(request))
    async with request.app.state.store.reading() as db:
        given = await _given(db, await _found(db, tenant, id))
        return JsonBytesResponse(await item_page(db, tenant, given, page, show))


@router.delete(_PATH)
async def delete_response(request: Request, id: str) -> JsonBytesResponse:
    """Delete a response; other responses can no longer continue it.  A running one is cancelled first."""
    tenant, store = await authenticate_tenant(request), request.app.state.store
    async with store.reading() as db:
        runs = (await _found(db, tenant, id)).body["status"] in _RUNNING
    if runs:  # its subscribers get the last event
        await request.app.state.handler.jobs.cancel(tenant, id)
    async with store.writing() as db:
        await responses.remove(db, await _found(db, tenant, id))
    return JsonBytesResponse({"id": id, "object": "response", "deleted": True})


@router.post(f"{_PATH}/cancel")
async def cancel_response(request: Request, id: str) -> Response:
    """Cancel a background response; a finished one does not change."""
    tenant = await authenticate_tenant(request)
    async with request.app.state.store.reading() as db:
        if not (await _found(db, tenant, id)).body["background"]:
            raise BadRequest("Cannot cancel a synchronous response.")
    await request.app.state.handler.jobs.cancel(tenant, id)
    async with request.app.state.store.reading() as db:
        return _shown(await responses.response_object(db, await _found(db, tenant, id)))


def _shown(
    response: dict[str, Any], include: Collection[str] = (), headers: Mapping[str, str] | None = None
) -> JsonBytesResponse:
    return JsonBytesResponse(
        {**response, "output": [visible_item(item, include) for item in response["output"]]}, headers=headers
    )


async def _newest(db: "AsyncConnection", kept: StoredResponse, after: int) -> int:
    """Return its newest stored event; raise BadRequest if it cannot be followed from the requested one."""
    newest = await event_logs.newest_event(db, kept.id, int(time.time()))
    if newest is None:
        raise BadRequest(_NO_EVENTS, param="stream")
    rows = await event_logs.read(db, kept.id, min(after, newest), 1)  # no database takes all numbers
    if rows and rows[0].first > after + 1:
        raise BadRequest(_FORGOTTEN.format(rows[0].first - 1), code="events_expired", param="starting_after")
    return newest


async def _found(db: "AsyncConnection", tenant: str, id: str) -> StoredResponse:
    if kept := await responses.find(db, tenant, id):
        return kept
    raise _not_found(id)


async def _given(db: "AsyncConnection", kept: StoredResponse) -> list[ItemRange]:
    try:
        return await responses.effective_input(db, kept)
    except ItemsMissing:
        raise NotFound(f"Response with id '{kept.id}' continues a response that was deleted.") from None


def _not_found(id: str) -> NotFound:
    return NotFound(f"Response with id '{id}' not found.")
