"""Define the record of one request: written where a value becomes known, read at the end.

A record begins with a request, or with a response over a WebSocket.  It ends when its last holder releases it: the job
holds the record of a response that outlives its client's connection.
"""

from bisect import bisect_left
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from gateway.backends.pass_through import PASS_THROUGH
from gateway.errors import Problem
from gateway.events import Usage
from gateway.server.observability.metrics import GAPS
from gateway.warnings import Warnings

if TYPE_CHECKING:
    from gateway.server.observability.request_recorder import RequestRecorder
    from gateway.server.observability.trace_context import Trace


_ASKING = frozenset(
    (
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/responses/compact",
        "/v1/responses/input_tokens", "/v1/embeddings", "/v1/rerank", "/v1/tokenize", "/v1/detokenize",
        "/v1/messages", "/v1/messages/count_tokens",
    )
)  # fmt: skip
_STORED = {  # with all paths below them
    "/v1/responses": "/v1/responses/{id}",
    "/v1/chat/completions": "/v1/chat/completions/{id}",
    "/v1/conversations": "/v1/conversations",
    "/v1/files": "/v1/files",
    "/v1/uploads": "/v1/uploads",
    "/v1/batches": "/v1/batches",
    "/v1/models": "/v1/models",
}
_PASSED = frozenset(row.path for row in PASS_THROUGH)
_OURS = frozenset(
    ("/health", "/ready", "/metrics", "/", "/inspector", "/playground", "/docs", "/openapi.json", "/favicon.ico")
)
_CONSOLE = ("/admin/", "/assets/", "/docs/")
RESPONSES = "/v1/responses"
OTHER = "other"
_PLACE = "gateway.observation"  # in the scope of a request
_LEFT = 499


def endpoint_label(method: str, path: str) -> str:
    """Return the endpoint of a path for metrics; "" if it is not counted.

    A path that requests a model, or is passed on, is its own label.  The others have a pattern like
    `/v1/responses/{id}`, or `other`.
    """
    if (method == "POST" and path in _ASKING) or path in _PASSED:
        return path
    if path in _OURS or path.startswith(_CONSOLE):
        return ""
    return next((name for root, name in _STORED.items() if f"{path}/".startswith(f"{root}/")), OTHER)


def _nothing() -> Usage:
    return Usage(0, 0)


@dataclass(slots=True, eq=False)
class StreamTiming:
    """The times of a response's chunks.  gaps: the number of gaps between chunks per bucket of `GAPS`."""

    first_byte: float | None = None
    first_content: float | None = None
    last: float = 0.0
    gaps: list[int] = field(default_factory=([0] * (len(GAPS) + 1)).copy)
    _last_unseen: float = -1.0  # the last chunk that gave the client nothing
    _unseen_since: float = 0.0

    def chunk_received(self, now: float, begun: bool) -> None:
        """Note a chunk.  begun: the response has had content."""
        if self.first_content is not None:
            self.gaps[bisect_left(GAPS, now - self.last)] += 1
        else:
            self._begin(now, begun)
        self.last = now

    def unseen_chunk_received(self, now: float, begun: bool, limit: float) -> bool:
        """Note a chunk that gives the client nothing.

        Return True if the client has had nothing for `limit` seconds; they begin anew then.
        """
        before = self.last
        self.chunk_received(now, begun)
        if before != self._last_unseen:
            self._unseen_since = before or self.last
        is_overdue = self.last - self._unseen_since >= limit
        self._last_unseen = -1.0 if is_overdue else self.last
        return is_overdue

    def _begin(self, now: float, begun: bool) -> None:
        if begun:
            self.first_content = now
        if self.first_byte is None:
            self.first_byte = now


@dataclass(slots=True, eq=False, weakref_slot=True)
class RequestRecord:
    """The record of one request.  Times are those of `perf_counter`.

    endpoint: "" if it is not counted; over: called at the end of the record.
    key: the name of the client's key; model, backend, format: of the response, or of the last attempt.
    status: as sent, 0 if none was; problem: the failure of the request; left: the client disconnected early.
    usage: returns the tokens so far; received, sent: bytes of bodies; stored: the response was stored.
    recorder, trace: None if the request is not recorded or traced.
    """

    id: str
    method: str
    endpoint: str
    over: Callable[["RequestRecord"], None]
    arrived: float = field(default_factory=perf_counter)
    first_attempt_at: float | None = None
    ended: float = 0.0
    pace: StreamTiming = field(default_factory=StreamTiming)
    key: str = ""
    model: str = ""
    backend: str = ""
    format: str = ""
    streamed: bool = False
    status: int = 0
    problem: Problem | None = None
    left: bool = False
    usage: Callable[[], Usage] = _nothing
    ledger: Warnings = field(default_factory=Warnings)
    received: int = 0
    sent: int = 0
    stored: bool = False
    recorder: "RequestRecorder | None" = None
    trace: "Trace | None" = None
    _holders: int = 1

    def retain(self) -> Callable[[], None]:
        """Add a holder; return the function that releases the record."""
        self._holders += 1
        return self.release

    def release(self) -> None:
        """Remove a holder; the last one ends the record."""
        self._holders -= 1
        if not self._holders:
            self.ended = perf_counter()
            used = self.usage()
            # The function and the recorder refer to the whole request.
            # A connection keeps this record until its next request.
            self.usage = lambda: used
            self.over(self)
            self.recorder = None

    @property
    def is_last_holder(self) -> bool:
        """True if a single holder is left."""
        return self._holders == 1

    @property
    def outcome(self) -> int:
        """The final status; of a broken stream the status of its failure, and 499 if the client left."""
        if self.problem:
            return self.problem.status
        return _LEFT if self.left else self.status or _LEFT

    def set_route(self, model: str, backend: str, format: str) -> None:
        """Note the backend of an attempt."""
        self.model, self.backend, self.format = model, backend, format
        if self.first_attempt_at is None:
            self.first_attempt_at = perf_counter()


# The request that the current task serves.  Tasks and connections that the task starts inherit it, and may outlive the
# request: so it is a weak reference.
_current: ContextVar[ReferenceType[RequestRecord] | None] = ContextVar("current_record", default=None)


def set_current_record(record: RequestRecord) -> None:
    """Set the record of the request that the current task serves."""
    _current.set(ref(record))


def current_request_id() -> str:
    """Return the id of the request that the current task serves; "" without one, and after its end."""
    reference = _current.get()
    record = reference() if reference else None
    return record.id if record and not record.ended else ""


def set_record(scope: MutableMapping[str, Any], record: RequestRecord) -> None:
    """Set the record of the request with this scope."""
    scope[_PLACE] = record


def set_key_name(scope: MutableMapping[str, Any], name: str) -> None:
    """Note the name of the client's key; a WebSocket handshake has no record."""
    if _PLACE in scope:
        record_of(scope).key = name


def record_of(scope: MutableMapping[str, Any]) -> RequestRecord:
    """Return the record of the request with this scope."""
    record: RequestRecord = scope[_PLACE]
    return record
