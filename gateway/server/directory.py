"""Which model is served by which backend: what the config says, then what the backends list themselves."""

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from gateway.config import Config, Model
from gateway.errors import GatewayError, NotFound
from gateway.formats import FORMATS
from gateway.formats.response_template import compile
from gateway.formats.row import Row
from gateway.server.backend import Backend, Listed

_UNKNOWN = "The model '{}' does not exist or you do not have access to it."


class Route(Struct, frozen=True):
    """Where a model is served: `model` is the name a client has for it, `upstream_model` the backend's.

    brought: the format that the operator has brought.
    """

    model: str
    settings: Model
    backend: Backend
    upstream_model: str
    brought: Row | None = None

    def row(self, format: str) -> Row:
        """What is known of a format by its name."""
        return self.brought or FORMATS[format]


class Directory:
    def __init__(self, config: Config) -> None:
        self.backends = {name: Backend(name, said) for name, said in config.backends.items()}
        self._routes = {name: self._route(name, model) for name, model in config.models.items() if model.backends}
        self._aliases = {alias: name for name, model in config.models.items() for alias in model.aliases}
        spoken_for = {target.name for model in config.models.values() for target in model.backends}
        self._open = [backend for name, backend in self.backends.items() if name not in spoken_for]

    async def find(self, name: str) -> Route:
        """NotFound for a model nobody serves; Unreachable if a backend that might could not be asked."""
        if route := self._routes.get(self._aliases.get(name, name)):
            return route
        problem: GatewayError | None = None
        for backend in self._open:
            try:
                if not backend.lists(name):
                    await backend.models()
            except GatewayError as error:
                problem = error
            if backend.lists(name):
                return Route(name, Model(), backend, name)
        raise problem or NotFound(_UNKNOWN.format(name), code="model_not_found", param="model")

    def model(self, name: str) -> str:
        """The model that a name means, which may be an alias."""
        return self._aliases.get(name, name)

    async def list(self) -> list[Listed]:
        """All that clients may name, each once; a backend that cannot be asked adds nothing."""
        lists = await asyncio.gather(*(backend.models() for backend in self._open), return_exceptions=True)
        found = [Listed(name) for name in (*self._routes, *self._aliases)]
        found += [listed for one in lists if not isinstance(one, BaseException) for listed in one]
        return list({listed.id: listed for listed in reversed(found)}.values())[::-1]

    async def close(self) -> None:
        for backend in self.backends.values():
            await backend.close()

    def _route(self, name: str, model: Model) -> Route:
        template = model.response_template
        brought = replace(FORMATS["response_template"], parse=compile(template)) if template else None
        return Route(name, model, self.backends[model.backends[0].name], model.upstream_model or name, brought)
