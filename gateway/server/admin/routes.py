"""Serve the overview and the inspector, as pages and as JSON.

Templates escape all values.  The pages' policy allows only scripts and styles of this server.  Jinja is imported for
the first page, as most gateways serve none.
"""

import asyncio
import gzip
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request
from msgspec import DecodeError, Struct, ValidationError, json
from starlette.responses import HTMLResponse, Response

from gateway import __version__
from gateway.code_texts import CODES, ENTRIES, code_title
from gateway.config import InspectorSettings, has_open_pages
from gateway.errors import BadRequest, NotFound
from gateway.formats import format_names
from gateway.recording import Recording
from gateway.server.admin.api_docs import read_operations
from gateway.server.admin.exchange import conversation_view
from gateway.server.admin.exchange_failure import has_failed
from gateway.server.admin.exchange_list import exchange_filter, exchange_page
from gateway.server.admin.exchange_view import exchange_view
from gateway.server.admin.hour import area_path, bars_path, line_path
from gateway.server.admin.inspector import (
    entries_page,
    find_exchange,
    recording_file,
)
from gateway.server.admin.overview import build_overview
from gateway.server.admin.overview_model import Overview, WorkersView, format_duration
from gateway.server.admin.recording_files import RecordingFiles
from gateway.server.admin.usage import read_usage_table
from gateway.server.admin.usage_page import UsageTable
from gateway.server.middleware.auth import authenticate
from gateway.server.observability.recorder import SUMMARIES

if TYPE_CHECKING:
    from jinja2 import Environment


_HERE = Path(__file__).parent
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_COMMENTS = {".css": re.compile(r"/\*.*?\*/", re.DOTALL), ".js": re.compile(r"^\s*//.*$", re.MULTILINE)}
_SPACE = re.compile(r"\s*([{};,])\s*|(?<=:) ")  # in styles; one between a selector and its `:` has a meaning
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
_ASSET_HEADERS: Mapping[str, str] = MappingProxyType({**_SAFE, "cache-control": "no-cache", "vary": "accept-encoding"})
_KEPT_HEADERS: Mapping[str, str] = MappingProxyType(
    {**_ASSET_HEADERS, "cache-control": "public, max-age=31536000, immutable"}  # seconds: a year
)
_KEYS = ("authorization", "api-key", "x-api-key")  # names of headers
_LIST = "/admin/exchanges"
_ONE = "/admin/exchanges/{id:path}"
_NOT_KEPT = {"cache-control": "no-store"}
router = APIRouter()
inspector_router = APIRouter()


def render_key_prompt(path: str, *, keyed: bool) -> str:
    """Return the page of a path for a client that may not see it.  keyed: a key of the scope admin opens it."""
    return _templates().get_template("key.html").render(path=path, keyed=keyed)


def render_home(root: str, overview: Overview, *, keyed: bool, model: str) -> str:
    """Return the page `/`: the overview, and before the first request what to paste into clients.

    root: the base URL of the gateway; keyed: it has keys; model: the one that the reader chose.
    """
    from gateway.server.admin.first_run import build_first_run, is_first_run  # noqa: PLC0415 - it imports Jinja

    if is_first_run(overview):
        guide = build_first_run(overview, root, keyed=keyed, wanted=model)
        return _templates().get_template("first_run.html").render(guide=guide)
    return _templates().get_template("overview.html").render(root=root, overview=overview)


def render_usage(table: UsageTable | None) -> str:
    """Return the page `/usage`.  table: None if the store keeps no usage."""
    if table is None:
        return _templates().get_template("usage_off.html").render()
    return _templates().get_template("usage.html").render(table=table)


def render_inspector(settings: InspectorSettings, *, one: bool) -> str:
    """Return the page `/inspector`, the same for all clients.  one: the page of one request instead of the list."""
    if not settings.enabled:
        return _templates().get_template("inspector_off.html").render()
    if one:
        return _templates().get_template("exchange.html").render(formats=sorted(format_names()))
    titles = {code: code_title(code) for code in CODES}
    page = _templates().get_template("inspector.html")
    return page.render(kept=SUMMARIES, recordings=settings.recordings, warnings=titles)


def render_playground(*, keyed: bool, inspector: bool) -> str:
    """Return the page `/playground`.  inspector: answers link to it; keyed: as for `render_home`."""
    return _templates().get_template("playground.html").render(keyed=keyed, inspector=inspector)


def render_api_docs(document: Mapping[str, Any], root: str, *, keyed: bool) -> str:
    """Return the page `/docs`.  document: the OpenAPI description; root, keyed: as for `render_home`."""
    page = _templates().get_template("docs.html")
    return page.render(groups=read_operations(document), root=root, keyed=keyed)


def render_warnings() -> str:
    """Return the page `/docs/warnings`, the same for all clients."""
    return _templates().get_template("warnings.html").render(codes=CODES, entries=ENTRIES)


@cache
def assets() -> Mapping[str, tuple[bytes, str]]:
    """Return the content and the media type of each asset by its name.  All pages have the tokens, before the rest."""
    found = {file.name: (_as_sent(file), _TYPES[file.suffix]) for file in (_HERE / "assets").iterdir()}
    tokens, type = found.pop("tokens.css")
    return {**found, "base.css": (tokens + found["base.css"][0], type)}


def _as_sent(file: Path) -> bytes:
    """Return an asset without comments, indentation and, in styles, spaces, which are a tenth of its size."""
    text = file.read_text("utf-8")
    if comment := _COMMENTS.get(file.suffix):
        text = "\n".join(filter(None, map(str.strip, comment.sub("", text).splitlines())))
    if file.suffix == ".css":
        text = _SPACE.sub(r"\1", text).replace(";}", "}")
    return text.encode()


@cache
def _gzipped(name: str) -> bytes:
    return gzip.compress(assets()[name][0], mtime=0)


@cache
def assets_url() -> str:
    """Return the address of the assets.  It has a digest of all of them, so browsers may keep them for good."""
    digest = sha256()
    for name, (data, _) in sorted(assets().items()):
        digest.update(name.encode() + b"\0" + data)
    return f"/assets/{digest.hexdigest()[:12]}"


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
    made.globals |= {"assets_url": assets_url(), "version": __version__}
    made.globals |= {"line_path": line_path, "area_path": area_path, "bars_path": bars_path}
    return made


async def _read_overview(app: FastAPI) -> Overview:
    return await build_overview(app.state.config, app.state.directory, app.state.telemetry)


@router.get("/admin/overview", include_in_schema=False)
async def document(request: Request) -> Response:
    """Return the overview, for a key of the scope admin."""
    await authenticate(request, "admin")
    data = json.encode(await _read_overview(request.app))
    return Response(data, media_type="application/json", headers={"cache-control": "no-store"})


@router.get("/admin/first-run", include_in_schema=False)
async def first_run(request: Request) -> Response:
    """Return what to paste into clients, for a key of the scope admin.  The query's `model` is the one in all texts."""
    from gateway.server.admin.first_run import build_first_run  # noqa: PLC0415 - it imports Jinja

    await authenticate(request, "admin")
    keyed, model = request.app.state.config.auth.needs_key, request.query_params.get("model", "")
    overview, root = await _read_overview(request.app), _root(request)
    return _answer(await asyncio.to_thread(build_first_run, overview, root, keyed=keyed, wanted=model))


async def _key_prompt(request: Request) -> Response | None:
    """Return the page for a client without a key; None if it has one or needs none.  Raise for a wrong one."""
    state = request.app.state
    keyed = state.config.auth.needs_key
    has_key = keyed and any(name in request.headers for name in _KEYS)
    if not (has_open_pages(state.config) or has_key or state.authenticator.signed_in(request)):
        return await _page(render_key_prompt, request.url.path, keyed=keyed)
    await authenticate(request, "admin")
    return None


@router.get("/", include_in_schema=False)
async def index(request: Request) -> Response:
    """Show the overview; to a client that may not see it, which key it needs."""
    if prompt := await _key_prompt(request):
        return prompt
    keyed, model = request.app.state.config.auth.needs_key, request.query_params.get("model", "")
    return await _page(render_home, _root(request), await _read_overview(request.app), keyed=keyed, model=model)


@router.get("/usage", include_in_schema=False)
async def usage(request: Request) -> Response:
    """Show the usage of keys and models; to a client that may not see it, which key it needs."""
    if prompt := await _key_prompt(request):
        return prompt
    return await _page(render_usage, await read_usage_table(request.app, request.query_params))


@router.get("/playground", include_in_schema=False)
async def playground(request: Request) -> Response:
    """Serve the page without data: its script sends all requests with the key that the user enters."""
    config = request.app.state.config
    return await _page(render_playground, keyed=config.auth.needs_key, inspector=config.inspector.enabled)


@router.get("/inspector", include_in_schema=False)
async def inspector(request: Request) -> Response:
    """Serve the page without data: its script requests all data with the key that the user enters."""
    one = "id" in request.query_params
    return await _page(render_inspector, request.app.state.config.inspector, one=one)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """Describe the API.  Neither the page nor the OpenAPI document has a secret."""
    keyed = request.app.state.config.auth.needs_key
    return await _page(render_api_docs, request.app.openapi(), _root(request), keyed=keyed)


@router.get("/docs/warnings", include_in_schema=False)
async def warnings() -> Response:
    """Say what warnings mean."""
    return await _page(render_warnings)


@router.get("/assets/{digest}/{name}", include_in_schema=False)
async def asset(request: Request, digest: str, name: str) -> Response:
    """Serve an asset of the pages; none is secret.  A page of another version gets it too, but may not keep it."""
    path = f"/assets/{digest}"
    found = assets().get(name)
    if not found:
        raise NotFound(f"Invalid URL (GET {path}/{name}).")
    data, type = found
    headers = {**(_KEPT_HEADERS if path == assets_url() else _ASSET_HEADERS), "content-type": type}
    if "gzip" in map(str.strip, request.headers.get("accept-encoding", "").split(",")):
        return Response(_gzipped(name), headers={**headers, "content-encoding": "gzip"})
    return Response(data, headers=headers)


def _root(request: Request) -> str:
    """Return the URL of the gateway as the browser has it, without a path."""
    return str(request.base_url).rstrip("/")


async def _page(render: Callable[..., str], *values: object, **more: object) -> Response:
    return HTMLResponse(await asyncio.to_thread(render, *values, **more), headers=HEADERS)


@inspector_router.get(_LIST, include_in_schema=False)
async def exchanges(request: Request) -> Response:
    """List the exchanges of all workers, filtered as `ExchangeFilter` describes."""
    await authenticate(request, "admin")
    wanted, telemetry = exchange_filter(request.query_params), request.app.state.telemetry
    sights = await telemetry.snapshots(request.app.state.directory.backends)
    files: RecordingFiles = request.app.state.recording_files
    written = await asyncio.to_thread(files.summaries)
    several = [*written, *(one for sight in sights for one in sight.exchanges)]
    kept = {(one.id, one.started) for one in (*written, *telemetry.recorder.recent)}
    workers = WorkersView(request.app.state.config.server.workers, len(sights))
    return _answer(exchange_page(several, wanted, kept, workers, files.unreadable))


@inspector_router.get(f"{_ONE}/entries", include_in_schema=False)
async def entries(request: Request, id: str) -> Response:
    """Show the entries after number `after`, or from the beginning."""
    found, after = await _requested_recording(request, id), -1
    with suppress(ValueError):
        after = max(-1, int(request.query_params.get("after", "")))
    secrets = request.app.state.telemetry.recorder.secrets
    return _answer(await asyncio.to_thread(entries_page, found, after, secrets))


@inspector_router.get(f"{_ONE}/conversation", include_in_schema=False)
async def conversation(request: Request, id: str) -> Response:
    """Show the messages, the tools and the response."""
    found, secrets = await _requested_recording(request, id), request.app.state.telemetry.recorder.secrets
    return _answer(await asyncio.to_thread(conversation_view, found, secrets))


class _ReplayOrder(Struct):
    format: str


async def _file(request: Request, found: Recording, *, contents: bool) -> bytes:
    secrets = request.app.state.telemetry.recorder.secrets
    return await asyncio.to_thread(recording_file, found, secrets, contents=contents)


@inspector_router.get(f"{_ONE}/recording", include_in_schema=False)
async def recording(request: Request, id: str) -> Response:
    """Return the recording as a file, with contents only if recording files may have them."""
    found = await _requested_recording(request, id)
    headers = {**_NOT_KEPT, "content-disposition": 'attachment; filename="recording.jsonl"'}
    data = await _file(request, found, contents=request.app.state.config.recording.content)
    return Response(data, media_type="application/jsonl", headers=headers)


@inspector_router.post(f"{_ONE}/replay", include_in_schema=False)
async def replay(request: Request, id: str) -> Response:
    """Show the differences in another `format`."""
    found = await _requested_recording(request, id)
    try:
        wish = json.decode(await request.body(), type=_ReplayOrder)
    except (DecodeError, ValidationError, UnicodeDecodeError):
        raise BadRequest("The body must be a JSON object with a 'format'.", param="format") from None
    if not found.over:
        raise BadRequest("The exchange is still running. Retry when it is complete.")
    return _answer(await request.app.state.replays.replay(await _file(request, found, contents=True), wish.format))


@inspector_router.get(_ONE, include_in_schema=False)  # added last, as its path also matches those of the other routes
async def head(request: Request, id: str) -> Response:
    """Show one request."""
    found = await _requested_recording(request, id)
    state, telemetry = request.app.state, request.app.state.telemetry
    several = [*await asyncio.to_thread(state.recording_files.summaries), *telemetry.recorder.recent]
    workers = await telemetry.snapshots(state.directory.backends) if has_failed(found) else ()
    minutes = [minute for worker in workers for minute in worker.minutes]
    secrets = telemetry.recorder.secrets
    return _answer(await asyncio.to_thread(exchange_view, found, several, minutes, secrets))


async def _requested_recording(request: Request, id: str) -> Recording:
    """Return the exchange that a request asks for, if its key has the scope admin."""
    await authenticate(request, "admin")
    started, state = request.query_params.get("started", ""), request.app.state
    if found := find_exchange(state.telemetry.recorder.recent, id, started):
        return found
    return await asyncio.to_thread(state.recording_files.find, id, started)


def _answer(data: Any) -> Response:  # noqa: ANN401 - any value that msgspec encodes
    return Response(json.encode(data), media_type="application/json", headers=_NOT_KEPT)
