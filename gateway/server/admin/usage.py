"""Serve the usage of keys and models, for keys of the scope admin."""

from datetime import UTC, datetime

from fastapi import FastAPI, Request
from msgspec import json
from starlette.responses import Response

from gateway.config import Config
from gateway.errors import NotFound
from gateway.server.middleware.auth import Authenticator
from gateway.server.observability.usage_report import NOT_KEPT, parse_query, usage_report
from gateway.store import daily_usage


def add(app: FastAPI, config: Config, auth: Authenticator) -> None:
    """Add the route."""

    @app.get("/admin/usage", include_in_schema=False)
    async def read_usage(request: Request) -> Response:
        """Return the usage, with all requests of this process that are over."""
        await auth.authenticate(request, "admin")
        if not config.store.keeps_usage:
            raise NotFound(NOT_KEPT, code="usage_not_kept")
        said = request.query_params
        query = parse_query(said.get("since"), said.get("until"), said.getlist("by"), datetime.now(UTC).date())
        await app.state.telemetry.usage.flush()
        async with app.state.store.reading() as db:
            rows = await daily_usage.read(db, *query.days, query.by)
        data = json.encode(usage_report(query, rows))
        return Response(data, media_type="application/json", headers={"cache-control": "no-store"})
