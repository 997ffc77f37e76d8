"""Hold the telemetry of one process, over all generations of its application."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

from gateway.config import Config
from gateway.errors import Problem
from gateway.server import logs
from gateway.server.backend import Backend
from gateway.server.directory import ModelRegistry
from gateway.server.recording.recorder import Recorder
from gateway.server.telemetry import counting
from gateway.server.telemetry.line import access_log_line
from gateway.server.telemetry.metrics import IN_FLIGHT, STORE_ERRORS, UPSTREAM_ERRORS, LabelValues
from gateway.server.telemetry.observation import RequestRecord
from gateway.server.telemetry.recent import RecentRequests
from gateway.server.telemetry.shared import SharedFolder, SharedMetrics
from gateway.server.telemetry.sight import WorkerSnapshot
from gateway.server.telemetry.tally import MetricValues, SeriesByMetric, sum_series
from gateway.server.tracing.tracer import Tracer


class Telemetry:
    """shared: where there are other workers, what all of them have counted."""

    def __init__(self, shared: SharedFolder | None = None) -> None:
        self._shared, self._tally = shared, MetricValues()
        self._counter = counting.MetricsCollector(self._tally)
        self.recorder, self.tracer = Recorder(), Tracer()
        self._directory: ModelRegistry | None = None  # the newest one
        self._recent = RecentRequests()

    def follow(self, config: Config) -> None:
        """Apply its settings of recordings and traces from now on."""
        self.recorder.follow(config)
        self.tracer.follow(config.tracing)

    async def flush(self) -> None:
        """Return when what is over is written and sent."""
        await self.recorder.flush()
        await self.tracer.flush()

    def begin(
        self, id: str, endpoint: str, headers: Iterable[tuple[bytes, bytes]] = (), method: str = "POST"
    ) -> RequestRecord:
        """Begin the record of a request; the last holder ends it.  endpoint: "" if it is not counted."""
        tape, trace = self.recorder.begin(id, endpoint, headers), self.tracer.begin(endpoint, headers)
        seen = RequestRecord(id, method, endpoint, self._end, tape=tape, trace=trace)
        if endpoint:
            self._recent.begin(seen)
        return seen

    def failed(self, backend: str, problem: Problem) -> None:
        """An attempt at a backend has."""
        if kind := counting.upstream_error_kind(problem):
            self._tally.count(UPSTREAM_ERRORS, (backend, kind))
            self._recent.failed(backend, problem)

    def store_failed(self) -> None:
        """A transaction has."""
        self._tally.count(STORE_ERRORS)

    @asynccontextmanager
    async def of(self, directory: ModelRegistry) -> AsyncIterator[None]:
        """As long as a generation lives: the other workers hear of it, and of its backends if it is the newest."""
        self._directory = directory
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

    async def sights(self, backends: Mapping[str, Backend]) -> list[WorkerSnapshot]:
        """Return the snapshot of this worker, of these backends, and those of the others that answered."""
        if not self._shared:
            return [self._sight(backends)]
        try:
            wished = self._shared.wish()
            await asyncio.sleep(2 * self._shared.every)
            return [self._sight(backends), *self._shared.shown(wished)]
        except OSError:  # the folder is gone
            return [self._sight(backends)]

    def _end(self, seen: RequestRecord) -> None:
        if not seen.endpoint:
            return
        self._counter.count(seen)
        self._recent.end(seen)
        if seen.tape:
            self.recorder.end(seen, seen.tape)
        if seen.trace:
            self.tracer.end(seen, seen.trace)
        if logs.requests.isEnabledFor(logging.INFO):
            logs.requests.info("%s", access_log_line(seen))

    def _present(self) -> SeriesByMetric:
        inside = self._recent.inside()
        flying: dict[LabelValues, list[float]] = {(endpoint,): [float(count)] for endpoint, count in inside.items()}
        return {IN_FLIGHT.name: flying, **counting.backend_states(self._backends(), asyncio.get_running_loop().time())}

    def _sight(self, backends: Mapping[str, Backend]) -> WorkerSnapshot:
        return self._recent.sight(backends, asyncio.get_running_loop().time())

    def _backends(self) -> Mapping[str, Backend]:
        return self._directory.backends if self._directory else {}

    async def _share_for_ever(self, shared: SharedFolder) -> None:
        while True:
            self._share(shared)
            await asyncio.sleep(shared.every)

    def _share(self, shared: SharedFolder) -> None:
        with suppress(OSError):  # the next time may be early enough
            shared.write(SharedMetrics(self._tally.series, self._present()))
            if shared.wished():
                shared.show(self._sight(self._backends()))
