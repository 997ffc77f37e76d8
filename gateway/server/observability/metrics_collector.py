"""Convert the records of requests, and the state of the backends, to metric values."""

from collections.abc import Mapping
from typing import get_args

from gateway.errors import Problem
from gateway.routing.health import CircuitState
from gateway.server.observability.metrics import (
    BETWEEN,
    CIRCUIT,
    DURATION,
    FIRST_TOKEN,
    FORMATS,
    HEALTHY,
    LEDGER,
    QUEUE,
    RECEIVED,
    REQUESTS,
    SENT,
    STORED,
    TOKENS,
)
from gateway.server.observability.metrics_store import MetricValues, SeriesByMetric
from gateway.server.observability.request_record import RequestRecord
from gateway.server.observability.snapshot import BackendStatus

_SORTS = ("input", "output", "cached", "reasoning")  # kinds of tokens
_KINDS = {
    "upstream_unreachable": "unreachable",
    "upstream_timeout": "timeout",
    "upstream_lost": "lost",
    "upstream_auth_error": "auth",
    "model_loading": "loading",
    "server_is_overloaded": "overloaded",
    "rate_limit_exceeded": "rate_limit",
}


class MetricsCollector:
    """Count finished requests; the series of each combination of labels is looked up once."""

    def __init__(self, tally: MetricValues) -> None:
        self._tally = tally
        self._requests: dict[tuple[str, str, str, int], list[list[float]]] = {}
        self._answers: dict[tuple[str, str], list[list[float]]] = {}

    def count(self, record: RequestRecord) -> None:
        """Count a finished request."""
        sort = record.endpoint, record.model, record.backend, record.outcome
        requests, received, sent = self._requests.get(sort) or self._of_request(*sort)
        requests[0] += 1
        received[0] += record.received
        sent[0] += record.sent
        if codes := record.ledger.codes():
            for code, times in codes.items():
                self._tally.count(LEDGER, (code,), times)
        if record.stored:
            self._tally.count(STORED)
        if record.backend:
            self._count_answer(record)

    def _count_answer(self, record: RequestRecord) -> None:
        sort = record.model, record.format
        given, made, cached, thought, *read = self._answers.get(sort) or self._of_answer(*sort)
        used = record.usage()
        given[0] += used.prompt
        made[0] += used.completion
        cached[0] += used.cached
        thought[0] += used.reasoning
        for one in read:
            one[0] += 1
        self._tally.observe(DURATION, record.ended - record.arrived)
        if record.streamed and (first := record.pace.first_content) is not None:
            self._tally.observe(FIRST_TOKEN, first - record.arrived)
            self._tally.add(BETWEEN, (*record.pace.gaps, record.pace.last - first))

    def _of_request(self, endpoint: str, model: str, backend: str, outcome: int) -> list[list[float]]:
        labels = endpoint, model, backend, str(outcome)
        cells = [
            self._tally.series_values(REQUESTS, labels),
            *(self._tally.series_values(one, (endpoint,)) for one in (RECEIVED, SENT)),
        ]
        return self._requests.setdefault((endpoint, model, backend, outcome), cells)

    def _of_answer(self, model: str, format: str) -> list[list[float]]:
        """Return the token counts of a model, and the count of the format if there is one."""
        cells = [self._tally.series_values(TOKENS, (model, one)) for one in _SORTS]
        read = [self._tally.series_values(FORMATS, (format,))] if format else []
        return self._answers.setdefault((model, format), [*cells, *read])


def upstream_error_kind(problem: Problem) -> str | None:
    """Return the label of a backend's failure; None if the request is at fault."""
    if problem.status < 500 and problem.status != 429:
        return None
    return _KINDS.get(problem.code or "", "error")


def backend_states(backends: Mapping[str, BackendStatus], now: float) -> SeriesByMetric:
    """Return the state of each backend in this process; now: in the event loop's time."""
    tally = MetricValues((HEALTHY, CIRCUIT, QUEUE))
    for name, backend in backends.items():
        health = backend.gate.health
        state = health.state(now)
        tally.count(HEALTHY, (name,), state == "closed" and not health.ejected(now))
        tally.count(QUEUE, (name,), backend.gate.turns.waiting)
        for one in get_args(CircuitState):
            tally.count(CIRCUIT, (name, one), one == state)
    return tally.series
