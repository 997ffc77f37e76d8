"""Serve the health checks; they need no key."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

router = APIRouter()


@router.get("/health")
async def health() -> dict[str, str]:
    """Return 200 while the process runs."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(request: Request) -> JSONResponse:
    """Return 200 if all that `server.ready` names is well; 503 if not, or if the gateway is about to stop."""
    state = request.app.state
    if state.leaving or state.stopping.is_set():
        return JSONResponse({"status": "draining"}, 503, {"connection": "close"})
    well, shown = await state.readiness.state()
    return JSONResponse(shown, 200 if well else 503)
