"""Take a snapshot of one worker: its current and recent requests, their rates, and the state of its backends."""

from collections.abc import Iterable
from itertools import chain
from time import perf_counter, time
from typing import Protocol

from msgspec import Struct

from gateway.errors import Problem
from gateway.recording import ExchangeSummary
from gateway.routing.fair_queue import FairQueue
from gateway.routing.health import Health
from gateway.server.observability import logs
from gateway.server.observability.access_log import error_code
from gateway.server.observability.minute_counts import MinuteCounts
from gateway.server.observability.request_record import RequestRecord

# Problems whose messages are the gateway's own; others may quote a request or a response.
_OURS = frozenset(("upstream_unreachable", "upstream_lost", "upstream_auth_error", "store_unavailable"))
SECONDS = 10.0  # period of the rates


class FailureInfo(Struct, frozen=True, gc=False):
    """A failure.  time: Unix seconds; message: only if the log may show content, or if it is the gateway's own."""

    time: float
    status: int
    code: str | None
    message: str | None


class RequestSnapshot(Struct, frozen=True, gc=False):
    """One request, in values that keep nothing else alive, with the field names of the access log.

    arrived: Unix seconds; all other times are seconds since then.  live: it is still running and has no status.
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
        """The end of the request in Unix seconds."""
        return self.arrived + self.duration


class LimiterStatus(Protocol):
    """The part of a BackendLimiter that snapshots and metrics read."""

    @property
    def health(self) -> Health:
        """The health of the backend."""

    @property
    def queue(self) -> FairQueue:
        """The queue of the backend."""


class BackendStatus(Protocol):
    """The part of a Backend that snapshots and metrics read."""

    @property
    def limiter(self) -> LimiterStatus:
        """The queue and the health of the backend."""


class BackendCondition(Struct, frozen=True):
    """The condition of a backend.  state: of its circuit; back_in: seconds until it gets requests again, or 0."""

    state: str
    healthy: bool
    back_in: float
    queued: int
    failure: FailureInfo | None


class ModelRate(Struct, frozen=True):
    """The rate of a model at a backend.  requests: finished ones per second; tokens: of responses, per second."""

    model: str
    backend: str
    in_flight: int
    requests: float
    tokens: float


class WorkerSnapshot(Struct, frozen=True):
    """The state of a worker.

    requests: running ones, then finished ones, the newest first; failed: failed requests, which are kept longer.
    minutes: the counts of the last hour; exchanges: requests for the inspector, with the beginnings of prompts.
    """

    rates: list[ModelRate]
    requests: list[RequestSnapshot]
    failed: list[RequestSnapshot]
    backends: dict[str, BackendCondition]
    minutes: list[MinuteCounts] = []
    exchanges: list[ExchangeSummary] = []


def failure_info(problem: Problem) -> FailureInfo:
    """Return a failure that happens now."""
    return FailureInfo(time(), problem.status, error_code(problem), _message(problem))


def snapshot_request(record: RequestRecord, *, live: bool) -> RequestSnapshot:
    """Return the current values of a request's record."""
    now, used, pace, problem = perf_counter(), record.usage(), record.pace, record.problem
    return RequestSnapshot(  # by place: Python makes a dict of more than 15 keywords, and of any beside a `*`
        record.id,
        record.endpoint,
        record.key,
        record.model,
        record.backend,
        record.format,
        live,
        None if live else record.outcome,
        error_code(problem) if problem else None,
        _message(problem) if problem else None,
        streamed=record.streamed,
        arrived=time() - now + record.arrived,
        asked=_since(record, record.first_attempt_at),
        first_content=_since(record, pace.first_content),
        duration=(now if live else record.ended) - record.arrived,
        input_tokens=used.prompt,
        cached_tokens=used.cached,
        output_tokens=used.completion,
        reasoning_tokens=used.reasoning,
        ledger=record.ledger.codes(),
    )


def _since(record: RequestRecord, moment: float | None) -> float | None:
    return None if moment is None else moment - record.arrived


def _message(problem: Problem) -> str | None:
    return problem.message if problem.code in _OURS or logs.shows_content() else None


def compute_rates(
    live: Iterable[RequestSnapshot], over: Iterable[RequestSnapshot], since: float, now: float
) -> list[ModelRate]:
    """Return the rates of each model at each backend.

    since: time from which all finished requests are known; times are Unix seconds.
    """
    begin = max(now - SECONDS, since)
    seconds = max(now - begin, 0.001)
    found: dict[tuple[str, str], ModelRate] = {}
    recent = (record for record in over if record.ended >= begin)
    for record in chain(live, recent):
        place = record.model, record.backend
        before = found.get(place, ModelRate(*place, 0, 0.0, 0.0))
        found[place] = ModelRate(
            *place,
            in_flight=before.in_flight + record.live,
            requests=before.requests + (not record.live) / seconds,
            tokens=before.tokens + record.output_tokens * _share(record, begin) / seconds,
        )
    return [*found.values()]


def _share(record: RequestSnapshot, begin: float) -> float:
    """Return the share of a request's tokens after `begin`, if they came evenly.

    A response that is not streamed counts from its first attempt.
    """
    first = record.first_content if record.streamed else record.asked
    took = record.duration - (first or 0.0)
    return min(1.0, (record.ended - begin) / took) if took > 0 else 1.0
