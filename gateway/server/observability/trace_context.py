"""Trace one request: its position in a W3C trace and the times of its steps."""

import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.builtin_tools import BuiltinToolResult, BuiltinToolRun
from gateway.config import BackendSettings

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MAX_STATE = 512  # characters of a tracestate; a longer one need not be passed on


class TraceParent(Struct, frozen=True):
    """The parent span of a request, if it is part of a trace.  state: for the next service."""

    trace: str
    span: str
    sampled: bool
    state: str = ""


def parse_traceparent(headers: Iterable[tuple[bytes, bytes]]) -> TraceParent | None:
    """Return the parent span of the headers; None if it is missing or invalid."""
    fields: dict[bytes, list[str]] = {}
    for name, value in headers:
        if name in (b"traceparent", b"tracestate"):
            fields.setdefault(name, []).append(value.decode("latin-1").strip())
    found = _PARENT.fullmatch(",".join(fields.get(b"traceparent", ())))
    if not found or (found[0].startswith("00") and found[4]):
        return None
    state = ",".join(fields.get(b"tracestate", ()))
    return TraceParent(found[1], found[2], bool(int(found[3], 16) & 1), state if len(state) <= _MAX_STATE else "")


@dataclass(slots=True, kw_only=True)
class TraceStep:
    """A step of a request.  Times are those of `perf_counter`; error: the code of its failure."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    begun: float = field(default_factory=perf_counter)
    ended: float = 0.0
    error: str | None = None

    def end(self) -> None:
        """Set the end of the step to now."""
        self.ended = perf_counter()


@dataclass(slots=True, kw_only=True)
class AttemptStep(TraceStep):
    """An attempt at a backend.  headers: for the upstream request; status: of the response, 0 without one."""

    kind: str
    host: str
    port: int
    path: str
    model: str
    headers: dict[str, str]
    status: int = 0


@dataclass(slots=True, kw_only=True)
class ToolStep(TraceStep):
    """A tool that ran at the gateway."""

    name: str
    call: str


class Trace:
    """The trace of one request.

    model: the backend's name of the model for the next attempt; steps: in the order of their start.
    """

    def __init__(self, parent: TraceParent | None, *, sampled: bool) -> None:
        self.parent, self.sampled = parent, sampled
        self.id = parent.trace if parent else secrets.token_hex(16)
        self.span, self.model = secrets.token_hex(8), ""
        self.steps: list[AttemptStep | ToolStep] = []

    def attempt(self, backend: BackendSettings, path: str) -> AttemptStep:
        """Begin the step of an attempt; its headers propagate the trace to the backend."""
        url, headers = urlsplit(backend.url), {"traceparent": ""}
        port = url.port or (443 if url.scheme == "https" else 80)
        if self.parent and self.parent.state:
            headers["tracestate"] = self.parent.state
        step = AttemptStep(
            kind=backend.kind, host=url.hostname or "", port=port, path=path, model=self.model, headers=headers
        )
        headers["traceparent"] = f"00-{self.id}-{step.id}-{self.sampled:02x}"
        self.steps.append(step)
        return step

    def running(
        self, due: Iterable[BuiltinToolRun], tell: Callable[[BuiltinToolResult], None]
    ) -> Callable[[BuiltinToolResult], None]:
        """Begin the steps of a round of tools; return a `tell` that ends the step of each result and passes it on."""
        runs = {run.id: ToolStep(name=run.ours.tool.name, call=run.id) for run in due}
        self.steps += runs.values()

        def end_span(result: BuiltinToolResult) -> None:
            runs[result.id].end()
            if result.item.get("error") is not None:
                runs[result.id].error = "tool_error"
            tell(result)

        return end_span
