"""Serve the health checks; they need no key."""

from fastapi import FastAPI
from starlette.responses import JSONResponse

from gateway.config import Config
from gateway.server.middleware.auth import Authenticator


def add(app: FastAPI, _: Config, __: Authenticator) -> None:
    """Add the routes of the health checks."""

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Return 200 while the process runs."""
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Return 200 if all that `server.ready` names is well; 503 if not, or if the gateway is about to stop."""
        state = app.state
        if state.leaving or state.stopping.is_set():
            return JSONResponse({"status": "draining"}, 503, {"connection": "close"})
        well, shown = await state.readiness.state()
        return JSONResponse(shown, 200 if well else 503)
