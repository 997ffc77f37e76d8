"""The tallies of all workers, each in a file that it alone writes, so that whoever is asked can tell of all.

What a worker has counted stays when it dies: the number of all together may not fall.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, msgpack

from gateway.server.telemetry.folder import ended
from gateway.server.telemetry.tally import Series


class Snapshot(Struct):
    """counted: for ever; present: as it is now."""

    counted: Series
    present: Series


_decode = msgpack.Decoder(Snapshot).decode


class Shared:
    """file: this worker's, in a folder that has those of all and nothing else."""

    every = 0.1  # seconds between two times that it is written

    def __init__(self, file: Path) -> None:
        self._file, self._written = file, b""

    def write(self, snapshot: Snapshot) -> None:
        """In one step, so that nobody reads half of it."""
        data = msgpack.encode(snapshot)
        if data != self._written:
            new = self._file.with_suffix(".new")
            new.write_bytes(data)
            new.replace(self._file)
            self._written = data

    def others(self) -> Iterator[Series]:
        for file in self._file.parent.glob("*.tally"):
            if file != self._file:
                snapshot = _decode(file.read_bytes())
                yield snapshot.counted
                if not ended(file):
                    yield snapshot.present
