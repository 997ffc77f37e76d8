"""/metrics: what the gateway has counted, for Prometheus."""

import asyncio

from fastapi import FastAPI, Request
from starlette.responses import Response

from gateway.config import Config
from gateway.server.auth import Authenticator
from gateway.server.telemetry.exposition import prometheus_text
from gateway.server.telemetry.telemetry import Telemetry


def add(app: FastAPI, config: Config, door: Authenticator) -> None:
    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        """The numbers of all workers, for a key of the scope admin unless anybody may have them."""
        if not config.metrics.open:
            await door.admit(request, "admin")
        telemetry: Telemetry = app.state.telemetry
        said, type = await asyncio.to_thread(
            prometheus_text, await telemetry.series(), request.headers.get("accept", "")
        )
        return Response(said, headers={"content-type": type})
