"""Define the entries of a recording, in the order in which they occur.

The number of an entry is its place in the list of a Recording.
Each read from a backend contains the events that resulted from it.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from gateway.errors import Problem

ENTRY = 200  # bytes of overhead of one entry


class _TimedEntry(Struct, array_like=True, gc=False):
    """An entry with its time.  t: seconds since the request arrived."""

    t: float


class RequestEntry(_TimedEntry, tag="asked"):
    """The client's request.  headers: without those that identify the client; body: decoded."""

    path: str
    body: bytes
    headers: dict[str, str] = {}


class PreparedEntry(_TimedEntry, tag="prepared"):
    """The gateway is about to call a backend.

    backend: its name.
    server: its settings `kind` and `ignores`.
    settings: those of the model.
    format, reason: the format of the response, and the reason for the choice.
    learned: the server's metadata of the model.
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
    """An upstream call begins; `call` is its number."""

    call: int
    backend: str
    path: str
    body: bytes


class UpstreamHeadersEntry(_TimedEntry, tag="answered"):
    """An upstream call has a response that is no error.

    sent: the time at which the call left the queue of the backend.
    connected: the time of its new connection; None if it used one that was open.
    """

    call: int
    content_type: str
    sent: float | None = None
    connected: float | None = None


class UpstreamErrorEntry(_TimedEntry, tag="refused"):
    """An upstream call has an error response.  sent, connected: as in UpstreamHeadersEntry."""

    call: int
    status: int
    content_type: str
    body: bytes
    retry_after: str | None = None
    sent: float | None = None
    connected: float | None = None


class UpstreamDataEntry(_TimedEntry, tag="read"):
    """The data of one read from the backend, and its events: a JSON array, b"" for none."""

    call: int
    data: bytes
    events: bytes = b""


class RoundEndEntry(_TimedEntry, tag="ended"):
    """A round has ended, without a problem or with this one.  events: the events at its end, as a JSON array."""

    problem: Problem | None = None
    events: bytes = b""


class ResponseHeadersEntry(_TimedEntry, tag="began"):
    """The response to the client begins."""

    status: int
    headers: dict[str, str] = {}


class ResponseDataEntry(_TimedEntry, tag="wrote"):
    """Data sent to the client.  It results from the reads since the entry before; see `cause_of`."""

    data: bytes


class EndEntry(_TimedEntry, tag="over"):
    """The response has ended.

    status: the final status.
    cut: the recording was too long and is incomplete.
    line: the fields of the access log line.
    """

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
    """Return the last entry from which the data of entry `n` resulted; None if it did not result from a read."""
    for place in range(n - 1, -1, -1):
        match entries[place]:
            case ResponseDataEntry():
                return None
            case UpstreamDataEntry() | RoundEndEntry():
                return place
    return None
