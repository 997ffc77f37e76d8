"""The inspector, where it is enabled: single requests, step by step, for keys of the scope admin; and its page."""

import asyncio
from contextlib import suppress
from typing import Any

from fastapi import FastAPI, Request
from msgspec import DecodeError, Struct, ValidationError, json
from starlette.responses import HTMLResponse, Response

from gateway.config import Config
from gateway.errors import BadRequest
from gateway.recording import Recording
from gateway.server.auth import Authenticator
from gateway.server.console import exchanges, page
from gateway.server.console.replaying import ReplayRunner

_LIST = "/admin/exchanges"
_ONE = "/admin/exchanges/{id:path}"
_NOT_KEPT = {"cache-control": "no-store"}


class _ReplayOrder(Struct):
    format: str


def add(app: FastAPI, config: Config, door: Authenticator) -> None:
    if not config.inspector.enabled:
        return
    _add_page(app)
    _add_reading(app, door)
    _add_recordings(app, config, door)

    @app.get(_ONE, include_in_schema=False)  # the last one, as its path fits those of the others
    async def head(request: Request, id: str) -> Response:
        """Show one request."""
        return _answer(exchanges.exchange_detail(await _asked_for(app, door, request, id)))


def _add_page(app: FastAPI) -> None:
    @app.get("/inspector", include_in_schema=False)
    async def inspector() -> Response:
        """There is nothing in it: it asks for all that it shows, with the key that it is given."""
        return HTMLResponse(await asyncio.to_thread(page.render_inspector), headers=page.HEADERS)


def _add_reading(app: FastAPI, door: Authenticator) -> None:
    @app.get(_LIST, include_in_schema=False)
    async def list_exchanges(request: Request) -> Response:
        """Filters: `model` (a part of it), `status` (`live`, `200`, `4xx`) and `code`, of the ledger."""
        await door.admit(request, "admin")
        wanted = [request.query_params.get(name, "") for name in ("model", "status", "code")]
        return _answer({"exchanges": exchanges.list_exchanges(app.state.telemetry.recorder.recent, *wanted)})

    @app.get(f"{_ONE}/entries", include_in_schema=False)
    async def entries(request: Request, id: str) -> Response:
        """Show the entries behind number `after`, or from the beginning."""
        found, after = await _asked_for(app, door, request, id), -1
        with suppress(ValueError):
            after = max(-1, int(request.query_params.get("after", "")))
        secrets = app.state.telemetry.recorder.secrets
        return _answer(await asyncio.to_thread(exchanges.entries_page, found, after, secrets))


def _add_recordings(app: FastAPI, config: Config, door: Authenticator) -> None:
    replays = ReplayRunner()

    async def file(found: Recording, *, contents: bool) -> bytes:
        secrets = app.state.telemetry.recorder.secrets
        return await asyncio.to_thread(exchanges.recording_file, found, secrets, contents=contents)

    @app.get(f"{_ONE}/recording", include_in_schema=False)
    async def recording(request: Request, id: str) -> Response:
        """As a file, with the contents only if files may have them."""
        found = await _asked_for(app, door, request, id)
        headers = {**_NOT_KEPT, "content-disposition": 'attachment; filename="recording.jsonl"'}
        data = await file(found, contents=config.recording.content)
        return Response(data, media_type="application/jsonl", headers=headers)

    @app.post(f"{_ONE}/replay", include_in_schema=False)
    async def replay(request: Request, id: str) -> Response:
        """Show the differences in another `format`."""
        found = await _asked_for(app, door, request, id)
        try:
            wish = json.decode(await request.body(), type=_ReplayOrder)
        except (DecodeError, ValidationError, UnicodeDecodeError):
            raise BadRequest("The body has to be an object with a 'format'.", param="format") from None
        if not found.over:
            raise BadRequest("The exchange is not over yet.")
        return _answer(await replays.replay(await file(found, contents=True), wish.format))


async def _asked_for(app: FastAPI, door: Authenticator, request: Request, id: str) -> Recording:
    await door.admit(request, "admin")
    return exchanges.find_exchange(app.state.telemetry.recorder.recent, id, request.query_params.get("started", ""))


def _answer(said: Any) -> Response:  # noqa: ANN401 - whatever becomes JSON
    return Response(json.encode(said), media_type="application/json", headers=_NOT_KEPT)
