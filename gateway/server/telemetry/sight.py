"""Take a snapshot of one worker: its current and recent requests, and the state of its backends."""

from time import perf_counter, time

from msgspec import Struct

from gateway.errors import Problem
from gateway.server import logs
from gateway.server.telemetry.line import error_code
from gateway.server.telemetry.observation import RequestRecord

# Of these the gateway has the words itself; others may quote a request, or an answer.
_OURS = frozenset(("upstream_unreachable", "upstream_lost", "upstream_auth_error", "store_unavailable"))


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
    now, used, pace, problem = perf_counter(), seen.spent(), seen.pace, seen.problem
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
        asked=_since(seen, seen.asked),
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
