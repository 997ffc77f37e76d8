"""Configure the logs of all processes, and write the access log.  They hold no content unless configured.

Content goes to a logger of its own, `content`, which `logs.content` enables.  `logs.requests` enables another one,
`requests`, with a JSON object for each request.
"""

import logging
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from msgspec import json

from gateway.config import LogSettings
from gateway.errors import Problem
from gateway.server.observability.request_record import RequestRecord

content = logging.getLogger("gateway.content")
content.setLevel(logging.CRITICAL)
requests = logging.getLogger("gateway.requests")
requests.setLevel(logging.CRITICAL)


def configure_logging() -> None:
    """Log to standard error: warnings of all libraries, and information of the gateway."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("gateway").setLevel(logging.INFO)
    requests.addHandler(logging.StreamHandler())  # only the line itself
    requests.propagate = False


def apply_settings(settings: LogSettings) -> None:
    """Enable or disable the content log and the access log."""
    content.setLevel(logging.INFO if settings.content else logging.CRITICAL)
    requests.setLevel(logging.INFO if settings.requests else logging.CRITICAL)


class RedactingFormatter(logging.Formatter):
    """Format exceptions without their messages, which may quote a request, unless content is shown."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; drop details that hold content."""
        if record.name == "asyncio" and not shows_content():  # asyncio logs the results of tasks
            record.msg, record.args = record.getMessage().partition("\n")[0], ()
        record.exc_text = None  # another formatter may have cached its text here
        try:
            return super().format(record)
        finally:
            record.exc_text = None

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Format an exception: without messages unless content is shown."""
        return super().formatException(ei) if shows_content() else "\n".join(_traceback_lines(ei[1]))


def shows_content() -> bool:
    """Return True if the log may show content."""
    return content.isEnabledFor(logging.INFO)


def _traceback_lines(error: BaseException | None) -> list[str]:
    """Return the traceback with its causes first, as Python does."""
    if error is None:
        return []
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    here = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return [*_traceback_lines(before), here, kind, *(line for one in inner for line in _traceback_lines(one))]


def access_log_line(seen: RequestRecord) -> str:
    """Return the line of the access log for a request."""
    return json.encode(access_log_fields(seen)).decode()


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
    return f"{problem.code}: {problem.message}" if shows_content() else error_code(problem)


def error_code(problem: Problem) -> str | None:
    """Return the code of a problem; the type for an invalid request, as a backend may have chosen its code."""
    return problem.type if problem.status == 400 else problem.code


def _ledger(seen: RequestRecord) -> list[str] | dict[str, int]:
    """Return the warnings; only their codes if content is hidden, as their fields may have names from a client."""
    return seen.ledger.listed() if shows_content() else seen.ledger.codes()
