"""Hold metric values, and share them: each worker writes a file, and any worker can read all.

The counts of a dead worker stay: the sum of all must not fall.
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

from msgspec import Struct, msgpack

from gateway.server.observability.metrics import ALL_METRICS, LabelValues, Metric
from gateway.server.observability.snapshot import WorkerSnapshot

_log = logging.getLogger("gateway")
_MEMORY = "/dev/shm"  # in memory, and writable in containers with a read-only file system
SeriesByMetric = dict[
    str, dict[LabelValues, list[float]]
]  # by the name of a metric; a number, or a histogram's buckets and sum
_decode_sight = msgpack.Decoder(WorkerSnapshot).decode


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
