"""What the backends of a recording said, call by call, ready to be said again."""

from collections.abc import Callable, Iterator, Sequence
from itertools import dropwhile
from typing import Literal

from msgspec import Struct

from gateway.recording import Answered, Ended, Entry, Put, Read, Recording, Refused

Cut = Callable[[Sequence[bytes]], Sequence[bytes]]
End = Literal["end", "break", "hang", "away"]
_ENDS: dict[str | None, End] = {"upstream_timeout": "hang", "upstream_unreachable": "away"}  # by what was said of it


class Piece(Struct, frozen=True):
    """after: seconds, since the piece before it or since the question."""

    after: float
    data: bytes


class Call(Struct, frozen=True):
    """One question to a backend, and its answer.  status: 0 where there was none, not even a head.

    end: how it ended: as it should, with a connection that broke or never was, or in silence.
    """

    backend: str
    path: str
    status: int
    content_type: str
    retry_after: str | None
    pieces: Sequence[Piece]
    end: End

    def cut(self, cut: Cut) -> "Call":
        """The same in other pieces, without their times."""
        pieces = [Piece(0, data) for data in cut([piece.data for piece in self.pieces])]
        return Call(self.backend, self.path, self.status, self.content_type, self.retry_after, pieces, self.end)


def calls(recording: Recording) -> list[Call]:
    """Those of the backends, in the order in which they were made."""
    return [_call(recording.entries, entry) for entry in recording.entries if isinstance(entry, Put)]


def whole(pieces: Sequence[bytes]) -> Sequence[bytes]:
    """All in one piece."""
    data = b"".join(pieces)
    return [data] if data else []


def every(size: int) -> Cut:
    """Pieces of so many bytes."""

    def cut(pieces: Sequence[bytes]) -> Sequence[bytes]:
        data = b"".join(pieces)
        return [data[i : i + size] for i in range(0, len(data), size)]

    return cut


def _call(entries: Sequence[Entry], put: Put) -> Call:
    own = [entry for entry in entries if isinstance(entry, Answered | Refused | Read) and entry.call == put.call]
    reads = [entry for entry in own if isinstance(entry, Read)]
    for entry in own:
        if isinstance(entry, Refused):
            piece = Piece(entry.t - put.t, entry.body)
            status, type, after = entry.status, entry.content_type, entry.retry_after
            return Call(put.backend, put.path, status, type, after, [piece], "end")
    head = next((entry for entry in own if isinstance(entry, Answered)), None)
    end = "end" if reads and not reads[-1].data else _broken(entries, put)
    type = head.content_type if head else ""
    return Call(put.backend, put.path, 200 if head else 0, type, None, [*_pieces(put, reads)], end)


def _pieces(put: Put, reads: Sequence[Read]) -> Iterator[Piece]:
    last = put.t
    for read in reads:
        if read.data:
            yield Piece(read.t - last, read.data)
            last = read.t


def _broken(entries: Sequence[Entry], put: Put) -> End:
    """How it was, by what was said of the round."""
    ended = next((entry for entry in dropwhile(lambda one: one is not put, entries) if isinstance(entry, Ended)), None)
    return _ENDS.get(ended.problem.code if ended and ended.problem else None, "break")
