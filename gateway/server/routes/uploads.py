"""Serve /v1/uploads: files that arrive in parts."""

import hashlib
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request

from gateway.api.files import PART_BYTES, UPLOAD_SECONDS, check_completion, check_upload, file_params
from gateway.errors import BadRequest, NotFound, TooLarge
from gateway.server.http.client_connection import JsonBytesResponse
from gateway.server.http.form import least_file_size, read_file_form
from gateway.server.http.request_reader import read_fields
from gateway.server.ids import new_id
from gateway.server.middleware.auth import authenticate, authenticate_tenant
from gateway.server.routes import openapi
from gateway.server.routes.files import file_limit, quota_of
from gateway.store import blobs, files
from gateway.store.file_store import FileStore
from gateway.store.records import StoredFile, StoredUpload

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_PATH = "/v1/uploads"
_ONE = f"{_PATH}/{{id}}"
router = APIRouter()
_KNOWN = ("bytes", "filename", "purpose", "expires_after")


@router.post(_PATH)
async def create_upload(request: Request) -> JsonBytesResponse:
    """Begin a file that arrives in parts, within an hour."""
    key = await authenticate(request)
    body = await read_fields(request, check_upload)
    file_params(body).check_size(body["bytes"])
    if body["bytes"] > (limit := file_limit(request.app.state.config, key)):
        message = f"The file would be larger than the limit of {limit} bytes. Send a smaller one."
        raise TooLarge(message, code="file_too_large", param="bytes")
    now = int(time.time())
    known = {name: body[name] for name in _KNOWN if name in body}
    upload = StoredUpload(new_id("upload_"), now, now + UPLOAD_SECONDS, "pending", known)
    async with request.app.state.store.writing() as db:
        await files.save_upload(db, key.name if key else "", upload)
    return JsonBytesResponse(upload.shown())


@router.post(f"{_ONE}/parts", openapi_extra=openapi.PART)
async def create_upload_part(request: Request, id: str) -> JsonBytesResponse:
    """Add a part of at most 64 MiB, which streams to the store."""
    key = await authenticate(request)
    quota, store, part = quota_of(request.app.state.config, key), request.app.state.files, new_id("part_")
    async with request.app.state.store.reading() as db:
        await _check_room(db, await _pending(db, quota.tenant, id), least_file_size(request))
    async with store.writing(quota, part, least_file_size(request)) as blob:
        await read_file_form(request, "data", PART_BYTES, blob.write)
        await store.seal(blob)
        async with request.app.state.store.writing() as db:
            await _check_room(db, await _pending(db, quota.tenant, id, lock=True), blob.size)
            await blobs.keep(db, quota, part, blob.size, upload=id)
    shown = {"id": part, "object": "upload.part", "created_at": int(time.time()), "upload_id": id}
    return JsonBytesResponse(shown)


@router.post(f"{_ONE}/complete")
async def complete_upload(request: Request, id: str) -> JsonBytesResponse:
    """Make a file of the parts, in the order of `part_ids`."""
    tenant = await authenticate_tenant(request)
    body = await read_fields(request, check_completion)
    ids, store = body["part_ids"], request.app.state.files
    async with request.app.state.store.reading() as db:
        await _check_whole(db, await _pending(db, tenant, id), ids)
    if "md5" in body:
        await _check_digest(store, ids, body["md5"])
    async with request.app.state.store.writing() as db:
        upload = await _pending(db, tenant, id, lock=True)
        await _check_whole(db, upload, ids)
        file = _file_of(upload, int(time.time()))
        await files.save(db, tenant, file)
        await blobs.move(db, ids, file.id)
        left = await blobs.release_upload(db, id)
        await files.set_upload_status(db, id, "completed")
    await store.remove(left)
    return JsonBytesResponse({**upload.shown(), "status": "completed", "file": file.shown()})


@router.post(f"{_ONE}/cancel")
async def cancel_upload(request: Request, id: str) -> JsonBytesResponse:
    """Cancel an upload, and delete its parts."""
    tenant = await authenticate_tenant(request)
    async with request.app.state.store.writing() as db:
        upload = await _pending(db, tenant, id, lock=True)
        await files.set_upload_status(db, id, "cancelled")
        gone = await blobs.release_upload(db, id)
    await request.app.state.files.remove(gone)
    return JsonBytesResponse({**upload.shown(), "status": "cancelled"})


async def _pending(db: "AsyncConnection", tenant: str, id: str, *, lock: bool = False) -> StoredUpload:
    """Return an upload that takes parts.  Raise NotFound, or BadRequest for one that has ended."""
    upload = await files.find_upload(db, tenant, id, lock=lock)
    if not upload:
        raise NotFound(f"No such Upload object: {id}", param="id")
    status = upload.status_at(int(time.time()))
    if status != "pending":
        raise BadRequest(f"The upload '{id}' is {status}. Create another one.", code="invalid_value", param="id")
    return upload


async def _check_room(db: "AsyncConnection", upload: StoredUpload, size: int) -> None:
    """Raise BadRequest if another part of `size` bytes exceeds the announced bytes of the file."""
    total = size + sum((await blobs.of_upload(db, upload.id)).values())
    if total > upload.bytes:
        message = f"The parts would have {total} bytes, more than the {upload.bytes} bytes of the upload."
        raise BadRequest(message, code="invalid_value", param="data")


async def _check_whole(db: "AsyncConnection", upload: StoredUpload, ids: list[str]) -> None:
    """Raise BadRequest if the parts are unknown, repeated, or not as long as the file."""
    sizes, total = await blobs.of_upload(db, upload.id), 0
    for place, id in enumerate(ids):
        if id not in sizes:
            message = f"Invalid 'part_ids[{place}]': the upload has no part '{id}', or the list has it twice."
            raise BadRequest(message, code="invalid_value", param=f"part_ids[{place}]")
        total += sizes.pop(id)
    if total != upload.bytes:
        message = f"The parts have {total} bytes, but the upload was created for {upload.bytes}."
        raise BadRequest(message, code="invalid_value", param="part_ids")


async def _check_digest(store: FileStore, ids: list[str], expected: str) -> None:
    """Raise BadRequest if the bytes of the parts have another MD5 digest."""
    digest = hashlib.md5(usedforsecurity=False)
    async with aclosing(store.chunks(ids)) as chunks:
        async for chunk in chunks:
            digest.update(chunk)
    if digest.hexdigest() != expected.lower():
        message = f"The parts have the MD5 digest '{digest.hexdigest()}' instead of '{expected}'. Send them again."
        raise BadRequest(message, code="invalid_value", param="md5")


def _file_of(upload: StoredUpload, now: int) -> StoredFile:
    """Return the file that a complete upload becomes."""
    params = file_params(upload.body)
    return StoredFile(new_id("file-"), now, params.expires_at(now), params.purpose, upload.bytes, params.filename)
