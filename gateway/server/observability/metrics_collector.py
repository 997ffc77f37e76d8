"""Convert the records of requests, and the state of the backends, to metric values."""

from collections.abc import Mapping
from typing import get_args

from gateway.config.models import ModelSettings, model_prices
from gateway.errors import Problem
from gateway.events import Usage
from gateway.routing.health import CircuitState
from gateway.server.observability.metrics import (
    BETWEEN,
    CIRCUIT,
    DURATION,
    FIRST_TOKEN,
    FORMATS,
    GEN_AI_DURATION,
    GEN_AI_FIRST_TOKEN,
    GEN_AI_TOKENS,
    HEALTHY,
    LEDGER,
    PRICE,
    QUEUE,
    RECEIVED,
    REQUESTS,
    SENT,
    STORED,
    TOKENS,
)
from gateway.server.observability.metrics_store import MetricValues, SeriesByMetric, add_values, observe
from gateway.server.observability.request_record import OTHER, RequestRecord
from gateway.server.observability.snapshot import BackendStatus
from gateway.server.observability.spans import operation_name

MAX_MODELS = 200  # values of the label `model` in each worker
TOKEN_KINDS = ("input", "output", "cached", "reasoning")  # kinds of tokens
UPSTREAM_ERROR_KINDS = {
    "upstream_unreachable": "unreachable",
    "upstream_timeout": "timeout",
    "upstream_lost": "lost",
    "upstream_auth_error": "auth",
    "model_loading": "loading",
    "server_is_overloaded": "overloaded",
    "rate_limit_exceeded": "rate_limit",
    "insufficient_quota": "rate_limit",
}


class BoundedLabel:
    """The values of a label: the first `most` ones as they are, all others as `other`."""

    def __init__(self, most: int) -> None:
        self.most, self._known = most, {""}

    def value(self, name: str) -> str:
        """Return the value for a name; an empty name stays empty."""
        if len(self._known) <= self.most:
            self._known.add(name)
        return name if name in self._known else OTHER


class GenAiMetrics:
    """Count finished requests in OpenTelemetry's metrics for generative AI as well (`metrics.gen_ai`).

    kinds: the kind of each backend, which is the provider.
    """

    def __init__(self, tally: MetricValues, kinds: Mapping[str, str]) -> None:
        self._tally, self.kinds = tally, kinds

    def count(self, record: RequestRecord, model: str, used: Usage, first: float | None) -> None:
        """Count a request that a backend got.

        model: the value of the label; first: the time of the first content of a stream, None without one.
        """
        series, outcome = self._tally.series_values, record.outcome
        labels = operation_name(record.endpoint), self.kinds.get(record.backend, ""), model
        error = str(outcome) if outcome >= 400 else ""
        observe(series(GEN_AI_DURATION, (*labels, error)), GEN_AI_DURATION, record.ended - record.arrived)
        if first is not None:
            observe(series(GEN_AI_FIRST_TOKEN, labels), GEN_AI_FIRST_TOKEN, first - record.arrived)
        for type, tokens in ("input", used.prompt), ("output", used.completion):
            if tokens:
                observe(series(GEN_AI_TOKENS, (*labels, type)), GEN_AI_TOKENS, tokens)


class MetricsCollector:
    """Count finished requests; the series of each combination of labels is looked up once."""

    def __init__(self, tally: MetricValues) -> None:
        self._tally = tally
        self._models, self._keys = BoundedLabel(MAX_MODELS), BoundedLabel(0)
        self._gen_ai: GenAiMetrics | None = None
        self._requests: dict[tuple[str, str, str, int, str], list[list[float]]] = {}
        self._answers: dict[tuple[str, str, str, str, str, bool], list[list[float]]] = {}

    def follow(self, keys: int, kinds: Mapping[str, str] | None = None) -> None:
        """Count by these settings from now on.

        keys: the number of names of the label `key`; 0: without the label.
        kinds: the kind of each backend, for the `gen_ai` metrics; None: without these.
        """
        self._gen_ai = None if kinds is None else GenAiMetrics(self._tally, kinds)
        if keys != self._keys.most:
            self._keys = BoundedLabel(keys)
            self._requests.clear()
            self._answers.clear()

    def count(self, record: RequestRecord) -> None:
        """Count a finished request."""
        key = record.key if self._keys.most else ""
        sort = record.endpoint, record.model, record.backend, record.outcome, key
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
            self._count_answer(record, key)

    def _count_answer(self, record: RequestRecord, key: str) -> None:
        first = record.pace.first_content if record.streamed else None
        sort = record.endpoint, record.model, record.backend, record.format, key, first is not None
        given, made, cached, thought, duration, *more = self._answers.get(sort) or self._of_answer(*sort)
        used = record.usage()
        given[0] += used.prompt
        made[0] += used.completion
        cached[0] += used.cached
        thought[0] += used.reasoning
        observe(duration, DURATION, record.ended - record.arrived)
        if record.format:
            more[0][0] += 1
        if first is not None:
            observe(more[-2], FIRST_TOKEN, first - record.arrived)
            if record.pace.last > first:  # there was a gap
                add_values(more[-1], (*record.pace.gaps, record.pace.last - first))
        if self._gen_ai:
            self._gen_ai.count(record, self._models.value(record.model), used, first)

    def _of_request(self, endpoint: str, model: str, backend: str, outcome: int, key: str) -> list[list[float]]:
        labels = endpoint, self._models.value(model), backend, str(outcome), self._keys.value(key)
        cells = [
            self._tally.series_values(REQUESTS, labels),
            *(self._tally.series_values(one, (endpoint,)) for one in (RECEIVED, SENT)),
        ]
        return self._requests.setdefault((endpoint, model, backend, outcome, key), cells)

    def _of_answer(
        self, endpoint: str, model: str, backend: str, format: str, key: str, began: bool
    ) -> list[list[float]]:
        """Return the series of a response: tokens of each kind, duration, format if any, times if its stream began."""
        name, series = self._models.value(model), self._tally.series_values
        route = endpoint, name, backend
        cells = [
            *(series(TOKENS, (name, one, self._keys.value(key))) for one in TOKEN_KINDS),
            series(DURATION, route),
            *([series(FORMATS, (format,))] if format else []),
            *([series(FIRST_TOKEN, route), series(BETWEEN, route)] if began else []),
        ]
        return self._answers.setdefault((endpoint, model, backend, format, key, began), cells)


def upstream_error_kind(problem: Problem) -> str | None:
    """Return the label of a backend's failure; None if the request is at fault."""
    if problem.status < 500 and problem.status != 429:
        return None
    return UPSTREAM_ERROR_KINDS.get(problem.code or "", "error")


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


def price_series(models: Mapping[str, ModelSettings]) -> SeriesByMetric:
    """Return the prices of the models that have any."""
    tally = MetricValues((PRICE,))
    for model, price in model_prices(models).items():
        for kind, amount in (("input", price.input), ("cached", price.of_cached), ("output", price.output)):
            tally.count(PRICE, (model, kind), amount)
    return tally.series
