"""Collect the entries of one request while it runs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gateway.events import Event
from gateway.recording.chunk_run import ChunkRun
from gateway.recording.entries import ENTRY, EndEntry, RecordingEntry, RequestEntry

LONGEST_RUN = 64 * 4  # fields of chunks: the caller of `settle` keeps to it, and the limit to half a megabyte


class Recording:
    """The list of entries, which can be read while it grows: existing entries never change.

    started: the time of the request, in ISO 8601; begun: the same on the clock of chunks.
    max_bytes: the limit of the size.
    size: the counted bytes, those of left out entries included; count: the number of entries.
    over: no more entries follow.
    deferred: entries of chunks are made when a reader asks for them, else in short runs.
    chunks: the fields of chunks that are not counted yet, see ChunkRun; another list after each `settle`.  A caller
    appends those with bytes for the client, and calls `keep_unseen` for the others.
    call: the number of their upstream call.
    """

    def __init__(self, id: str, started: str, most: int, *, begun: float = 0.0, deferred: bool = False) -> None:
        self.id, self.started, self.begun, self._deferred = id, started, begun, deferred
        self.max_bytes, self.size, self.count = most, 0, 0
        self.over = False
        self.chunks: list[Any] = []
        self._unseen = self.call = 0
        self._parts: list[RecordingEntry | ChunkRun] = []
        self._made: tuple[int, list[RecordingEntry]] = (0, [])  # of so many parts, the entries

    @property
    def entries(self) -> list[RecordingEntry]:
        """All entries, but for chunks since the last `settle`.  Threads may ask for them at once."""
        known, entries = self._made
        if more := self._parts[known:]:
            entries = [*entries, *_entries_of(more)]
            self._made = known + len(more), entries
        return entries

    @entries.setter
    def entries(self, entries: list[RecordingEntry]) -> None:
        self._parts, self.count = [*entries], len(entries)
        self._made = len(entries), entries

    @property
    def parts(self) -> list[RecordingEntry | ChunkRun]:
        """The entries, with runs in place of those that are made on demand."""
        return [*self._parts]

    @property
    def last(self) -> RecordingEntry | ChunkRun | None:
        """The last part, None without entries."""
        return self._parts[-1] if self._parts else None

    def add(self, entry: RecordingEntry, size: int = 0) -> None:
        """Append an entry, unless the recording would be too long.  size: the bytes of its content."""
        if self.chunks:
            self.settle()
        self.size += size + ENTRY
        if self.size <= self.max_bytes:
            self._append(entry)

    def keep_unseen(self, time: float, data: bytes, events: Sequence[Event]) -> None:
        """Keep a chunk that gave the client nothing, or nothing yet.  time: on the clock of chunks."""
        self.chunks += time, data, events, b""
        self._unseen += 1
        if len(self.chunks) >= LONGEST_RUN:
            self.settle()

    def settle(self) -> None:
        """Count the chunks, and leave out those beyond the limit."""
        if not self.chunks:
            return
        run = ChunkRun(self.begun, self.call, self.chunks, self._unseen)
        self.chunks, self._unseen = [], 0
        if self._deferred and self.size + run.size <= self.max_bytes:
            self.size, self.count = self.size + run.size, self.count + run.count
            self._parts.append(run)
            return
        for entry in run.entries():
            self.add(entry, len(entry.data))

    @property
    def cut(self) -> bool:
        """True if entries were left out."""
        return self.size > self.max_bytes

    def end(self, entry: EndEntry) -> None:
        """Append the last entry; the limit does not apply."""
        self.settle()
        self._append(entry)
        self.over = True

    @property
    def request_entry(self) -> RequestEntry | None:
        """The client's request, if it is known."""
        first = self._parts[0] if self._parts else None
        return first if isinstance(first, RequestEntry) else None

    def _append(self, entry: RecordingEntry) -> None:
        self._parts.append(entry)
        self.count += 1


def _entries_of(parts: Iterable[RecordingEntry | ChunkRun]) -> Iterator[RecordingEntry]:
    for part in parts:
        if isinstance(part, ChunkRun):
            yield from part.entries()
        else:
            yield part
