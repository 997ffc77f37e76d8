"""Map models to the backends that serve them: by the configuration, then by the lists of the backends.

Probes run in the background, so a recovered backend is found before a request has to try it.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from functools import cached_property, partial, reduce
from itertools import islice
from operator import and_
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends import Kind
from gateway.backends.model_metadata import ModelMetadata
from gateway.backends.openai.messages import MessagePolicy
from gateway.config import Config, ModelSettings, TargetSettings
from gateway.errors import GatewayError, NotFound, Problem
from gateway.formats import FORMATS, canonical_name
from gateway.formats.response_template.compiler import compile_template
from gateway.formats.spec import FormatSpec
from gateway.routing import Balancer, BalancerMember, RetryBudget
from gateway.server.observability.logs import survive
from gateway.server.upstream.backend import Backend, ListedModel

_JITTER = 0.1  # so that many gateways do not probe at the same time
FailureCallback = Callable[[str, Problem], None]
_UNKNOWN = "The model '{}' does not exist or you do not have access to it. {}"
_NAMED, _COMPARED = 8, 100  # models in the error of an unknown one, and models that its name is compared with
_LONGEST = 64  # characters of a name that are compared


async def probe_forever(backend: Backend, *, always: bool) -> None:
    """Probe a backend every `probe_seconds`; without `always` only while its circuit is not closed."""
    clock = asyncio.get_running_loop().time
    while seconds := backend.probe_seconds:
        await asyncio.sleep(seconds * random.uniform(1 - _JITTER, 1 + _JITTER))
        if always or backend.limiter.health.state(clock()) != "closed":
            with survive("the probe of a backend"):
                backend.limiter.record_probe(succeeded=await backend.alive())


def unknown_model_error(name: str, names: Iterable[str]) -> NotFound:
    """Return the error of an unknown model, with the models that there are, those with a similar name first."""
    known = [*islice(dict.fromkeys(names), _COMPARED)]
    near = get_close_matches(name[:_LONGEST], [one for one in known if len(one) <= _LONGEST], _NAMED)
    shown = [*dict.fromkeys([*near, *known])]
    more = ", …" if len(shown) > _NAMED else ""
    there = f"There are: {', '.join(shown[:_NAMED])}{more}" if shown else "There are no models"
    return NotFound(_UNKNOWN.format(name, f"{there}."), code="model_not_found", param="model")


class BackendRoute(Struct, frozen=True, dict=True):
    """A model at one backend.

    model: the name for clients; upstream_model: the name at the backend.
    response_template: the operator's own format, compiled from the configuration.
    """

    model: str
    settings: ModelSettings
    backend: Backend
    upstream_model: str
    response_template: FormatSpec | None = None

    def format_spec(self, format: str) -> FormatSpec:
        """Return the row of a format by its name."""
        return self.response_template or FORMATS[format]

    @cached_property
    def format(self) -> str:
        """The canonical name of the configured format."""
        return canonical_name(self.settings.format)

    @cached_property
    def parses_tool_calls(self) -> bool:
        """True if the gateway parses tool calls from the model's text."""
        return self.format not in ("native", "auto")

    @cached_property
    def kind(self) -> Kind:
        """The kind of the backend for this model."""
        return self.backend.unparsed if self.parses_tool_calls else self.backend.kind

    @cached_property
    def configured_window(self) -> int | None:
        """The context length that requests ask Ollama for, by a parameter of the model; None without one."""
        parameters = {**self.settings.defaults, **self.settings.overrides}
        return parameters.get("num_ctx") if self.backend.settings.kind == "ollama" else None

    @cached_property
    def cache(self) -> dict[Hashable, Any]:
        """A cache for values that callers compute once per route, by their inputs."""
        return {}

    @cached_property
    def strict_route(self) -> "BackendRoute":
        """The same route with `strict` set."""
        return replace(self, settings=self.settings.model_copy(update={"strict": True}))

    @cached_property
    def message_policy(self) -> MessagePolicy:
        """The rules for writing the messages of an upstream request."""
        roles, kind = self.settings.roles, self.kind
        return MessagePolicy(
            roles.developer,
            roles.late_system,
            kind.reasoning,
            roles.alternate,
            kind.continues,
            kind.calls_alone,
            kind.names,
            kind.lists,
        )


class ModelEntry:
    """A model with its backends and fallbacks.

    routes: by the name of the backend; any: one of them, for settings that all routes share.
    fallbacks: other models for its requests, each with the failures that lead to it.
    is_limited: the model itself has rate limits.
    """

    def __init__(self, routes: Sequence[BackendRoute], targets: Sequence[TargetSettings]) -> None:
        self.any = routes[0]
        self.model, self.settings = self.any.model, self.any.settings
        self.routes = {route.backend.name: route for route in routes}
        self.fallbacks: list[tuple[ModelEntry, Collection[str]]] = []
        self.budget = RetryBudget()
        self.is_limited = any(self.settings.limits.model_dump().values())
        members = [
            BalancerMember(
                route.backend.name,
                target.weight,
                target.priority,
                route.backend.limiter.health,
                route.backend.limiter.queue,
            )
            for route, target in zip(routes, targets, strict=True)
        ]
        self.balancer = Balancer(members, random.random)


class ModelRegistry:
    """The models of the gateway and the backends that serve them.

    failed: called after each failed attempt with the name of the backend and the problem.
    """

    def __init__(self, config: Config, failed: FailureCallback) -> None:
        workers = config.server.workers
        self.backends = {
            name: Backend(name, settings, workers, failed=partial(failed, name))
            for name, settings in config.backends.items()
        }
        self._served = {name: self._serve(name, model) for name, model in config.models.items() if model.backends}
        for served in self._served.values():
            served.fallbacks += [(self._served[one.model], one.when) for one in served.settings.fallback]
        aliases = {alias: name for name, model in config.models.items() for alias in model.aliases}
        self._aliases = {alias: name for alias, name in aliases.items() if not alias.endswith("*")}
        prefixes = [(alias[:-1], name) for alias, name in aliases.items() if alias.endswith("*")]
        self._prefixes = sorted(prefixes, key=lambda prefix: -len(prefix[0]))  # the longest match wins
        configured_backends = {target.name for model in config.models.values() for target in model.backends}
        self._found: dict[tuple[str, str], ModelEntry] = {}
        self._open = [backend for name, backend in self.backends.items() if name not in configured_backends]

    @asynccontextmanager
    async def run_probes(self) -> AsyncIterator[None]:
        """Probe the backends within the block.

        Backends that share a model with another one are also probed while they are healthy.
        """
        shared = {name for served in self._served.values() if len(served.routes) > 1 for name in served.routes}
        probes = [
            asyncio.create_task(probe_forever(backend, always=name in shared))
            for name, backend in self.backends.items()
        ]
        try:
            yield
        finally:
            for probe in probes:
                probe.cancel()
            await asyncio.gather(*probes, return_exceptions=True)

    async def get(self, name: str, allowed: Callable[[str, str], bool] = lambda _, __: True) -> ModelEntry:
        """Return the entry of a model by its name or alias.

        allowed: returns True if an error may show a name of a model to the client.

        Raises NotFound for an unknown model, and the backend's GatewayError if a backend that may have it gives no
        list.
        """
        if served := self._served.get(self.model(name)):
            return served
        if listed := self._in_lists(name):
            return listed
        problem: GatewayError | None = None
        for backend in self._open:
            backend.read_list_soon()  # all at once: each that is unreachable takes seconds
        for backend in self._open:
            try:
                await backend.models()
            except GatewayError as error:
                problem = error
            if backend.lists_model(name):
                return self._listed(name, backend)
        if listed := self._in_lists(name):
            return listed
        try:
            raise problem or unknown_model_error(name, [one for one in self._names() if allowed(one, self.model(one))])
        finally:
            del problem  # an error's traceback has this frame: a cycle with the request

    def _names(self) -> Iterator[str]:
        """Yield all names that clients may use, as far as they are known."""
        yield from (*self._served, *self._aliases)
        for backend in self._open:
            yield from (listed.id for listed in backend.last_list())

    def model(self, name: str) -> str:
        """Return the name of the model behind a name or alias.

        An alias may end in `*`.  The name of a listed model may lack the default start or tag.
        """
        if name in self._served:
            return name
        if name in self._aliases:
            return self._aliases[name]
        prefixed = (model for prefix, model in self._prefixes if name.startswith(prefix))
        return next(prefixed, None) or next((whole for whole, _ in self._listing(name)), name)

    def last_list(self) -> list[ListedModel]:
        """Return all names that clients may use, each once, from the last lists of the backends."""
        found = [ListedModel(name) for name in (*self._served, *self._aliases)]
        found += [listed for backend in self._open for listed in backend.last_list()]
        return [*{listed.id: listed for listed in reversed(found)}.values()][::-1]

    async def list(self) -> list[ListedModel]:
        """Return all names that clients may use, each once; an unreachable backend adds none."""
        await asyncio.gather(*(backend.models() for backend in self._open), return_exceptions=True)
        return self.last_list()

    async def close(self) -> None:
        """Close all backends."""
        for backend in self.backends.values():
            await backend.close()

    def _in_lists(self, name: str) -> ModelEntry | None:
        """Return the entry of a model that a list of a backend has, as last read; None if no list has it."""
        return next((self._listed(*one) for one in self._listing(name)), None)

    def _listing(self, name: str) -> Iterator[tuple[str, Backend]]:
        """Yield the backends whose last list has the model, with its name there: first those with the same name."""
        for backend in self._open:
            if backend.lists_model(name):
                yield name, backend
        for backend in self._open:
            whole = f"{backend.default_start}{name}{backend.default_tag}"
            if whole != name and backend.lists_model(whole):
                yield whole, backend

    def _listed(self, name: str, backend: Backend) -> ModelEntry:
        """Return the cached entry of a model that only a backend's list names."""
        known = self._found.get((name, backend.name))
        if not known:
            known = ModelEntry(
                [BackendRoute(name, ModelSettings(), backend, name)], [TargetSettings(name=backend.name)]
            )
            self._found[name, backend.name] = known
        return known

    def _serve(self, name: str, model: ModelSettings) -> ModelEntry:
        template = model.response_template
        brought = replace(FORMATS["response_template"], parse=compile_template(template)) if template else None
        routes = [
            BackendRoute(
                name, model, self.backends[one.name], one.upstream_model or model.upstream_model or name, brought
            )
            for one in model.backends
        ]
        return ModelEntry(routes, model.backends)


async def metadata_of_model(served: ModelEntry) -> ModelMetadata:
    """Return the metadata that holds at every backend of the model."""
    return reduce(and_, await asyncio.gather(*map(metadata_of_route, served.routes.values())))


async def metadata_of_route(route: BackendRoute) -> ModelMetadata:
    """Return the server's metadata, completed by its entry in the list; wait for at most a second."""
    backend, model = route.backend, route.upstream_model
    known = await backend.metadata_cache.metadata_of(model) | ModelMetadata(backend.listed_window(model))
    return ModelMetadata(route.configured_window) | known


def remembered(route: BackendRoute) -> int | None:
    """Return the known context length in tokens without a request to the backend; None if unknown."""
    if configured := route.configured_window:
        return configured
    backend, model = route.backend, route.upstream_model
    return backend.listed_window(model) or backend.metadata_cache.known_metadata(model).window


async def context_length(route: BackendRoute) -> int | None:
    """Return the context length in tokens, None if unknown."""
    return (await metadata_of_route(route)).window
