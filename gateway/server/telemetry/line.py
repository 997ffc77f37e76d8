"""An observation as a line of the log: one JSON object."""

from datetime import UTC, datetime
from typing import Any

from msgspec import json

from gateway.errors import Problem
from gateway.server import logs
from gateway.server.telemetry.observation import RequestRecord


def access_log_line(seen: RequestRecord) -> str:
    return json.encode(access_log_fields(seen)).decode()


def access_log_fields(seen: RequestRecord) -> dict[str, Any]:
    """Times are seconds since the request arrived; nothing in it is a client's, a model's or a backend's word.

    Where the log may show these, it has more of the ledger and of what went wrong.
    """
    used = seen.spent()
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
        "asked": _since(seen, seen.asked),
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
    """Return its code; for errors of the request none, as a backend may have worded it."""
    return problem.type if problem.status == 400 else problem.code


def _ledger(seen: RequestRecord) -> list[str] | dict[str, int]:
    """Return the warnings; the subject of one may be a name that a client made up."""
    return seen.ledger.listed() if logs.shows_content() else seen.ledger.codes()
