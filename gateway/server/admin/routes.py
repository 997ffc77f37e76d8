"""Serve the overview and the inspector, as JSON and, if enabled, as pages.

Templates escape all values.  The pages' policy allows only scripts and styles of this server.  Jinja is imported for
the first page, as most gateways serve none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from msgspec import DecodeError, Struct, ValidationError, json
from starlette.responses import HTMLResponse, Response

from gateway import __version__
from gateway.config import Config
from gateway.errors import BadRequest, NotFound
from gateway.formats import format_names
from gateway.recording import Recording
from gateway.server.admin.inspector import (
    ReplayRunner,
    entries_page,
    exchange_detail,
    find_exchange,
    list_exchanges,
    recording_file,
)
from gateway.server.admin.overview import build_overview
from gateway.server.admin.overview_model import Overview, format_duration
from gateway.server.middleware.auth import Authenticator

if TYPE_CHECKING:
    from jinja2 import Environment


_HERE = Path(__file__).parent
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_SAFE = {"x-content-type-options": "nosniff", "cross-origin-resource-policy": "same-origin"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types console"
)
# Headers of a page: it is not cached, and its links send no referrer.
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        **_SAFE,
        "content-security-policy": _POLICY,
        "cross-origin-opener-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }
)
ASSET_HEADERS: Mapping[str, str] = MappingProxyType({**_SAFE, "cache-control": "no-cache"})
_KEYS = ("authorization", "api-key", "x-api-key")  # names of headers
_LIST = "/admin/exchanges"
_ONE = "/admin/exchanges/{id:path}"
_NOT_KEPT = {"cache-control": "no-store"}


def render_overview(root: str, overview: Overview | None) -> str:
    """Return the page `/`.  root: the base URL of the gateway; overview: None for a client that has to send a key."""
    return _templates().get_template("overview.html").render(root=root, overview=overview, version=__version__)


def render_inspector() -> str:
    """Return the page `/inspector`, the same for all clients."""
    return _templates().get_template("inspector.html").render(formats=sorted(format_names()), version=__version__)


@cache
def assets() -> Mapping[str, tuple[bytes, str]]:
    """Return the content and the media type of each asset by its name."""
    return {file.name: (file.read_bytes(), _TYPES[file.suffix]) for file in (_HERE / "assets").iterdir()}


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - see above

    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["brief"] = format_duration
    return made


def add(app: FastAPI, config: Config, auth: Authenticator) -> None:
    """Add the routes of the overview, and the pages and the inspector if they are enabled."""

    async def read_overview() -> Overview:
        return await build_overview(config, app.state.directory, app.state.telemetry)

    @app.get("/admin/overview", include_in_schema=False)
    async def document(request: Request) -> Response:
        """Return the overview, for a key of the scope admin."""
        await auth.authenticate(request, "admin")
        data = json.encode(await read_overview())
        return Response(data, media_type="application/json", headers={"cache-control": "no-store"})

    if config.inspector.enabled:
        _add_pages(app, config, auth, read_overview)
        _add_inspector(app, config, auth)


def _add_pages(
    app: FastAPI, config: Config, auth: Authenticator, read_overview: Callable[[], Awaitable[Overview]]
) -> None:
    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        """Show the overview; without the needed key only how to use the gateway."""
        shown = None
        if not config.auth.keys or any(name in request.headers for name in _KEYS):
            await auth.authenticate(request, "admin")
            shown = await read_overview()
        root = str(request.base_url).rstrip("/")
        return HTMLResponse(await asyncio.to_thread(render_overview, root, shown), headers=HEADERS)

    @app.get("/assets/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        """Serve an asset of the pages; none is secret."""
        found = assets().get(name)
        if not found:
            raise NotFound(f"Invalid URL (GET /assets/{name}).")
        data, type = found
        return Response(data, headers={**ASSET_HEADERS, "content-type": type})


class _ReplayOrder(Struct):
    format: str


def _add_inspector(app: FastAPI, config: Config, auth: Authenticator) -> None:
    _add_page(app)
    _add_reading(app, auth)
    _add_recordings(app, config, auth)

    @app.get(_ONE, include_in_schema=False)  # added last, as its path also matches those of the other routes
    async def head(request: Request, id: str) -> Response:
        """Show one request."""
        return _answer(exchange_detail(await _asked_for(app, auth, request, id)))


def _add_page(app: FastAPI) -> None:
    @app.get("/inspector", include_in_schema=False)
    async def inspector() -> Response:
        """Serve the page without data: its script requests all data with the key that the user enters."""
        return HTMLResponse(await asyncio.to_thread(render_inspector), headers=HEADERS)


def _add_reading(app: FastAPI, auth: Authenticator) -> None:
    @app.get(_LIST, include_in_schema=False)
    async def exchanges(request: Request) -> Response:
        """List the exchanges, filtered by `model` (a part), `status` (`live`, `200`, `4xx`) and warning `code`."""
        await auth.authenticate(request, "admin")
        wanted = [request.query_params.get(name, "") for name in ("model", "status", "code")]
        return _answer({"exchanges": list_exchanges(app.state.telemetry.recorder.recent, *wanted)})

    @app.get(f"{_ONE}/entries", include_in_schema=False)
    async def entries(request: Request, id: str) -> Response:
        """Show the entries after number `after`, or from the beginning."""
        found, after = await _asked_for(app, auth, request, id), -1
        with suppress(ValueError):
            after = max(-1, int(request.query_params.get("after", "")))
        secrets = app.state.telemetry.recorder.secrets
        return _answer(await asyncio.to_thread(entries_page, found, after, secrets))


def _add_recordings(app: FastAPI, config: Config, auth: Authenticator) -> None:
    replays = ReplayRunner()

    async def file(found: Recording, *, contents: bool) -> bytes:
        secrets = app.state.telemetry.recorder.secrets
        return await asyncio.to_thread(recording_file, found, secrets, contents=contents)

    @app.get(f"{_ONE}/recording", include_in_schema=False)
    async def recording(request: Request, id: str) -> Response:
        """Return the recording as a file, with contents only if recording files may have them."""
        found = await _asked_for(app, auth, request, id)
        headers = {**_NOT_KEPT, "content-disposition": 'attachment; filename="recording.jsonl"'}
        data = await file(found, contents=config.recording.content)
        return Response(data, media_type="application/jsonl", headers=headers)

    @app.post(f"{_ONE}/replay", include_in_schema=False)
    async def replay(request: Request, id: str) -> Response:
        """Show the differences in another `format`."""
        found = await _asked_for(app, auth, request, id)
        try:
            wish = json.decode(await request.body(), type=_ReplayOrder)
        except (DecodeError, ValidationError, UnicodeDecodeError):
            raise BadRequest("The body must be a JSON object with a 'format'.", param="format") from None
        if not found.over:
            raise BadRequest("The exchange is still running. Retry when it is complete.")
        return _answer(await replays.replay(await file(found, contents=True), wish.format))


async def _asked_for(app: FastAPI, auth: Authenticator, request: Request, id: str) -> Recording:
    await auth.authenticate(request, "admin")
    return find_exchange(app.state.telemetry.recorder.recent, id, request.query_params.get("started", ""))


def _answer(data: Any) -> Response:  # noqa: ANN401 - any value that msgspec encodes
    return Response(json.encode(data), media_type="application/json", headers=_NOT_KEPT)
