"""Return the backends' responses of a recording, call by call, for a replay."""

from collections.abc import Callable, Iterator, Sequence
from itertools import dropwhile
from typing import Literal

from msgspec import Struct

from gateway.recording import (
    Recording,
    RecordingEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamHeadersEntry,
    UpstreamRequestEntry,
)

Rechunk = Callable[[Sequence[bytes]], Sequence[bytes]]
CallEnd = Literal["end", "break", "hang", "away"]
_ENDS: dict[str | None, CallEnd] = {
    "upstream_timeout": "hang",
    "upstream_unreachable": "away",
}  # by what was said of it


class RecordedChunk(Struct, frozen=True):
    """after: seconds, since the piece before it or since the question."""

    after: float
    data: bytes


class RecordedCall(Struct, frozen=True):
    """One question to a backend, and its answer.  status: 0 where there was none, not even a head.

    end: how it ended: as it should, with a connection that broke or never was, or in silence.
    """

    backend: str
    path: str
    status: int
    content_type: str
    retry_after: str | None
    pieces: Sequence[RecordedChunk]
    end: CallEnd

    def cut(self, cut: Rechunk) -> "RecordedCall":
        """The same in other pieces, without their times."""
        pieces = [RecordedChunk(0, data) for data in cut([piece.data for piece in self.pieces])]
        return RecordedCall(self.backend, self.path, self.status, self.content_type, self.retry_after, pieces, self.end)


def recorded_calls(recording: Recording) -> list[RecordedCall]:
    """Return the calls to backends, in the order in which they were made."""
    return [_call(recording.entries, entry) for entry in recording.entries if isinstance(entry, UpstreamRequestEntry)]


def join_chunks(pieces: Sequence[bytes]) -> Sequence[bytes]:
    """Return all in one piece."""
    data = b"".join(pieces)
    return [data] if data else []


def split_every(size: int) -> Rechunk:
    """Pieces of so many bytes."""

    def cut(pieces: Sequence[bytes]) -> Sequence[bytes]:
        data = b"".join(pieces)
        return [data[i : i + size] for i in range(0, len(data), size)]

    return cut


def _call(entries: Sequence[RecordingEntry], put: UpstreamRequestEntry) -> RecordedCall:
    own = [
        entry
        for entry in entries
        if isinstance(entry, UpstreamHeadersEntry | UpstreamErrorEntry | UpstreamDataEntry) and entry.call == put.call
    ]
    reads = [entry for entry in own if isinstance(entry, UpstreamDataEntry)]
    for entry in own:
        if isinstance(entry, UpstreamErrorEntry):
            piece = RecordedChunk(entry.t - put.t, entry.body)
            status, type, after = entry.status, entry.content_type, entry.retry_after
            return RecordedCall(put.backend, put.path, status, type, after, [piece], "end")
    head = next((entry for entry in own if isinstance(entry, UpstreamHeadersEntry)), None)
    end = "end" if reads and not reads[-1].data else _broken(entries, put)
    type = head.content_type if head else ""
    return RecordedCall(put.backend, put.path, 200 if head else 0, type, None, [*_pieces(put, reads)], end)


def _pieces(put: UpstreamRequestEntry, reads: Sequence[UpstreamDataEntry]) -> Iterator[RecordedChunk]:
    last = put.t
    for read in reads:
        if read.data:
            yield RecordedChunk(read.t - last, read.data)
            last = read.t


def _broken(entries: Sequence[RecordingEntry], put: UpstreamRequestEntry) -> CallEnd:
    """How it was, by what was said of the round."""
    ended = next(
        (entry for entry in dropwhile(lambda one: one is not put, entries) if isinstance(entry, RoundEndEntry)), None
    )
    return _ENDS.get(ended.problem.code if ended and ended.problem else None, "break")
