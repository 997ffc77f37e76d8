"""Define the record of one request: written where a value becomes known, read at the end.

A record begins where the request enters, or where a turn of a WebSocket does, and ends when its last holder lets go of
it: a response that outlives its client's connection is held by its job.
"""

from bisect import bisect_left
from collections.abc import Callable, MutableMapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

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
    )
)  # fmt: skip
_STORED = {  # and all that is below
    "/v1/responses": "/v1/responses/{id}",
    "/v1/chat/completions": "/v1/chat/completions/{id}",
    "/v1/conversations": "/v1/conversations",
    "/v1/models": "/v1/models",
}
_OURS = frozenset(("/health", "/ready", "/metrics", "/"))
_CONSOLE = ("/admin/", "/assets/")
RESPONSES = "/v1/responses"
OTHER = "other"
_PLACE = "gateway.observation"  # in the scope of a request
_LEFT = 499


def endpoint_label(method: str, path: str) -> str:
    """The path where it is a question for a model; "" for what asks after the gateway itself."""
    if method == "POST" and path in _ASKING:
        return path
    if path in _OURS or path.startswith(_CONSOLE):
        return ""
    return next((name for root, name in _STORED.items() if f"{path}/".startswith(f"{root}/")), OTHER)


def _nothing() -> Usage:
    return Usage(0, 0)


class StreamTiming(Struct, eq=False):
    """When pieces of an answer came.  gaps: how many of the times between two fell into each bucket, from `GAPS`."""

    first_byte: float | None = None
    first_content: float | None = None
    last: float = 0.0
    gaps: list[int] = field(default_factory=([0] * (len(GAPS) + 1)).copy)

    def chunk_received(self, begun: bool) -> None:
        """A piece has come; begun: there has been content by now."""
        now = perf_counter()
        if self.first_content is not None:
            self.gaps[bisect_left(GAPS, now - self.last)] += 1
        else:
            self._begin(now, begun)
        self.last = now

    def _begin(self, now: float, begun: bool) -> None:
        if begun:
            self.first_content = now
        if self.first_byte is None:
            self.first_byte = now


class RequestRecord(Struct, eq=False):
    """Times are those of `perf_counter`.  endpoint: "" if it is not counted.

    key: the name of the client's; model, backend, format: of the answer, or of the last attempt at one.
    status: as it was sent, 0 if none was; problem: why there is no answer, or not all of one; left: the client has.
    spent: gives the tokens by now; received, sent: bytes of bodies; stored: the answer was.
    tape: what writes it down, if anything does; trace: what it is in traces, if it has a place in any.
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
        """Keep it open; return the function that lets go of it."""
        self._holders += 1
        return self.release

    def release(self) -> None:
        self._holders -= 1
        if not self._holders:
            self.ended = perf_counter()
            used = self.usage()
            # What told it, and a tape, know the whole request, and a connection keeps this until its next one.
            self.usage = lambda: used
            self.over(self)
            self.recorder = None

    @property
    def is_last_holder(self) -> bool:
        """Return True if a single holder is left."""
        return self._holders == 1

    @property
    def outcome(self) -> int:
        """Return the final status; of a broken stream that of the failure."""
        if self.problem:
            return self.problem.status
        return _LEFT if self.left else self.status or _LEFT

    def set_route(self, model: str, backend: str, format: str) -> None:
        """Note the backend that gets the request, perhaps after another one."""
        self.model, self.backend, self.format = model, backend, format
        if self.first_attempt_at is None:
            self.first_attempt_at = perf_counter()


def set_record(scope: MutableMapping[str, Any], seen: RequestRecord) -> None:
    """From now on it is that of the request with this scope."""
    scope[_PLACE] = seen


def set_key_name(scope: MutableMapping[str, Any], name: str) -> None:
    """Of the client's key; a handshake is not observed."""
    if _PLACE in scope:
        record_of(scope).key = name


def record_of(scope: MutableMapping[str, Any]) -> RequestRecord:
    """Return the record of the request with this scope."""
    seen: RequestRecord = scope[_PLACE]
    return seen
