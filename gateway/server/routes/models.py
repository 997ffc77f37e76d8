"""/v1/models: what clients may ask for."""

from typing import Any

from fastapi import FastAPI, Request

from gateway.config import Config
from gateway.errors import NotFound
from gateway.server.auth import Doorkeeper, may_use
from gateway.server.backend import Listed
from gateway.server.directory import Directory


def add(app: FastAPI, _: Config, door: Doorkeeper) -> None:
    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        """The models that a client may name."""
        key = door.admit(request.headers)
        directory: Directory = app.state.directory
        listed = [one for one in await directory.list() if may_use(key, one.id, directory.model(one.id))]
        return {"object": "list", "data": [_model(one) for one in listed]}

    @app.get("/v1/models/{id:path}")
    async def model(request: Request, id: str) -> dict[str, Any]:
        """One of them."""
        key = door.admit(request.headers)
        for listed in await app.state.directory.list():
            if listed.id == id and may_use(key, id, app.state.directory.model(id)):
                return _model(listed)
        message = f"The model '{id}' does not exist or you do not have access to it."
        raise NotFound(message, code="model_not_found", param="model")


def _model(listed: Listed) -> dict[str, Any]:
    return {"id": listed.id, "object": "model", "created": listed.created, "owned_by": "gateway"}
