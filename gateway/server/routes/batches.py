"""Serve /v1/batches: requests of a file that run beside those of clients."""

import time
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request

from gateway.api.batches import Batch, check_batch
from gateway.errors import BadRequest, Forbidden, NotFound
from gateway.server.http.client_connection import JsonBytesResponse
from gateway.server.http.request_reader import read_fields
from gateway.server.ids import new_id
from gateway.server.middleware.auth import authenticate, authenticate_tenant
from gateway.server.routes import pagination
from gateway.store import batches, files
from gateway.store.records import StoredFile

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_PATH = "/v1/batches"
_ONE = f"{_PATH}/{{id}}"
router = APIRouter()


@router.post(_PATH)
async def create_batch(request: Request) -> JsonBytesResponse:
    """Run the requests of a file with the purpose `batch`, within 24 hours."""
    key = await authenticate(request)
    if key and not await request.app.state.authenticator.key_named(key.name):
        raise Forbidden("A batch needs an API key: it runs after you have signed out.", code="api_key_required")
    body, now, tenant = await read_fields(request, check_batch), int(time.time()), key.name if key else ""
    batch = Batch(new_id("batch_"), now, "validating", body)
    async with request.app.state.store.writing() as db:
        _check_file(await files.find(db, tenant, batch.input_file, now), batch.input_file)
        await batches.create(db, tenant, batch)
    request.app.state.batches.wake()
    return JsonBytesResponse(batch.shown())


@router.get(_PATH)
async def list_batches(request: Request) -> JsonBytesResponse:
    """List the batches."""
    tenant = await authenticate_tenant(request)
    page = pagination.page_params(request)
    async with request.app.state.store.reading() as db:
        behind = None
        if page.after is not None and not (behind := await batches.find(db, tenant, page.after)):
            raise page.not_found()
        order = page.newest_first
        found = await batches.page(db, tenant, page.limit + 1, newest_first=order, behind=behind)
    return JsonBytesResponse(page.of([batch.shown() for batch in found]))


@router.get(_ONE)
async def retrieve_batch(request: Request, id: str) -> JsonBytesResponse:
    """Retrieve a batch, with the counts of its lines."""
    tenant = await authenticate_tenant(request)
    async with request.app.state.store.reading() as db:
        return JsonBytesResponse((await _found(db, tenant, id)).shown())


@router.post(f"{_ONE}/cancel")
async def cancel_batch(request: Request, id: str) -> JsonBytesResponse:
    """Cancel a batch; the output file has the lines that are finished."""
    tenant, now = await authenticate_tenant(request), int(time.time())
    async with request.app.state.store.writing() as db:
        batch = (await _found(db, tenant, id, lock=True)).cancelled(now)
        await batches.save(db, batch, now)
    request.app.state.batches.wake()
    return JsonBytesResponse(batch.shown())


def _check_file(file: StoredFile | None, id: str) -> None:
    if not file:
        raise NotFound(f"No such File object: {id}", param="input_file_id")
    if file.purpose != "batch":
        message = f"The file '{id}' has the purpose '{file.purpose}'. Create it with the purpose 'batch'."
        raise BadRequest(message, code="invalid_value", param="input_file_id")


async def _found(db: "AsyncConnection", tenant: str, id: str, *, lock: bool = False) -> Batch:
    if batch := await batches.find(db, tenant, id, lock=lock):
        return batch
    raise NotFound(f"No such Batch object: {id}", param="id")
