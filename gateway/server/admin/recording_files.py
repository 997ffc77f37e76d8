"""Read the recordings of a folder for the inspector, so that it shows requests of earlier runs and of other workers.

The list reads the first line of each file once.  The steps of a request are read when they are asked for.
"""

import logging
from pathlib import Path
from threading import Lock

from gateway.errors import NotFound
from gateway.recording import (
    ExchangeSummary,
    Recording,
    UnreadableRecording,
    parse_recording,
    read_summary,
)
from gateway.server.observability.recorder import SUMMARIES

_HEADER = 1 << 16  # bytes of a first line
_log = logging.getLogger("gateway")


class RecordingFiles:
    """The newest recordings of a folder, for any thread.  folder: None for no recordings."""

    def __init__(self, folder: str | None) -> None:
        self._folder = Path(folder) if folder is not None else None
        self._known: dict[str, ExchangeSummary | None] = {}  # by file name, the oldest first; None: unreadable
        self._last: tuple[str, Recording] | None = None  # its pages are read one after another
        self._lock = Lock()

    @property
    def unreadable(self) -> int:
        """Return the number of files that `summaries` skipped."""
        return sum(summary is None for summary in self._known.values())

    def summaries(self) -> list[ExchangeSummary]:
        """Return the summaries of the newest recordings, the oldest first.  Log each unreadable file once."""
        return [one for _, one in self._current()]

    def find(self, id: str, started: str) -> Recording:
        """Return the newest recording of this id, and of this start if that is not "".  Raises NotFound."""
        for name, one in reversed(self._current()):
            if one.id == id and started in ("", one.started):
                return self._read(name, id)
        more = " or recordings" if self._folder else ""
        raise NotFound(f"Exchange '{id}' is not in the inspector's memory{more}.")

    def _current(self) -> list[tuple[str, ExchangeSummary]]:
        with self._lock:
            before = self._known
            self._known = {name: before[name] if name in before else self._summary(name) for name in self._names()}
            return [(name, one) for name, one in self._known.items() if one]

    def _names(self) -> list[str]:
        """Return the newest files; their names sort by start."""
        found = self._folder.glob("*.jsonl") if self._folder else ()
        return sorted(file.name for file in found)[-SUMMARIES:]

    def _summary(self, name: str) -> ExchangeSummary | None:
        assert self._folder
        try:
            with (self._folder / name).open("rb") as file:
                return read_summary(file.readline(_HEADER))
        except (OSError, UnreadableRecording) as error:
            _log.warning("recording '%s' is skipped: %s", name, _reason(error))
            return None

    def _read(self, name: str, id: str) -> Recording:
        assert self._folder
        last = self._last
        if last and last[0] == name:
            return last[1]
        try:
            recording = parse_recording((self._folder / name).read_bytes())
        except (OSError, UnreadableRecording) as error:
            raise NotFound(f"The recording '{name}' of exchange '{id}' cannot be read: {_reason(error)}.") from None
        self._last = name, recording
        return recording


def _reason(error: OSError | UnreadableRecording) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
