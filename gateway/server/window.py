"""How long the context of a route's model really is, and what else is known of it."""

import asyncio
from functools import reduce
from operator import and_

from gateway.backends.knowledge import ModelMetadata
from gateway.server.directory import BackendRoute, ModelEntry


async def metadata_of_model(served: ModelEntry) -> ModelMetadata:
    """Return the metadata that holds at every backend of the model."""
    return reduce(and_, await asyncio.gather(*map(metadata_of_route, served.routes.values())))


async def metadata_of_route(route: BackendRoute) -> ModelMetadata:
    """Return the server's metadata, else its entry in the list; wait for a second at most."""
    backend, model = route.backend, route.upstream_model
    return await backend.learner.known(model) | ModelMetadata(backend.listed_window(model))


def remembered(route: BackendRoute) -> int | None:
    """Return the window in tokens if the gateway knows it by now, without asking the backend."""
    backend, model = route.backend, route.upstream_model
    return backend.listed_window(model) or backend.learner.told(model).window


async def context_length(route: BackendRoute) -> int | None:
    """Return the context length in tokens, None if unknown."""
    return (await metadata_of_route(route)).window
