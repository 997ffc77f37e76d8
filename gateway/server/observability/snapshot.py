"""Take a snapshot of one worker: its current and recent requests, their rates, and the state of its backends."""

from collections.abc import Iterable
from itertools import chain
from time import perf_counter, time
from typing import Protocol

from msgspec import Struct

from gateway.errors import Problem
from gateway.routing.fair_queue import FairQueue
from gateway.routing.health import Health
from gateway.server.observability import logs
from gateway.server.observability.logs import error_code
from gateway.server.observability.request_record import RequestRecord

# Of these the gateway has the words itself; others may quote a request, or an answer.
_OURS = frozenset(("upstream_unreachable", "upstream_lost", "upstream_auth_error", "store_unavailable"))
SECONDS = 10.0  # that are looked back


class FailureInfo(Struct, frozen=True, gc=False):
    """time: in Unix seconds; message: only where the log may show it, or where it is the gateway's own."""

    time: float
    status: int
    code: str | None
    message: str | None


class RequestSnapshot(Struct, frozen=True, gc=False):
    """One request, in values that keep nothing else alive; the fields are called as those of the log's line.

    arrived: in Unix seconds; all other times are seconds since then.  live: it goes on, and has no status yet.
    """

    id: str
    endpoint: str
    key: str
    model: str
    backend: str
    format: str
    live: bool
    status: int | None
    error: str | None
    message: str | None
    streamed: bool
    arrived: float
    asked: float | None
    first_content: float | None
    duration: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    ledger: dict[str, int]

    @property
    def ended(self) -> float:
        return self.arrived + self.duration


class BackendQueue(Protocol):
    """What they read of the requests at a backend."""

    @property
    def health(self) -> Health: ...
    @property
    def turns(self) -> FairQueue: ...


class BackendStatus(Protocol):
    """What a snapshot and the metrics read of a backend."""

    @property
    def gate(self) -> BackendQueue: ...


class BackendCondition(Struct, frozen=True):
    """A backend.  state: of its circuit; back_in: seconds until it is asked again, 0 if it is."""

    state: str
    healthy: bool
    back_in: float
    queued: int
    failure: FailureInfo | None


class ModelRate(Struct, frozen=True):
    """The rate of a model at a backend.  requests: finished, tokens: of responses, both in a second."""

    model: str
    backend: str
    in_flight: int
    requests: float
    tokens: float


class WorkerSnapshot(Struct, frozen=True):
    """requests: those that go on, then those that are over, the newest first; failed: those of these that came to
    nothing, kept for longer.
    """

    rates: list[ModelRate]
    requests: list[RequestSnapshot]
    failed: list[RequestSnapshot]
    backends: dict[str, BackendCondition]


def failure_info(problem: Problem) -> FailureInfo:
    return FailureInfo(time(), problem.status, error_code(problem), _message(problem))


def snapshot_request(seen: RequestRecord, *, live: bool) -> RequestSnapshot:
    now, used, pace, problem = perf_counter(), seen.usage(), seen.pace, seen.problem
    return RequestSnapshot(
        id=seen.id,
        endpoint=seen.endpoint,
        key=seen.key,
        model=seen.model,
        backend=seen.backend,
        format=seen.format,
        live=live,
        status=None if live else seen.outcome,
        error=error_code(problem) if problem else None,
        message=_message(problem) if problem else None,
        streamed=seen.streamed,
        arrived=time() - now + seen.arrived,
        asked=_since(seen, seen.first_attempt_at),
        first_content=_since(seen, pace.first_content),
        duration=(now if live else seen.ended) - seen.arrived,
        input_tokens=used.prompt,
        cached_tokens=used.cached,
        output_tokens=used.completion,
        reasoning_tokens=used.reasoning,
        ledger=seen.ledger.codes(),
    )


def _since(seen: RequestRecord, moment: float | None) -> float | None:
    return None if moment is None else moment - seen.arrived


def _message(problem: Problem) -> str | None:
    return problem.message if problem.code in _OURS or logs.shows_content() else None


def compute_rates(
    live: Iterable[RequestSnapshot], over: Iterable[RequestSnapshot], since: float, now: float
) -> list[ModelRate]:
    """Of each model at each backend.  since: from then on all that are over are told; times are in Unix seconds."""
    begin = max(now - SECONDS, since)
    seconds = max(now - begin, 0.001)
    found: dict[tuple[str, str], ModelRate] = {}
    recent = (seen for seen in over if seen.ended >= begin)
    for seen in chain(live, recent):
        place = seen.model, seen.backend
        before = found.get(place, ModelRate(*place, 0, 0.0, 0.0))
        found[place] = ModelRate(
            *place,
            in_flight=before.in_flight + seen.live,
            requests=before.requests + (not seen.live) / seconds,
            tokens=before.tokens + seen.output_tokens * _share(seen, begin) / seconds,
        )
    return [*found.values()]


def _share(seen: RequestSnapshot, begin: float) -> float:
    """Of its tokens those that came since then, as if they came evenly: a whole answer from when it was asked for."""
    first = seen.first_content if seen.streamed else seen.asked
    took = seen.duration - (first or 0.0)
    return min(1.0, (seen.ended - begin) / took) if took > 0 else 1.0
