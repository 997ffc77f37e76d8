"""Say why a request failed: the backend's words, equal failures in the last hour, and what to do."""

from collections.abc import Collection, Iterable

from msgspec import Struct

from gateway.code_texts import error_advice
from gateway.errors import Problem
from gateway.recording import EndEntry, Recording, ResponseDataEntry, UpstreamErrorEntry, redact_text
from gateway.server.observability.access_log import error_code
from gateway.server.observability.minute_counts import MinuteCounts

_BODY = 1 << 14  # characters that are shown of a backend's error and of the response


class FailureView(Struct, frozen=True):
    """The failure of a request.

    backend: "" if no backend was called; status, content_type, body: of the backend's last error response.
    n: the number of its entry; cut: the size of the body in bytes if only its beginning is shown.
    sent: the end of what the client received.
    advice: what to do; equal: requests of all workers that failed alike in the last hour, with this one.
    """

    status: int
    code: str
    message: str
    backend: str
    upstream_status: int | None
    content_type: str
    body: str
    cut: int | None
    n: int | None
    sent: str
    advice: str
    equal: int


def has_failed(recording: Recording) -> bool:
    """Return True if a request is over and has failed."""
    return isinstance(recording.last, EndEntry) and recording.last.status >= 400


def failure_view(
    recording: Recording, over: EndEntry, minutes: Iterable[MinuteCounts], secrets: Collection[bytes]
) -> FailureView:
    """Return the failure of a request that ended with `over`.  minutes: the counts of the last hour of all workers."""
    problem = over.problem or Problem(over.status, "")
    code = problem.code or problem.type
    refused = [(n, entry) for n, entry in enumerate(recording.entries) if isinstance(entry, UpstreamErrorEntry)]
    n, entry = refused[-1] if refused else (None, None)
    body = redact_text(entry.body.decode(errors="replace"), secrets) if entry else ""
    sent = b"".join(one.data for one in recording.entries if isinstance(one, ResponseDataEntry))
    return FailureView(
        status=over.status,
        code=code,
        message=redact_text(problem.message, secrets),
        backend=over.line.get("backend", ""),
        upstream_status=entry.status if entry else None,
        content_type=entry.content_type if entry else "",
        body=body[:_BODY],
        cut=len(entry.body) if entry and len(body) > _BODY else None,
        n=n,
        sent=redact_text(sent.decode(errors="replace"), secrets)[-_BODY:],
        advice=error_advice(over.status, code),
        equal=_equal(minutes, over, error_code(problem) or ""),
    )


def _equal(minutes: Iterable[MinuteCounts], over: EndEntry, code: str) -> int:
    """Return the number of requests with the same status, code, model and backend."""
    key = over.status, code, over.line.get("model", ""), over.line.get("backend", "")
    return sum(
        count
        for minute in minutes
        for (status, error, _, model, backend), (count, _last) in minute.groups.items()
        if (status, error, model, backend) == key
    )
