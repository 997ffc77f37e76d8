"""Serve /v1/files: the bytes stream from the client to the store, and back."""

import time
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.api.files import form_params
from gateway.config import ApiKey, Config
from gateway.errors import NotFound, StoreFailed
from gateway.server.http.client_connection import CancelOnDisconnect, JsonBytesResponse, client_connection
from gateway.server.http.form import least_file_size, read_file_form
from gateway.server.ids import new_id
from gateway.server.middleware.auth import authenticate, authenticate_tenant
from gateway.server.observability.request_recorder import tee_lengths
from gateway.server.routes import openapi, pagination
from gateway.store import blobs, files
from gateway.store.file_store import FileStore
from gateway.store.records import FileFilter, FileQuota, StoredFile

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_PATH = "/v1/files"
_ONE = f"{_PATH}/{{id}}"
_MOST = 10_000  # files in a page


async def refuse_anthropic_client(request: Request) -> None:
    """Raise NotFound for a client of Anthropic's Files API, which has the same paths and other objects."""
    if "anthropic-version" in request.headers:
        url = f"Invalid URL ({request.method} {request.url.path})."
        raise NotFound(f"{url} The gateway has OpenAI's files only. Send the content of a file in the message.")


_OF_OPENAI = [Depends(refuse_anthropic_client)]
router = APIRouter()


def file_limit(config: Config, key: ApiKey | None) -> int:
    """Return the maximum bytes of a file of this key."""
    return (key.limits.file_bytes if key else 0) or config.limits.file_bytes


def quota_of(config: Config, key: ApiKey | None) -> FileQuota:
    """Return the tenant of a key with the maximum bytes of its files."""
    if not key:
        return FileQuota("", config.limits.tenant_file_bytes)
    return FileQuota(key.name, key.limits.tenant_file_bytes or config.limits.tenant_file_bytes)


@router.post(_PATH, openapi_extra=openapi.FILE, dependencies=_OF_OPENAI)
async def create_file(request: Request) -> JsonBytesResponse:
    """Store a file of a multipart body, which streams to the store."""
    key = await authenticate(request)
    quota, store = quota_of(request.app.state.config, key), request.app.state.files
    async with store.writing(quota, new_id("blob_"), least_file_size(request)) as blob:
        form = await read_file_form(request, "file", file_limit(request.app.state.config, key), blob.write)
        params, now = form_params(form.fields, form.filename), int(time.time())
        params.check_size(blob.size)
        expires_at = params.expires_at(now)
        file = StoredFile(new_id("file-"), now, expires_at, params.purpose, blob.size, params.filename)
        await store.seal(blob)
        async with request.app.state.store.writing() as db:
            await files.save(db, quota.tenant, file)
            await blobs.keep(db, quota, blob.id, blob.size, file=file.id)
    return JsonBytesResponse(file.shown())


@router.get(_PATH, dependencies=_OF_OPENAI)
async def list_files(request: Request) -> JsonBytesResponse:
    """List the files, filtered by `purpose`."""
    tenant = await authenticate_tenant(request)
    page, now = pagination.page_params(request, most=_MOST, limit=_MOST), int(time.time())
    async with request.app.state.store.reading() as db:
        behind = None
        if page.after is not None and not (behind := await files.find(db, tenant, page.after, now)):
            raise page.not_found()
        wanted, order = FileFilter(now, request.query_params.get("purpose")), page.newest_first
        found = await files.page(db, tenant, wanted, page.limit + 1, newest_first=order, behind=behind)
    return JsonBytesResponse(page.of([file.shown() for file in found]))


@router.get(_ONE, dependencies=_OF_OPENAI)
async def retrieve_file(request: Request, id: str) -> JsonBytesResponse:
    """Retrieve a file without its content."""
    tenant = await authenticate_tenant(request)
    async with request.app.state.store.reading() as db:
        return JsonBytesResponse((await _found(db, tenant, id)).shown())


@router.delete(_ONE, dependencies=_OF_OPENAI)
async def delete_file(request: Request, id: str) -> JsonBytesResponse:
    """Delete a file."""
    tenant = await authenticate_tenant(request)
    async with request.app.state.store.writing() as db:
        await _found(db, tenant, id)
        gone = await blobs.of_file(db, id)
        await files.remove(db, id)
    await request.app.state.files.remove(gone)
    return JsonBytesResponse({"id": id, "object": "file", "deleted": True})


@router.get(f"{_ONE}/content", dependencies=_OF_OPENAI)
async def retrieve_file_content(request: Request, id: str) -> Response:
    """Return the content of a file."""
    tenant = await authenticate_tenant(request)
    async with request.app.state.store.reading() as db:
        return _FileContent(request.app.state.files, await _found(db, tenant, id))


class _FileContent(Response):
    """The bytes of a file, as a download."""

    def __init__(self, store: FileStore, file: StoredFile) -> None:
        headers = {
            "content-length": str(file.bytes),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
            "x-content-type-options": "nosniff",
        }
        super().__init__(None, headers=headers, media_type="application/octet-stream")
        self._store, self._file = store, file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        send = tee_lengths(send)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            with CancelOnDisconnect(scope, receive):
                if scope["method"] != "HEAD":
                    await self._stream(send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except StoreFailed:
            client_connection(scope).cut()
        except ClientDisconnect:
            pass  # no client is left

    async def _stream(self, send: Send) -> None:
        async with aclosing(self._store.read(self._file)) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _found(db: "AsyncConnection", tenant: str, id: str) -> StoredFile:
    if file := await files.find(db, tenant, id, int(time.time())):
        return file
    raise NotFound(f"No such File object: {id}", param="id")
