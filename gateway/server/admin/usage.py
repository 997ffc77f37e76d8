"""Serve the usage of keys and models, for keys of the scope admin, and read it for the page."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from msgspec import json
from starlette.responses import Response

from gateway.config import Config
from gateway.config.models import model_prices
from gateway.errors import NotFound
from gateway.server.admin.usage_page import UsageTable, columns_of, parse_page_query, usage_table
from gateway.server.middleware.auth import authenticate
from gateway.server.observability.usage import NOT_KEPT, UsageQuery, parse_query, usage_report
from gateway.store import usage_sums
from gateway.store.records import UsageColumn, UsageSums

router = APIRouter()


@router.get("/admin/usage", include_in_schema=False)
async def read_usage(request: Request) -> Response:
    """Return the usage, with all requests of this process that are over."""
    await authenticate(request, "admin")
    if not request.app.state.config.store.keeps_usage:
        raise NotFound(NOT_KEPT, code="usage_not_kept")
    params = request.query_params
    query = parse_query(params.get("since"), params.get("until"), params.getlist("by"), datetime.now(UTC).date())
    rows = await _read(request.app, query, query.by)
    data = json.encode(usage_report(query, rows))
    return Response(data, media_type="application/json", headers={"cache-control": "no-store"})


async def read_usage_table(app: FastAPI, given: Mapping[str, str]) -> UsageTable | None:
    """Return the table of the page `/usage`; None if the store keeps no usage.  Raise BadRequest.

    given: the parameters of the page.
    """
    config: Config = app.state.config
    if not config.store.keeps_usage:
        return None
    days, query = parse_page_query(given.get("days"), given.get("by"), datetime.now(UTC).date())
    return usage_table(days, query, await _read(app, query, columns_of(query)), model_prices(config.models))


async def _read(
    app: FastAPI, query: UsageQuery, by: Sequence[UsageColumn]
) -> Iterable[tuple[tuple[Any, ...], UsageSums]]:
    """Return the sums of all requests that are over, those of this process too."""
    await app.state.telemetry.usage.flush()
    async with app.state.store.reading() as db:
        return await usage_sums.read(db, *query.days, by)
