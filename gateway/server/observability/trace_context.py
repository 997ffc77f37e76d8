"""A request's place in a trace, and when what happened to it; the ids are those of W3C's trace context."""

import re
import secrets
from collections.abc import Callable, Iterable
from time import perf_counter
from urllib.parse import urlsplit

from msgspec import Struct, field

from gateway.builtin_tools import BuiltinToolResult, BuiltinToolRun
from gateway.config import BackendSettings

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MOST_STATE = 512  # characters of a tracestate, beyond which it need not be passed on


class TraceParent(Struct, frozen=True):
    """The parent span of a request, if it is part of a trace.  state: for the next service."""

    trace: str
    span: str
    sampled: bool
    state: str = ""


def parse_traceparent(headers: Iterable[tuple[bytes, bytes]]) -> TraceParent | None:
    """None if the headers say nothing of it that is sound."""
    fields: dict[bytes, list[str]] = {}
    for name, value in headers:
        if name in (b"traceparent", b"tracestate"):
            fields.setdefault(name, []).append(value.decode("latin-1").strip())
    found = _PARENT.fullmatch(",".join(fields.get(b"traceparent", ())))
    if not found or (found[0].startswith("00") and found[4]):
        return None
    state = ",".join(fields.get(b"tracestate", ()))
    return TraceParent(found[1], found[2], bool(int(found[3], 16) & 1), state if len(state) <= _MOST_STATE else "")


class TraceStep(Struct, kw_only=True):
    """Something that was done on the way.  Times are those of `perf_counter`; error: why it came to nothing."""

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    begun: float = field(default_factory=perf_counter)
    ended: float = 0.0
    error: str | None = None

    def end(self) -> None:
        self.ended = perf_counter()


class AttemptStep(TraceStep):
    """A question to a backend.  kind: of server; headers: that go with it; status: of its answer, 0: there is none."""

    kind: str
    host: str
    port: int
    path: str
    model: str
    headers: dict[str, str]
    status: int = 0


class ToolStep(TraceStep):
    """A tool that ran at the gateway."""

    name: str
    call: str


class Trace:
    """Of one request.  model: what the backend that is asked next calls it; steps: in the order in which they began."""

    def __init__(self, parent: TraceParent | None, *, sampled: bool) -> None:
        self.parent, self.sampled = parent, sampled
        self.id = parent.trace if parent else secrets.token_hex(16)
        self.span, self.model = secrets.token_hex(8), ""
        self.steps: list[AttemptStep | ToolStep] = []

    def attempt(self, backend: BackendSettings, path: str) -> AttemptStep:
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
        """Begin the span of a round of tools; each result ends the span of its call, and passes on."""
        runs = {run.id: ToolStep(name=run.ours.tool.name, call=run.id) for run in due}
        self.steps += runs.values()

        def told(result: BuiltinToolResult) -> None:
            runs[result.id].end()
            if result.item.get("error") is not None:
                runs[result.id].error = "tool_error"
            tell(result)

        return told
