"""Build the overview document: the snapshots of the workers, the configuration and the lists of the backends."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from itertools import islice
from time import time
from typing import Literal, TypeVar

from msgspec.structs import replace

from gateway import __version__
from gateway.config import Config
from gateway.errors import GatewayError
from gateway.formats import canonical_name
from gateway.server.admin.hour import BackendHourView, backend_hour, hour_view
from gateway.server.admin.overview_model import (
    BackendView,
    ModelBackendView,
    ModelView,
    Overview,
    ThroughputView,
    WorkersView,
)
from gateway.server.observability.snapshot import (
    SECONDS,
    BackendCondition,
    FailureInfo,
    ModelRate,
    RequestSnapshot,
    WorkerSnapshot,
)
from gateway.server.observability.telemetry import Telemetry
from gateway.server.relay import format_selection
from gateway.server.upstream import model_registry
from gateway.server.upstream.backend import Backend, ListedModel
from gateway.server.upstream.model_registry import BackendRoute, ModelRegistry

BackendState = Literal["healthy", "degraded", "unreachable"]
_SHARE = 0.05  # of the attempts of the last ten minutes: more failures make a backend degraded


_MAX_WAIT = 1.0  # seconds to wait for the backends
_MODELS = 100
_REQUESTS = 100
_FAILED = 50
_Result = TypeVar("_Result")
_Else = TypeVar("_Else")


async def build_overview(config: Config, directory: ModelRegistry, telemetry: Telemetry) -> Overview:
    """Return the overview; backends that do not respond within a second are shown without their data."""
    sights, items = await asyncio.gather(
        telemetry.snapshots(directory.backends),
        asyncio.gather(*map(_model_count, directory.backends.values())),
    )
    rates = [rate for sight in sights for rate in sight.rates]
    now, minutes = time(), [minute for sight in sights for minute in sight.minutes]
    names = _grouped(directory.last_list(), directory)
    models = await asyncio.gather(
        *(_model(name, aliases, config, directory, rates) for name, aliases in islice(names.items(), _MODELS))
    )
    requests = _newest((sight.requests for sight in sights), _REQUESTS)
    return Overview(
        version=__version__,
        time=now,
        window_seconds=SECONDS,
        workers=WorkersView(config.server.workers, len(sights)),
        pace=_pace(rates),
        models=[model for model in models if model],
        models_left_out=max(0, len(names) - _MODELS),
        backends=[
            _server(config, backend, one, sights, now)
            for backend, one in zip(directory.backends.values(), items, strict=True)
        ],
        errors=_newest((sight.failed for sight in sights), _FAILED),
        requests=requests,
        hour=hour_view(minutes, now),
        prompts=_prompts(sights, {one.id for one in requests}),
    )


def _prompts(sights: Iterable[WorkerSnapshot], ids: Collection[str]) -> dict[str, str]:
    summaries = (one for sight in sights for one in sight.exchanges)
    return {one.id: one.prompt for one in summaries if one.prompt and one.id in ids}


async def _in_time(pending: Awaitable[_Result], otherwise: _Else) -> _Result | _Else:
    try:
        async with asyncio.timeout(_MAX_WAIT):
            return await pending
    except (TimeoutError, GatewayError):
        return otherwise


def _newest(several: Iterable[Sequence[RequestSnapshot]], most: int) -> list[RequestSnapshot]:
    """Return running requests first, then the newest."""
    return sorted((record for one in several for record in one), key=lambda record: (not record.live, -record.arrived))[
        :most
    ]


def _pace(rates: Iterable[ModelRate], counts: Callable[[ModelRate], bool] = lambda _: True) -> ThroughputView:
    counted = [rate for rate in rates if counts(rate)]
    return ThroughputView(
        sum(rate.in_flight for rate in counted),
        round(sum(rate.requests for rate in counted), 3),
        round(sum(rate.tokens for rate in counted), 1),
    )


# Models


def _grouped(listed: Iterable[ListedModel], directory: ModelRegistry) -> dict[str, list[str]]:
    """Return each model with its aliases."""
    names: dict[str, list[str]] = {}
    for one in listed:
        model = directory.model(one.id)
        names.setdefault(model, []).extend([one.id] if model != one.id else [])
    return names


async def _model(
    name: str, aliases: list[str], config: Config, directory: ModelRegistry, rates: Iterable[ModelRate]
) -> ModelView | None:
    """Return the view of a model; None if no backend has it any more."""
    served = await _in_time(directory.get(name), None)
    if not served:
        return None
    known, places = await asyncio.gather(
        model_registry.metadata_of_model(served), asyncio.gather(*map(_place, served.routes.values()))
    )
    return ModelView(
        id=name,
        source="configured" if name in config.models else "listed",
        aliases=aliases,
        context_length=known.window,
        capabilities=known.capabilities,
        pace=_pace(rates, lambda rate: rate.model == name),
        places=places,
    )


async def _place(route: BackendRoute) -> ModelBackendView:
    settings, backend = route.settings, route.backend
    word = canonical_name(settings.format)
    chosen = await _in_time(
        format_selection.format_before_request(route, word), format_selection.format_by_names(route, word)
    )
    return ModelBackendView(
        backend=backend.name,
        upstream_model=route.upstream_model,
        format=chosen.format,
        reason=chosen.reason,
        parsed=backend.kind.parses,
        thought=settings.thought,
        tools=settings.tools,
    )


# Backends


async def _model_count(backend: Backend) -> int | str:
    """Return the number of models that the backend lists, or the reason why it is unknown."""
    try:
        async with asyncio.timeout(_MAX_WAIT):
            return len(await backend.models())
    except TimeoutError:
        return f"Backend '{backend.name}' did not list its models within {_MAX_WAIT:g} s."
    except GatewayError as error:
        return error.problem.message


def _server(
    config: Config, backend: Backend, listed: int | str, sights: Collection[WorkerSnapshot], now: float
) -> BackendView:
    name, settings = backend.name, config.backends[backend.name]
    record = _worst([sight.backends[name] for sight in sights if name in sight.backends])
    rates = [rate for sight in sights for rate in sight.rates if rate.backend == name]
    hour = backend_hour((minute for sight in sights for minute in sight.minutes), name, now)
    problem = listed if isinstance(listed, str) else None
    state, cause = backend_state(settings.url, problem, record, hour)
    return BackendView(
        name=name,
        kind=settings.kind,
        url=settings.url,
        healthy=record.healthy,
        circuit=record.state,
        back_in_seconds=round(record.back_in, 1),
        queued=record.queued,
        concurrent=settings.concurrent,
        pace=_pace(rates),
        models=listed if isinstance(listed, int) else None,
        problem=problem,
        last_failure=record.failure,
        state=state,
        cause=cause,
        hour=hour,
    )


def _worst(several: Collection[BackendCondition]) -> BackendCondition:
    """Return the worst condition that any worker sees, and the last failure that any worker knows."""
    worst = max(several, key=lambda one: (not one.healthy, one.state != "closed", one.back_in))
    failures = [one.failure for one in several if one.failure]
    return replace(
        worst,
        queued=sum(one.queued for one in several),
        failure=max(failures, key=lambda one: one.time, default=None),
    )


def backend_state(
    url: str, problem: str | None, condition: BackendCondition, hour: BackendHourView
) -> tuple[BackendState, str | None]:
    """Return the state of a backend and the cause, None for a healthy one.

    problem: why its models are unknown; hour: its requests.
    unreachable: it gets no requests, or did not respond now; degraded: it does, and some of its attempts fail.
    """
    if not condition.healthy:
        return "unreachable", _refusal(url, condition)
    if problem:
        works = hour.recent_requests > hour.recent_errors
        return "degraded" if works else "unreachable", f"{problem} Its address is {url}."
    if hour.recent_errors > _SHARE * max(hour.recent_requests, hour.recent_errors):
        what = f"{hour.recent_errors} attempt{'s' * (hour.recent_errors != 1)} at {url} failed in the last 10 minutes."
        return "degraded", f"{what}{_last(condition.failure)}"
    return "healthy", None


def _refusal(url: str, condition: BackendCondition) -> str:
    after = f"in {condition.back_in:.0f} s" if condition.back_in >= 1 else "now"
    cause = f"Attempts at {url} failed repeatedly.{_last(condition.failure)}"
    return f"{cause} The next attempt is possible {after}."


def _last(failure: FailureInfo | None) -> str:
    if not failure:
        return ""
    return (
        f" {failure.message}"
        if failure.message
        else f" The last error: {failure.status} {failure.code or ''}".rstrip() + "."
    )
