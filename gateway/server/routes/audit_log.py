"""Serve the log of changed keys and reloads, for keys of the scope admin."""

from fastapi import APIRouter, Request
from msgspec import json
from starlette.responses import Response

from gateway.errors import NotFound
from gateway.server.middleware.auth import authenticate
from gateway.server.routes.pagination import page_params
from gateway.store import audit_log

_NOT_KEPT = "The gateway keeps no log of changes, because the configuration has no store.url. Set it to the database."
router = APIRouter()


@router.get("/admin/keys/log", include_in_schema=False)
async def read_log(request: Request) -> Response:
    """Return a page of the log, the newest entries first."""
    await authenticate(request, "admin")
    if not request.app.state.config.store.is_named:
        raise NotFound(_NOT_KEPT, code="log_not_kept")
    page = page_params(request)
    after = page.after
    if after is not None and not (after.isdecimal() and len(after) < 19):
        raise page.not_found()
    async with request.app.state.store.reading() as db:
        found = await audit_log.read(
            db, page.limit + 1, newest_first=page.newest_first, after=int(after) if after else None
        )
    data = json.encode(page.of([entry.shown() for entry in found]))
    return Response(data, media_type="application/json", headers={"cache-control": "no-store"})
