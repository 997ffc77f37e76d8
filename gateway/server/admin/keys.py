"""Make, change and revoke the API keys of the store over HTTP, for keys of the scope admin.

A change applies in this process before its response, and in others within a second.
"""

import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from msgspec import DecodeError, Struct, ValidationError, json
from starlette.responses import Response

from gateway.config.stored_keys import StoredApiKey
from gateway.errors import BadRequest
from gateway.server.middleware.auth import Authenticator, authenticate
from gateway.server.middleware.proxy_users import PREFIX
from gateway.store import api_keys

if TYPE_CHECKING:
    from gateway.store.api_keys import KeyEdit

_LIST, _ONE = "/admin/keys", "/admin/keys/{name}"
_MAX_GRACE = 366 * 86_400  # seconds
router = APIRouter()


class RotationOrder(Struct):
    """The body of a rotation.  grace_seconds: how long the old key stays valid."""

    grace_seconds: int = 0


@router.get(_LIST, include_in_schema=False)
async def list_keys(request: Request) -> Response:
    """List the keys of the configuration, then those of the store, also expired and revoked ones."""
    await authenticate(request, "admin")
    written = request.app.state.config.auth.keys
    async with request.app.state.store.reading() as db:
        stored = await api_keys.read(db)
    shown = [{"object": "key", **key.model_dump(mode="json", exclude={"key"})} for key in written]
    data = [{**key, "source": "configuration"} for key in shown] + [_shown(api_keys.parse(row.body)) for row in stored]
    return _answer({"object": "list", "data": data})


@router.post(_LIST, include_in_schema=False)
async def add_key(request: Request) -> Response:
    """Add a key; the response alone has the key itself."""
    actor = await _actor(request)
    fields = _decoded(await request.body(), dict[str, Any])
    async with request.app.state.store.writing() as db:
        key, secret = await api_keys.add(db, fields, _edit(request, actor))
    return await _applied(request, key, secret)


@router.patch(_ONE, include_in_schema=False)
async def change_key(request: Request, name: str) -> Response:
    """Change fields of a key; null sets the default."""
    actor = await _actor(request)
    fields = _decoded(await request.body(), dict[str, Any])
    async with request.app.state.store.writing() as db:
        key = await api_keys.change(db, name, fields, _edit(request, actor))
    return await _applied(request, key)


@router.delete(_ONE, include_in_schema=False)
async def revoke_key(request: Request, name: str) -> Response:
    """Revoke a key for good; its name stays in use."""
    actor = await _actor(request)
    async with request.app.state.store.writing() as db:
        key = await api_keys.revoke(db, name, _edit(request, actor))
    return await _applied(request, key)


@router.post(f"{_ONE}/rotate", include_in_schema=False)
async def rotate_key(request: Request, name: str) -> Response:
    """Replace a key; the response alone has the new key itself."""
    actor = await _actor(request)
    order = _decoded(await request.body() or b"{}", RotationOrder)
    if not 0 <= order.grace_seconds <= _MAX_GRACE:
        raise BadRequest(f"'grace_seconds' must be from 0 to {_MAX_GRACE}.", param="grace_seconds")
    async with request.app.state.store.writing() as db:
        key, secret = await api_keys.rotate(db, name, order.grace_seconds, _edit(request, actor))
    return await _applied(request, key, secret)


async def _actor(request: Request) -> str:
    """Return the author of a change for the audit log."""
    key = await authenticate(request, "admin")
    assert key, "with stored keys, each request has one"
    return key.name if key.name.startswith(PREFIX) else f"key:{key.name}"


def _edit(request: Request, actor: str) -> "KeyEdit":
    return api_keys.KeyEdit(int(time.time()), actor, request.app.state.config.auth)


def _decoded(body: bytes, type: Any) -> Any:  # noqa: ANN401 - of the type
    try:
        return json.decode(body, type=type)
    except (DecodeError, ValidationError, UnicodeDecodeError) as error:
        raise BadRequest(f"The body must be a JSON object with fields of a key ({error}).") from None


async def _applied(request: Request, key: StoredApiKey, secret: str | None = None) -> Response:
    """Return the response to a change that applies in this process."""
    auth: Authenticator = request.app.state.authenticator
    assert auth.stored
    await auth.stored.refresh()
    return _answer(_shown(key) | ({"key": secret} if secret else {}))


def _shown(key: StoredApiKey) -> dict[str, Any]:
    return {**key.shown(), "source": "store"}


def _answer(data: dict[str, Any]) -> Response:
    return Response(json.encode(data), media_type="application/json", headers={"cache-control": "no-store"})
