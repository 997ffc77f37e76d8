"""Define the entries of a recording, in the order in which they occur.

The number of an entry is its place in the list.  What was read of a backend has its events with it.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from gateway.errors import Problem

ENTRY = 200  # bytes that one takes, besides what it says


class _TimedEntry(Struct, array_like=True, gc=False):
    """t: seconds since the request arrived."""

    t: float


class RequestEntry(_TimedEntry, tag="asked"):
    """The client's request.  headers: without those that identify the client; body: decoded."""

    path: str
    body: bytes
    headers: dict[str, str] = {}


class PreparedEntry(_TimedEntry, tag="prepared"):
    """The gateway is about to call a backend.

    backend: its name; server: what it is and does (`kind`, `ignores`); settings: the model's.
    format: the format of the response, and the reason; learned: the server's metadata of the model.
    """

    model: str
    backend: str
    upstream_model: str
    format: str
    reason: str
    server: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    learned: list[Any] = []


class UpstreamRequestEntry(_TimedEntry, tag="put"):
    """A question to a backend, which is number `call`."""

    call: int
    backend: str
    path: str
    body: bytes


class UpstreamHeadersEntry(_TimedEntry, tag="answered"):
    """An upstream call has a response that is no error."""

    call: int
    content_type: str


class UpstreamErrorEntry(_TimedEntry, tag="refused"):
    """A call has an answer that is one."""

    call: int
    status: int
    content_type: str
    body: bytes
    retry_after: str | None = None


class UpstreamDataEntry(_TimedEntry, tag="read"):
    """The data of one read of the network, and its events: a JSON array, b"" for none."""

    call: int
    data: bytes
    events: bytes = b""


class RoundEndEntry(_TimedEntry, tag="ended"):
    """A round is over: well, or for this reason.  events: what that says, likewise."""

    problem: Problem | None = None
    events: bytes = b""


class ResponseHeadersEntry(_TimedEntry, tag="began"):
    """The head of the answer."""

    status: int
    headers: dict[str, str] = {}


class ResponseDataEntry(_TimedEntry, tag="wrote"):
    """Data for the client.  It results from the reads since the entry before; see `cause_of`."""

    data: bytes


class EndEntry(_TimedEntry, tag="over"):
    """The end.  status: what it came to; cut: not all is here, as it was too long; line: what the log has of it."""

    status: int
    cut: bool
    problem: Problem | None = None
    ledger: list[str] = []
    line: dict[str, Any] = {}


RecordingEntry = (
    RequestEntry
    | PreparedEntry
    | UpstreamRequestEntry
    | UpstreamHeadersEntry
    | UpstreamErrorEntry
    | UpstreamDataEntry
    | RoundEndEntry
    | ResponseHeadersEntry
    | ResponseDataEntry
    | EndEntry
)


def cause_of(entries: Sequence[RecordingEntry], n: int) -> int | None:
    """The last entry that what the client was sent in this one came of; None: of nothing that was read."""
    for place in range(n - 1, -1, -1):
        match entries[place]:
            case ResponseDataEntry():
                return None
            case UpstreamDataEntry() | RoundEndEntry():
                return place
    return None


class Recording:
    """The list, to be followed while it grows: nothing in it changes after the step in which it was added.

    started: when the request arrived, ISO 8601; most: bytes that it may take.  over: nothing more is added.
    size: bytes as they are counted, also of what has been left out as there was too much.
    """

    def __init__(self, id: str, started: str, most: int) -> None:
        self.id, self.started = id, started
        self.entries: list[RecordingEntry] = []
        self.max_bytes, self.size = most, 0
        self.over = False

    def add(self, entry: RecordingEntry, size: int = 0) -> None:
        """size: bytes of what it says.  It is left out where that is too much."""
        self.size += size + ENTRY
        if self.size <= self.max_bytes:
            self.entries.append(entry)

    @property
    def cut(self) -> bool:
        """There was more."""
        return self.size > self.max_bytes

    def end(self, entry: EndEntry) -> None:
        """Always added."""
        self.entries.append(entry)
        self.over = True

    @property
    def request_entry(self) -> RequestEntry | None:
        """Return the client's request, if it is known."""
        first = self.entries[0] if self.entries else None
        return first if isinstance(first, RequestEntry) else None
