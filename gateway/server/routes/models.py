"""/v1/models: what clients may ask for, and what is known of it."""

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from msgspec import Struct

from gateway.backends.knowledge import ModelMetadata
from gateway.config import Config
from gateway.endpoints import catalogue
from gateway.errors import NotFound
from gateway.server import window
from gateway.server.auth import Authenticator, may_use_model
from gateway.server.backend import ListedModel
from gateway.server.directory import ModelRegistry


class _ListedModelInfo(Struct, frozen=True):
    listed: ListedModel
    known: ModelMetadata

    def shown(self) -> dict[str, Any]:
        """As OpenAI has it, and in the words of other servers what is known."""
        said = {"id": self.listed.id, "object": "model", "created": self.listed.created, "owned_by": "gateway"}
        length, can = self.known.window, self.known.abilities
        return {
            **said,
            **({"context_length": length, "max_model_len": length} if length else {}),
            **({"capabilities": sorted(can)} if can is not None else {}),
        }


def add(app: FastAPI, _: Config, door: Authenticator) -> None:
    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        """The models that a client may name."""
        key = await door.admit(request)
        directory: ModelRegistry = app.state.directory
        listed = [one for one in await directory.list() if may_use_model(key, one.id, directory.model(one.id))]
        found = await asyncio.gather(*(_known(directory, one) for one in listed))
        said = {"object": "list", "data": [model.shown() for model in found]}
        return said | ({"models": _catalogue(found)} if "client_version" in request.query_params else {})

    @app.get("/v1/models/{id:path}")
    async def model(request: Request, id: str) -> dict[str, Any]:
        """One of them."""
        key = await door.admit(request)
        directory: ModelRegistry = app.state.directory
        for listed in await directory.list():
            if listed.id == id and may_use_model(key, id, directory.model(id)):
                return (await _known(directory, listed)).shown()
        message = f"The model '{id}' does not exist or you do not have access to it."
        raise NotFound(message, code="model_not_found", param="model")


async def _known(directory: ModelRegistry, listed: ListedModel) -> _ListedModelInfo:
    return _ListedModelInfo(listed, await window.metadata_of_model(await directory.find(listed.id)))


def _catalogue(found: list[_ListedModelInfo]) -> list[dict[str, Any]]:
    """Return the models for Codex, which wants models that chat."""
    chatting = [model for model in found if "embeddings" not in (model.known.abilities or ())]
    return [
        catalogue.codex_model(model.listed.id, place, model.known.window, model.known.abilities)
        for place, model in enumerate(chatting)
    ]
