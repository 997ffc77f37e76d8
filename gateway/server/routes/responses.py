"""/v1/responses/{id}: responses that are stored."""

from functools import partial

from fastapi import FastAPI, Request
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.config import Config
from gateway.endpoints.responses.stored import shown
from gateway.errors import BadRequest, NotFound
from gateway.server.auth import Doorkeeper
from gateway.server.routes import query
from gateway.server.routes.answer import Json
from gateway.server.routes.items import listed
from gateway.store import responses
from gateway.store.responses import Kept
from gateway.store.threads import Broken, Range

_PATH = "/v1/responses/{id}"
_NO_EVENTS = "This response cannot be streamed because it was not created with background=true."


def add(app: FastAPI, _: Config, door: Doorkeeper) -> None:
    @app.get(_PATH)
    async def retrieve_response(request: Request, id: str) -> Json:
        """A response that was stored."""
        tenant, asked = door.tenant(request.headers), query.parameters(request)
        async with app.state.store.reading() as db:
            response = await responses.whole(db, await _found(db, tenant, id))
        if asked.get("stream"):
            raise BadRequest(_NO_EVENTS, param="stream")
        include = asked.get("include", ())
        return Json({**response, "output": [shown(item, include) for item in response["output"]]})

    @app.delete(_PATH)
    async def delete_response(request: Request, id: str) -> Json:
        """Forget a response; no other can go on from it any more."""
        tenant = door.tenant(request.headers)
        async with app.state.store.writing() as db:
            await responses.remove(db, await _found(db, tenant, id))
        return Json({"id": id, "object": "response", "deleted": True})

    @app.post(f"{_PATH}/cancel")
    async def cancel_response(request: Request, id: str) -> None:
        """Refused: whoever waits for a response cancels it by leaving."""
        tenant = door.tenant(request.headers)
        async with app.state.store.reading() as db:
            await _found(db, tenant, id)
        raise BadRequest("Cannot cancel a synchronous response.")

    @app.get(f"{_PATH}/input_items")
    async def list_input_items(request: Request, id: str) -> Json:
        """All that the model was given with a response: the chain before it, and its own input."""
        tenant, page = door.tenant(request.headers), query.page(request)
        show = partial(shown, include=query.include(request))
        async with app.state.store.reading() as db:
            given = await _given(db, await _found(db, tenant, id))
            return Json(await listed(db, tenant, given, page, show))


async def _found(db: AsyncConnection, tenant: str, id: str) -> Kept:
    if kept := await responses.find(db, tenant, id):
        return kept
    raise _not_found(id)


async def _given(db: AsyncConnection, kept: Kept) -> list[Range]:
    try:
        return await responses.effective_input(db, kept)
    except Broken:
        raise _not_found(kept.id) from None


def _not_found(id: str) -> NotFound:
    return NotFound(f"Response with id '{id}' not found.")
