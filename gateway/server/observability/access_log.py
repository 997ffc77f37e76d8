"""Write the access log: an entry for each finished request."""

from datetime import UTC, datetime
from typing import Any

from gateway.errors import Problem
from gateway.server.observability import logs, terminal_log
from gateway.server.observability.request_record import RequestRecord


class AccessLogEntry(logs.LogEntry):
    """The entry of a finished request."""

    def __init__(self, seen: RequestRecord) -> None:
        self._seen = seen

    def __str__(self) -> str:
        problem = self._seen.problem
        error = error_code(problem) if problem else None
        return terminal_log.request_line(self._seen, error, color=terminal_log.wants_color())

    def fields(self) -> dict[str, Any]:
        return {"message": "request completed", **access_log_fields(self._seen)}


def log_request(seen: RequestRecord) -> None:
    """Log a finished request, if the access log is enabled."""
    logs.requests.info(AccessLogEntry(seen))


def access_log_fields(seen: RequestRecord) -> dict[str, Any]:
    """Return the fields of the access log; times are seconds since the request arrived.

    No field holds text of a client, a model or a backend, unless the log may show content.  Then the warnings and the
    error have more details.
    """
    used = seen.usage()
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "id": seen.id,
        **({"trace_id": seen.trace.id} if seen.trace else {}),
        "endpoint": seen.endpoint,
        "key": seen.key,
        "model": seen.model,
        "backend": seen.backend,
        "format": seen.format,
        "status": seen.outcome,
        "error": _error(seen),
        "streamed": seen.streamed,
        "asked": _since(seen, seen.first_attempt_at),
        "first_byte": _since(seen, seen.pace.first_byte),
        "first_content": _since(seen, seen.pace.first_content),
        "duration": _since(seen, seen.ended),
        "input_tokens": used.prompt,
        "cached_tokens": used.cached,
        "output_tokens": used.completion,
        "reasoning_tokens": used.reasoning,
        "ledger": _ledger(seen),
        "stored": seen.stored,
        "received_bytes": seen.received,
        "sent_bytes": seen.sent,
    }


def _since(seen: RequestRecord, time: float | None) -> float | None:
    return None if time is None else round(time - seen.arrived, 6)


def _error(seen: RequestRecord) -> str | None:
    problem = seen.problem
    if not problem:
        return None
    return f"{problem.code}: {problem.message}" if logs.shows_content() else error_code(problem)


def error_code(problem: Problem) -> str | None:
    """Return the code of a problem; the type for an invalid request, as a backend may have chosen its code."""
    return problem.type if problem.status == 400 else problem.code


def _ledger(seen: RequestRecord) -> list[str] | dict[str, int]:
    """Return the warnings; only their codes if content is hidden, as their fields may have names from a client."""
    return seen.ledger.listed() if logs.shows_content() else seen.ledger.codes()
