"""Choose a model of the gateway that fits a client."""

from collections.abc import Collection, Iterator, Sequence

import msgspec
from msgspec import Struct

from gateway.launch.client import Client

_OK = "ok"  # the state of a reachable backend in GET /ready
_ROOM = 2  # the window has to be this many times as long as the client's own prompt


class OfferedModel(Struct, frozen=True):
    """An entry of the gateway's list of models.

    context_length: in tokens; None: unknown.
    capabilities: a subset of vision, audio, tools, reasoning and embeddings; None: unknown.
    """

    id: str
    context_length: int | None = None
    capabilities: tuple[str, ...] | None = None


class _ModelList(Struct, frozen=True):
    data: tuple[OfferedModel, ...]


class _Readiness(Struct, frozen=True):
    backends: dict[str, str] = {}


class ModelChoice(Struct, frozen=True):
    """A model for a client, with the reasons why it may not fit."""

    model: OfferedModel
    problems: tuple[str, ...] = ()


def read_models(body: bytes) -> tuple[OfferedModel, ...]:
    """Return the models of a response to GET /v1/models.  Raises msgspec.MsgspecError for any other response."""
    return msgspec.json.decode(body, type=_ModelList).data


def read_backend_states(body: bytes) -> dict[str, bool]:
    """Return which backends a response to GET /ready calls reachable, by name; none for any other response."""
    try:
        states = msgspec.json.decode(body, type=_Readiness).backends
    except msgspec.MsgspecError:
        return {}
    return {name: state == _OK for name, state in states.items()}


def choose_model(
    client: Client, listed: Sequence[OfferedModel], wanted: str | None = None, down: Collection[str] = ()
) -> ModelChoice | None:
    """Return the wanted model, else the first that fits, else that with the fewest problems; None if there is no model.

    A wanted model does not have to be listed: it may be an alias.
    down: the models without a reachable backend; they come last.
    """
    if wanted is not None:
        models = [one for one in listed if one.id == wanted] or [OfferedModel(wanted)]
    else:
        models = [one for one in listed if "embeddings" not in (one.capabilities or ())]
    choices = [ModelChoice(one, tuple(misfits(client, one))) for one in models]
    return min(choices, key=lambda choice: (choice.model.id in down, len(choice.problems)), default=None)


def misfits(client: Client, model: OfferedModel) -> Iterator[str]:
    """Yield the reasons why the model does not fit the client."""
    if client.tools and model.capabilities is not None and "tools" not in model.capabilities:
        yield f"{client.title} needs a model that calls tools; the template of {model.id!r} has no tools."
    least = client.prompt_tokens * _ROOM
    if model.context_length is not None and model.context_length < least:
        yield (
            f"The window of {model.id!r} has {model.context_length} tokens. The prompt of {client.title} alone takes "
            f"about {client.prompt_tokens}: give the model a window of at least {least} tokens."
        )
