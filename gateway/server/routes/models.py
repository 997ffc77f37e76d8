"""Serve /v1/models: as OpenAI's API does, as Anthropic's, or for Codex.

The header `anthropic-version` selects Anthropic's form, the query `client_version` that of Codex.

Codex requires all fields of its `ModelInfo`.  They have the defaults of Codex, unless the gateway knows better values.
"""

import asyncio
from collections.abc import Set
from typing import Any

from fastapi import APIRouter, Request
from msgspec import Struct

from gateway.api.messages import ModelSummary, model_page
from gateway.backends.model_metadata import ModelMetadata
from gateway.server.middleware.auth import authenticate, may_use_model
from gateway.server.middleware.error_responses import is_messages_api
from gateway.server.upstream import model_registry
from gateway.server.upstream.backend import ListedModel
from gateway.server.upstream.model_registry import ModelRegistry

router = APIRouter()

# Codex has instructions for the models it knows, and uses these for the others.
_INSTRUCTIONS = """\
You are a coding agent in a terminal, at work with a user in their workspace.

- Find out before you act: read the files that matter, and search for what you need to know. Do not guess.
- Go on until the task is done. Ask only where you cannot decide, or where something could be lost.
- Make the smallest change that solves the problem at its root, in the style of the code around it. Leave alone what \
has nothing to do with it, and never undo what the user has changed.
- Use the tools that you are offered, with exactly the arguments they describe. Read their output before you go on.
- Run the tests, or whatever shows that your work is right, where you can. Say honestly what you could not check.
- Follow the instructions of AGENTS.md files for all files below the directory they are in.
- Be brief. Say at the end what you changed and where, and what is left to do.
"""


def codex_model(model: str, place: int, window: int | None, abilities: Set[str] | None) -> dict[str, Any]:
    """Return the `ModelInfo` of a model for Codex.

    place: position in the list, from 0; Codex offers the first model first.  window: context length in tokens.
    """
    sees = abilities is None or "vision" in abilities
    return {
        "slug": model,
        "display_name": model,
        "description": None,
        "supported_reasoning_levels": [],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": True,
        "priority": place,
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": _INSTRUCTIONS,
        "supports_reasoning_summaries": False,
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": None,
        "truncation_policy": {"mode": "bytes", "limit": 10_000},
        "supports_parallel_tool_calls": True,
        "context_window": window,
        "experimental_supported_tools": [],
        "input_modalities": ["text", "image"] if sees else ["text"],
    }


class _ListedModelInfo(Struct, frozen=True):
    entry: ListedModel
    metadata: ModelMetadata

    def shown(self) -> dict[str, Any]:
        """Return the model object of OpenAI, with further fields that other servers use."""
        fields = {"id": self.entry.id, "object": "model", "created": self.entry.created, "owned_by": "gateway"}
        length, can = self.metadata.window, self.metadata.capabilities
        return {
            **fields,
            **({"context_length": length, "max_model_len": length} if length else {}),
            **({"capabilities": can} if can is not None else {}),
        }

    def summary(self) -> ModelSummary:
        """Return the model for Anthropic's API."""
        return ModelSummary(self.entry.id, self.metadata.window)


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """List the models that the client may use."""
    key = await authenticate(request)
    directory: ModelRegistry = request.app.state.directory
    listed = [one for one in await directory.list() if may_use_model(key, one.id, directory.model(one.id))]
    found = await asyncio.gather(*(_known(directory, one) for one in listed))
    if is_messages_api(request.scope):
        return model_page([one.summary() for one in found], **_page_query(request))
    fields = {"object": "list", "data": [model.shown() for model in found]}
    return fields | ({"models": _catalogue(found)} if "client_version" in request.query_params else {})


@router.get("/v1/models/{id:path}")
async def model(request: Request, id: str) -> dict[str, Any]:
    """Retrieve a model."""
    key = await authenticate(request)
    directory: ModelRegistry = request.app.state.directory
    listed = [one for one in await directory.list() if may_use_model(key, one.id, directory.model(one.id))]
    entry = next((one for one in listed if one.id == id), None)
    target = directory.model(id)
    if not entry and target != id and may_use_model(key, id, target):
        entry = ListedModel(id)  # a name that an alias with `*` stands for
    if not entry:
        raise model_registry.unknown_model_error(id, [one.id for one in listed])
    found = await _known(directory, entry)
    return found.summary().members() if is_messages_api(request.scope) else found.shown()


def _page_query(request: Request) -> dict[str, str]:
    """Return the parameters of a page of Anthropic's API."""
    query = request.query_params
    return {name: query[name] for name in ("limit", "after_id", "before_id") if name in query}


async def _known(directory: ModelRegistry, listed: ListedModel) -> _ListedModelInfo:
    return _ListedModelInfo(listed, await model_registry.metadata_of_model(await directory.get(listed.id)))


def _catalogue(found: list[_ListedModelInfo]) -> list[dict[str, Any]]:
    """Return the models for Codex, which can use only models that chat."""
    chatting = [model for model in found if "embeddings" not in (model.metadata.abilities or ())]
    return [
        codex_model(model.entry.id, place, model.metadata.window, model.metadata.abilities)
        for place, model in enumerate(chatting)
    ]
