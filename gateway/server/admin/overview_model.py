"""Define the document of /admin/overview: the state of a gateway with all its workers, as JSON.

It holds no content of requests and responses, unless the log may show content.
"""

from msgspec import Struct

from gateway.server.observability.snapshot import FailureInfo, RequestSnapshot


class ThroughputView(Struct, frozen=True):
    """Work in progress, and work done in a second; the tokens are those of responses."""

    in_flight: int
    requests_per_second: float
    tokens_per_second: float


class ModelBackendView(Struct, frozen=True):
    """A model at a backend.  format: how its text is read, and reason why; parsed: its server reads it first."""

    backend: str
    upstream_model: str
    format: str
    reason: str
    parsed: bool
    thought: str
    tools: str


class ModelView(Struct, frozen=True):
    """source: the configuration names it, or a backend lists it; context_length: tokens, None if unknown."""

    id: str
    source: str
    aliases: list[str]
    context_length: int | None
    capabilities: list[str] | None
    pace: ThroughputView
    places: list[ModelBackendView]


class BackendView(Struct, frozen=True):
    """A backend.  The health is the worst that a worker sees; concurrent: requests at a time, 0: no limit.

    models: how many it lists, None where it does not say, for the reason in `problem`.
    """

    name: str
    kind: str
    url: str
    healthy: bool
    circuit: str
    back_in_seconds: float
    queued: int
    concurrent: int
    pace: ThroughputView
    models: int | None
    problem: str | None
    last_failure: FailureInfo | None


class WorkersView(Struct, frozen=True):
    """heard: of how many of them this tells."""

    configured: int
    heard: int


class Overview(Struct, frozen=True):
    """time: in Unix seconds; window_seconds: of the rates, at most; models_left_out: there are more of them.

    errors: the last requests that came to nothing; requests: those that go on, then the last that are over.
    """

    version: str
    time: float
    window_seconds: float
    workers: WorkersView
    pace: ThroughputView
    models: list[ModelView]
    models_left_out: int
    backends: list[BackendView]
    errors: list[RequestSnapshot]
    requests: list[RequestSnapshot]


def format_duration(seconds: float) -> str:
    """How long that is, in two or three digits."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    for unit, length in (("s", 1), ("min", 60), ("h", 3600)):
        if seconds < 100 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
