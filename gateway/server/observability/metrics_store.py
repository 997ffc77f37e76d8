"""Hold metric values, and share them: each worker writes a file, and any worker can read all.

The counts of a worker stay when it dies: the sum of all may not fall.
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

from gateway.server.observability.metrics import METRICS, LabelValues, Metric
from gateway.server.observability.snapshot import WorkerSnapshot

_log = logging.getLogger("gateway")
_MEMORY = "/dev/shm"  # no disk has to turn for it, and containers have it where all else is read-only
SeriesByMetric = dict[
    str, dict[LabelValues, list[float]]
]  # by the name of a metric; a number, or a histogram's buckets and sum
_decode_sight = msgpack.Decoder(WorkerSnapshot).decode


@contextmanager
def metrics_folder(preferred: str = _MEMORY, otherwise: str | None = None) -> Iterator[Path | None]:
    """A new one, as long as the block; None, and the log knows, where there can be none.

    otherwise: where it is made if not in the preferred place; None: where temporary files are.
    """
    place = preferred if os.access(preferred, os.W_OK) else otherwise
    try:
        made = TemporaryDirectory(prefix="gateway-", dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        _log.warning("/metrics tells of one worker at a time: there is no folder for all (%s)", error.strerror)
        yield None
        return
    with made as path:
        yield Path(path)


def mark_ended(file: Path | None) -> None:
    """The worker whose file it is has ended; None: it had none."""
    if file:
        _mark(file).touch()


def remove_orphan(file: Path | None) -> None:
    """Remove the folder, in place of its creator, which is gone."""
    if file:
        rmtree(file.parent, ignore_errors=True)


def has_ended(file: Path) -> bool:
    return _mark(file).exists()


def _mark(file: Path) -> Path:
    return file.with_suffix(".ended")


class MetricValues:
    """A metric's series, one for each combination of labels; only one task may change it at a time."""

    def __init__(self, metrics: Iterable[Metric] = METRICS) -> None:
        self.series: SeriesByMetric = {one.name: {labels: one.zero for labels in one.initial_labels} for one in metrics}

    def series_values(self, metric: Metric, labels: LabelValues) -> list[float]:
        """The numbers of a series, which are in this list from now on."""
        values = self.series[metric.name].get(labels)
        if values is None:
            values = self.series[metric.name][labels] = metric.zero
        return values

    def count(self, metric: Metric, labels: LabelValues = (), amount: float = 1) -> None:
        self.series_values(metric, labels)[0] += amount

    def observe(self, metric: Metric, value: float) -> None:
        values = self.series[metric.name][()]
        values[bisect_left(metric.buckets, value)] += 1
        values[-1] += value

    def add(self, metric: Metric, values: Iterable[float]) -> None:
        """Add measured values: a count per bucket, and their sum."""
        mine = self.series[metric.name][()]
        mine[:] = map(add, mine, values)


def sum_series(several: Iterable[Mapping[str, Mapping[LabelValues, list[float]]]]) -> SeriesByMetric:
    """Return the sum of all, which does not change with them."""
    joined: SeriesByMetric = {}
    ways = {one.name: min if one.aggregate == "min" else add for one in METRICS}
    for series in several:
        for name, of_it in series.items():
            mine, way = joined.setdefault(name, {}), ways[name]
            for labels, values in of_it.items():
                mine[labels] = [*map(way, mine[labels], values)] if labels in mine else [*values]
    return joined


class SharedMetrics(Struct):
    """counted: for ever; present: as it is now."""

    counters: SeriesByMetric
    gauges: SeriesByMetric


_decode = msgpack.Decoder(SharedMetrics).decode


class SharedFolder:
    """file: this worker's, in a folder that has those of all and nothing else.

    Beside what is written all the time there is what is written when one of them is asked for it: what each sees.
    """

    every = 0.1  # seconds between two times that it is written

    def __init__(self, file: Path) -> None:
        self._file, self._written = file, b""
        self._wish, self._wished = file.with_name("wish"), 0  # touched to ask for snapshots; when it was last

    def write(self, snapshot: SharedMetrics) -> None:
        data = msgpack.encode(snapshot)
        if data != self._written:
            _put(self._file, data)
            self._written = data

    def others(self) -> Iterator[SeriesByMetric]:
        for file in self._file.parent.glob("*.tally"):
            if file != self._file:
                snapshot = _decode(file.read_bytes())
                yield snapshot.counters
                if not has_ended(file):
                    yield snapshot.gauges

    # what each sees

    def request_snapshots(self) -> int:
        """Ask all workers for their snapshots, within `every` seconds; return the time of the request."""
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
        _put(self._file.with_suffix(".sight"), msgpack.encode(sight))

    def shown(self, since: int) -> Iterator[WorkerSnapshot]:
        """By the others, since that time."""
        mine = self._file.with_suffix(".sight")
        for file in self._file.parent.glob("*.sight"):
            if file != mine and not has_ended(file) and file.stat().st_mtime_ns >= since:
                yield _decode_sight(file.read_bytes())


def _put(file: Path, data: bytes) -> None:
    """Write in one step, so that no reader sees half of it."""
    new = file.with_suffix(".new")
    new.write_bytes(data)
    new.replace(file)
