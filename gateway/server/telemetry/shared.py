"""Share the metrics of all workers: each writes a file of its own, and any worker can read all.

What a worker has counted stays when it dies: the number of all together may not fall.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, msgpack

from gateway.server.telemetry.folder import has_ended
from gateway.server.telemetry.sight import WorkerSnapshot
from gateway.server.telemetry.tally import SeriesByMetric


class SharedMetrics(Struct):
    """counted: for ever; present: as it is now."""

    counted: SeriesByMetric
    present: SeriesByMetric


_decode = msgpack.Decoder(SharedMetrics).decode
_decode_sight = msgpack.Decoder(WorkerSnapshot).decode


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
                yield snapshot.counted
                if not has_ended(file):
                    yield snapshot.present

    # what each sees

    def wish(self) -> int:
        """Ask all workers for their snapshots, within `every` seconds; return the time of the request."""
        self._wish.touch()
        return self._wish.stat().st_mtime_ns

    def wished(self) -> bool:
        """Return True if a snapshot was requested since the last call."""
        try:
            before, self._wished = self._wished, self._wish.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        return self._wished != before

    def show(self, sight: WorkerSnapshot) -> None:
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
