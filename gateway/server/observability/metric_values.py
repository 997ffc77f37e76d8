"""Convert the records of requests and the state of the backends to metric values, and share them.

Each worker writes a file, and any worker can read all.  The counts of a dead worker stay: the sum of all must not fall.
"""

import logging
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import add
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import get_args

from msgspec import Struct, msgpack

from gateway.config.models import ModelSettings, model_prices
from gateway.errors import Problem
from gateway.events import Usage
from gateway.routing.health import CircuitState
from gateway.server.observability.metrics import (
    ALL_METRICS,
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
    LabelValues,
    Metric,
)
from gateway.server.observability.request_record import OTHER, RequestRecord
from gateway.server.observability.snapshot import BackendStatus, WorkerSnapshot
from gateway.server.observability.spans import operation_name

_log = logging.getLogger("gateway")
_MEMORY = "/dev/shm"  # in memory, and writable in containers with a read-only file system
SeriesByMetric = dict[
    str, dict[LabelValues, list[float]]
]  # by the name of a metric; a number, or a histogram's buckets and sum
_decode_sight = msgpack.Decoder(WorkerSnapshot).decode
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


@contextmanager
def metrics_folder(preferred: str = _MEMORY, otherwise: str | None = None) -> Iterator[Path | None]:
    """Yield a new folder that exists as long as the block; log a failure and yield None.

    otherwise: parent folder if `preferred` is not writable; None: the folder of temporary files.
    """
    place = preferred if os.access(preferred, os.W_OK) else otherwise
    try:
        made = TemporaryDirectory(prefix="gateway-", dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        _log.warning(
            "/metrics reports one worker at a time: the shared directory cannot be created (%s)", error.strerror
        )
        yield None
        return
    with made as path:
        yield Path(path)


def mark_ended(file: Path | None) -> None:
    """Mark the worker with this file as ended; called by the supervisor."""
    if file:
        _mark(file).touch()


def remove_orphan(file: Path | None) -> None:
    """Remove the folder, in place of the supervisor, which is gone."""
    if file:
        rmtree(file.parent, ignore_errors=True)


def has_ended(file: Path) -> bool:
    """Return True if the worker with this file has ended."""
    return _mark(file).exists()


def _mark(file: Path) -> Path:
    return file.with_suffix(".ended")


class MetricValues:
    """The values of metrics, one series per combination of labels; not for concurrent changes."""

    def __init__(self, metrics: Iterable[Metric] = ALL_METRICS) -> None:
        self.series: SeriesByMetric = {one.name: {labels: one.zero for labels in one.initial_labels} for one in metrics}

    def series_values(self, metric: Metric, labels: LabelValues) -> list[float]:
        """Return the values of a series, in the list that holds them from now on."""
        values = self.series[metric.name].get(labels)
        if values is None:
            values = self.series[metric.name][labels] = metric.zero
        return values

    def count(self, metric: Metric, labels: LabelValues = (), amount: float = 1) -> None:
        """Add to a counter or gauge."""
        self.series_values(metric, labels)[0] += amount


def observe(values: list[float], metric: Metric, value: float) -> None:
    """Add a measured value to a series of a histogram."""
    values[bisect_left(metric.buckets, value)] += 1
    values[-1] += value


def add_values(values: list[float], measured: Iterable[float]) -> None:
    """Add measured values to a series of a histogram: a count per bucket, and their sum."""
    values[:] = map(add, values, measured)


def sum_series(several: Iterable[Mapping[str, Mapping[LabelValues, list[float]]]]) -> SeriesByMetric:
    """Return the combined series as copies."""
    joined: SeriesByMetric = {}
    ways = {one.name: min if one.aggregate == "min" else add for one in ALL_METRICS}
    for series in several:
        for name, of_it in series.items():
            mine, way = joined.setdefault(name, {}), ways[name]
            for labels, values in of_it.items():
                mine[labels] = [*map(way, mine[labels], values)] if labels in mine else [*values]
    return joined


class SharedMetrics(Struct):
    """The values of one worker.  counters: since its start; gauges: current values; pid: its process id."""

    counters: SeriesByMetric
    gauges: SeriesByMetric
    pid: int


_decode = msgpack.Decoder(SharedMetrics).decode


def metrics_file(folder: Path | None, place: int, number: int) -> Path | None:
    """Return the file of a worker.  place: of a worker and its replacements; number: of this worker alone."""
    return folder and folder / f"{place}-{number}.tally"


class SharedFolder:
    """The shared folder of all workers; `file` is this worker's.

    Each worker writes its metrics all the time, and its snapshot on request.
    """

    every = 0.1  # seconds between two writes

    def __init__(self, file: Path) -> None:
        self._file, self._written = file, b""
        self._wish, self._wished = file.with_name("wish"), 0  # touched to request snapshots; time of the last request

    def write(self, snapshot: SharedMetrics) -> None:
        """Write the metrics of this worker, if they have changed."""
        data = msgpack.encode(snapshot)
        if data != self._written:
            _put(self._file, data)
            self._written = data

    def others(self) -> Iterator[SeriesByMetric]:
        """Yield the counters of all other workers, and the gauges of the running ones."""
        for file in self._file.parent.glob("*.tally"):
            if file != self._file:
                snapshot = _decode(file.read_bytes())
                yield snapshot.counters
                if not has_ended(file):
                    yield snapshot.gauges

    def processes(self, pid: int) -> dict[str, int]:
        """Return the process ids of all running workers by place.  pid: this worker's."""
        running = {_place(file): file for file in self._file.parent.glob("*.tally") if not has_ended(file)}
        pids = {place: _decode(file.read_bytes()).pid for place, file in sorted(running.items())}
        return {**pids, _place(self._file): pid}

    # Snapshots

    def request_snapshots(self) -> int:
        """Request snapshots of all workers, which write them within `every` seconds; return the time of the request."""
        self._wish.touch()
        return self._wish.stat().st_mtime_ns

    def snapshot_requested(self) -> bool:
        """Return True if a snapshot was requested since the last call."""
        try:
            before, self._wished = self._wished, self._wish.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        return self._wished != before

    def write_snapshot(self, sight: WorkerSnapshot) -> None:
        """Write the snapshot of this worker."""
        _put(self._file.with_suffix(".sight"), msgpack.encode(sight))

    def shown(self, since: int) -> Iterator[WorkerSnapshot]:
        """Yield the snapshots of other running workers that were written since `since`."""
        mine = self._file.with_suffix(".sight")
        for file in self._file.parent.glob("*.sight"):
            if file != mine and not has_ended(file) and file.stat().st_mtime_ns >= since:
                yield _decode_sight(file.read_bytes())


def _place(file: Path) -> str:
    return file.stem.partition("-")[0]


def _put(file: Path, data: bytes) -> None:
    """Write a file in one step, so that readers never see a part of it."""
    new = file.with_suffix(".new")
    new.write_bytes(data)
    new.replace(file)


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
        health = backend.limiter.health
        state = health.state(now)
        tally.count(HEALTHY, (name,), state == "closed" and not health.ejected(now))
        tally.count(QUEUE, (name,), backend.limiter.queue.waiting)
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
