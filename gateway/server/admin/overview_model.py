"""Define the document of /admin/overview: the state of a gateway with all its workers, as JSON.

It holds no content of requests and responses, unless the log may show content.
"""

from msgspec import Struct

from gateway.server.admin.hour import BackendHourView, HourView
from gateway.server.observability.snapshot import FailureInfo, RequestSnapshot


class ThroughputView(Struct, frozen=True):
    """Requests in progress, and the rates of requests and of response tokens."""

    in_flight: int
    requests_per_second: float
    tokens_per_second: float


class ModelBackendView(Struct, frozen=True):
    """A model at a backend.

    format: of the model's text; reason: of the format's choice; parsed: the backend's server parses the text first.
    """

    backend: str
    upstream_model: str
    format: str
    reason: str
    parsed: bool
    thought: str
    tools: str


class ModelView(Struct, frozen=True):
    """A model.

    source: "configured" or "listed", if only a backend's list names it; context_length: tokens, None if unknown.
    """

    id: str
    source: str
    aliases: list[str]
    context_length: int | None
    capabilities: list[str] | None
    pace: ThroughputView
    places: list[ModelBackendView]


class BackendView(Struct, frozen=True):
    """A backend.  Its health is the worst that a worker sees.

    concurrent: requests at a time; 0: no limit.
    models: the number of listed models; None if it is unknown, for the reason in `problem`.
    state: `healthy`, `degraded` or `unreachable`; cause: a sentence for the latter two.
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
    state: str = "healthy"
    cause: str | None = None
    hour: BackendHourView = BackendHourView()


class WorkersView(Struct, frozen=True):
    """The number of configured workers, and of workers whose data the document has (`heard`)."""

    configured: int
    heard: int


class Overview(Struct, frozen=True):
    """The state of the gateway.

    time: Unix seconds; window_seconds: the longest period of the rates; models_left_out: models beyond the shown ones.
    errors: the last failed requests; requests: the running ones, then the last finished ones; hour: the last hour.
    prompts: the first words of these requests by id, if the inspector is on.
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
    hour: HourView = HourView()
    prompts: dict[str, str] = {}


def format_duration(seconds: float) -> str:
    """Return a duration with its unit, in two or three digits."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    for unit, length in (("s", 1), ("min", 60), ("h", 3600)):
        if seconds < 100 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
