"""Hold the telemetry of one process, over all generations of its application, with its current and recent requests."""

import asyncio
import logging
import os
import platform
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import chain
from time import time

from msgspec.structs import replace

from gateway import __version__
from gateway.config import Config
from gateway.errors import Problem
from gateway.server.observability import access_log, logs, metric_values
from gateway.server.observability.metric_values import (
    MetricValues,
    SeriesByMetric,
    SharedFolder,
    SharedMetrics,
    sum_series,
)
from gateway.server.observability.metrics import (
    BUILD,
    IN_FLIGHT,
    STORE_ERRORS,
    STORE_QUEUE,
    UPSTREAM_ERRORS,
    LabelValues,
)
from gateway.server.observability.minute_counts import MINUTES, MinuteCounts, latency_step
from gateway.server.observability.recorder import Recorder
from gateway.server.observability.request_record import RequestRecord
from gateway.server.observability.snapshot import (
    BackendCondition,
    BackendStatus,
    FailureInfo,
    RequestSnapshot,
    WorkerSnapshot,
    compute_rates,
    failure_info,
    snapshot_request,
)
from gateway.server.observability.tracer import Tracer
from gateway.server.observability.usage import UsageKeeper
from gateway.store.write_queue import WriteQueue

_MAX_GROUPS = 64  # groups of errors, and of warnings, in a minute; more are counted in one
_KEPT = 200  # finished requests
_KEPT_FAILED = 50  # failed ones of them
_MAX_RUNNING = 100  # running requests in a snapshot
_BUILD: dict[LabelValues, list[float]] = {(__version__, platform.python_version()): [1.0]}


class RequestHistory:
    """Count the finished requests of a process by minutes, for the last hour.

    A request costs one or two calls of functions.
    """

    def __init__(self) -> None:
        self._minutes: dict[int, MinuteCounts] = {}
        self._start = self._end = 0.0  # Unix seconds of the current minute, at first of none
        self._minute = MinuteCounts(0)

    def add(self, one: RequestSnapshot, *, failed: bool) -> None:
        """Count a finished request."""
        ended = one.arrived + one.duration
        if not self._start <= ended < self._end:
            self._begin(ended)
        minute = self._minute
        minute.requests += 1
        minute.output_tokens += one.output_tokens
        if one.backend:
            minute.backends[one.backend].requests += 1
        if one.streamed and one.first_content is not None:
            step = latency_step(one.first_content)
            minute.first_tokens[step] += 1
            if one.backend:
                minute.backends[one.backend].first_tokens[step] += 1
        if failed:
            _add_error(minute, one, ended)
        if one.ledger:
            _add_warnings(minute, one)

    def failed(self, backend: str, failure: FailureInfo) -> None:
        """Count a failed attempt at a backend."""
        if not self._start <= failure.time < self._end:
            self._begin(failure.time)
        self._minute.backends[backend].failures += 1

    def minutes(self, now: float) -> list[MinuteCounts]:
        """Return the minutes of the last hour.  now: Unix seconds."""
        first = int(now // 60) - MINUTES
        return [minute for number, minute in self._minutes.items() if number > first]

    def _begin(self, time: float) -> None:
        """Count in the minute of this time from now on."""
        number = int(time // 60)
        self._start, self._end = 60.0 * number, 60.0 * (number + 1)
        self._minute = self._minutes.setdefault(number, MinuteCounts(number))
        if len(self._minutes) > MINUTES:
            del self._minutes[min(self._minutes)]


def _add_error(minute: MinuteCounts, one: RequestSnapshot, ended: float) -> None:
    minute.errors += 1
    key = one.status or 0, one.error or "", one.message or "", one.model, one.backend
    if key not in minute.groups and len(minute.groups) >= _MAX_GROUPS:
        key = 0, "", "", "", ""
    count, last = minute.groups.get(key, (0, ended))
    minute.groups[key] = count + 1, max(last, ended)


def _add_warnings(minute: MinuteCounts, one: RequestSnapshot) -> None:
    for code, times in one.ledger.items():
        key = code, one.model
        if key not in minute.warnings and len(minute.warnings) >= _MAX_GROUPS:
            key = code, ""
        minute.warnings[key] += times


class RecentRequests:
    """The current and the recent requests of a process.

    A finished request costs one entry and an update of its minute; all else is computed on demand.
    """

    def __init__(self) -> None:
        self._live: defaultdict[str, set[RequestRecord]] = defaultdict(set)  # by endpoint
        self._over: deque[RequestSnapshot] = deque(maxlen=_KEPT)
        self._failed: deque[RequestSnapshot] = deque(maxlen=_KEPT_FAILED)
        self._failures: dict[str, FailureInfo] = {}  # the last of each backend
        self._history = RequestHistory()

    def begin(self, record: RequestRecord) -> None:
        """Add a running request."""
        self._live[record.endpoint].add(record)

    def end(self, record: RequestRecord) -> None:
        """Move a request to the finished ones."""
        self._live[record.endpoint].discard(record)
        entry = snapshot_request(record, live=False)
        self._over.append(entry)
        self._history.add(entry, failed=record.problem is not None)
        if record.problem:
            self._failed.append(entry)

    def failed(self, backend: str, problem: Problem) -> None:
        """Note a failed attempt at a backend."""
        self._failures[backend] = failure = failure_info(problem)
        self._history.failed(backend, failure)

    def running_counts(self) -> dict[str, int]:
        """Return the number of running requests for each endpoint used so far."""
        return {endpoint: len(live) for endpoint, live in self._live.items()}

    def snapshot(self, backends: Mapping[str, BackendStatus], now: float) -> WorkerSnapshot:
        """Return the snapshot of this worker.  now: in the event loop's time."""
        live = [snapshot_request(record, live=True) for record in chain.from_iterable(self._live.values())]
        live.sort(key=lambda record: -record.arrived)
        since, seconds = self._over[0].ended if len(self._over) == _KEPT else 0.0, time()
        return WorkerSnapshot(
            rates=compute_rates(live, self._over, since, seconds),
            requests=[*live[:_MAX_RUNNING], *reversed(self._over)],
            failed=[*reversed(self._failed)],
            backends={name: self._condition(name, backend, now) for name, backend in backends.items()},
            minutes=self._history.minutes(seconds),
        )

    def _condition(self, name: str, backend: BackendStatus, now: float) -> BackendCondition:
        health, queue = backend.limiter.health, backend.limiter.queue
        state = health.state(now)
        return BackendCondition(
            state=state,
            healthy=state == "closed" and not health.ejected(now),
            back_in=health.back_in(now),
            queued=queue.waiting,
            failure=self._failures.get(name),
        )


class Telemetry:
    """All telemetry of a process.  shared: the metrics of all workers, None for a single one."""

    def __init__(self, shared: SharedFolder | None = None) -> None:
        self._shared, self._tally = shared, MetricValues()
        self._counter = metric_values.MetricsCollector(self._tally)
        self.recorder, self.tracer, self.usage = Recorder(), Tracer(), UsageKeeper()
        self._backends: Mapping[str, BackendStatus] = {}  # of the newest application
        self._writes = WriteQueue(1)  # of its store
        self._prices: SeriesByMetric = {}
        self._recent = RecentRequests()

    def follow(self, config: Config) -> None:
        """Apply the settings of metrics, recordings and traces from now on."""
        kinds = {name: backend.kind for name, backend in config.backends.items()}
        self._counter.follow(config.metrics.keys, kinds if config.metrics.gen_ai else None)
        self._prices = metric_values.price_series(config.models)
        self.recorder.follow(config)
        self.tracer.follow(config.tracing)

    async def flush(self) -> None:
        """Return when recordings and spans of finished requests are written and sent."""
        await self.recorder.flush()
        await self.tracer.flush()

    def begin(
        self, id: str, endpoint: str, headers: Iterable[tuple[bytes, bytes]] = (), method: str = "POST"
    ) -> RequestRecord:
        """Begin the record of a request; the last holder ends it.  endpoint: "" if it is not counted."""
        recorder = self.recorder.begin(id, endpoint, headers) if self.recorder.enabled else None
        trace = self.tracer.begin(endpoint, headers) if self.tracer.enabled else None
        record = RequestRecord(id, method, endpoint, self._end, recorder=recorder, trace=trace)
        if endpoint:
            self._recent.begin(record)
        return record

    def failed(self, backend: str, problem: Problem) -> None:
        """Count a failed attempt at a backend."""
        if kind := metric_values.upstream_error_kind(problem):
            self._tally.count(UPSTREAM_ERRORS, (backend, kind))
            self._recent.failed(backend, problem)

    def record_store_failure(self) -> None:
        """Count a failed transaction of the store."""
        self._tally.count(STORE_ERRORS)

    @asynccontextmanager
    async def of(self, backends: Mapping[str, BackendStatus], writes: WriteQueue) -> AsyncIterator[None]:
        """Share the metrics with other workers within the block, with the backends of the newest generation.

        writes: the writes that wait for the store.
        """
        self._backends, self._writes = backends, writes
        sharing = asyncio.create_task(self._share_for_ever(self._shared)) if self._shared else None
        try:
            yield
        finally:
            if self._shared and sharing:
                sharing.cancel()
                self._share(self._shared)

    async def series(self) -> SeriesByMetric:
        """Return the metrics of all workers, with all work before the call."""
        if not self._shared:
            return sum_series((self._tally.series, self._present()))
        await asyncio.sleep(2 * self._shared.every)
        return sum_series((self._tally.series, self._present(), *self._shared.others()))

    def processes(self) -> dict[str, int]:
        """Return the process ids of all running workers by place; a single process has the place 0."""
        return self._shared.processes(os.getpid()) if self._shared else {"0": os.getpid()}

    async def snapshots(self, backends: Mapping[str, BackendStatus]) -> list[WorkerSnapshot]:
        """Return the snapshot of this worker with these backends, and those of other workers that respond in time."""
        if not self._shared:
            return [self._sight(backends)]
        try:
            wished = self._shared.request_snapshots()
            await asyncio.sleep(2 * self._shared.every)
            return [self._sight(backends), *self._shared.shown(wished)]
        except OSError:  # the folder is gone
            return [self._sight(backends)]

    def _end(self, record: RequestRecord) -> None:
        if not record.endpoint:
            return
        self._counter.count(record)
        self.usage.count(record)
        self._recent.end(record)
        if record.recorder:
            self.recorder.end(record, record.recorder)
        if record.trace:
            self.tracer.end(record, record.trace)
        if logs.requests.isEnabledFor(logging.INFO):
            access_log.log_request(record)

    def _present(self) -> SeriesByMetric:
        running = self._recent.running_counts()
        in_flight: dict[LabelValues, list[float]] = {(endpoint,): [float(count)] for endpoint, count in running.items()}
        return {
            IN_FLIGHT.name: in_flight,
            BUILD.name: _BUILD,
            STORE_QUEUE.name: {(): [float(self._writes.length)]},
            **self._prices,
            **metric_values.backend_states(self._backends, asyncio.get_running_loop().time()),
        }

    def _sight(self, backends: Mapping[str, BackendStatus]) -> WorkerSnapshot:
        sight = self._recent.snapshot(backends, asyncio.get_running_loop().time())
        return replace(sight, exchanges=self.recorder.exchanges())

    async def _share_for_ever(self, shared: SharedFolder) -> None:
        while True:
            self._share(shared)
            await asyncio.sleep(shared.every)

    def _share(self, shared: SharedFolder) -> None:
        with suppress(OSError):  # a later write may succeed
            shared.write(SharedMetrics(self._tally.series, self._present(), os.getpid()))
            if shared.snapshot_requested():
                shared.write_snapshot(self._sight(self._backends))
