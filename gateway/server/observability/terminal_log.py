"""Write the log for a person at a terminal: short lines, with colors."""

import os
import sys
from collections.abc import Iterator, Mapping

from gateway.server.observability.request_record import RequestRecord
from gateway.warnings import safe_name

_RED, _GREEN, _YELLOW, _DIM, _OFF = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"
_LEVELS = {"WARNING": ("warning: ", _YELLOW), "ERROR": ("error: ", _RED), "CRITICAL": ("error: ", _RED)}


def is_terminal() -> bool:
    """Return True if a terminal shows standard error."""
    return sys.stderr.isatty()


def wants_color(environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if lines may have colors: on a terminal that has them, without NO_COLOR."""
    return is_terminal() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def log_line(time: str, level: str, text: str, *, color: bool) -> str:
    """Return a line of the log.  level: its name in the library `logging`; those below WARNING are not shown."""
    mark, style = _LEVELS.get(level, ("", ""))
    return f"{time} {_painted(mark, style if color else '')}{text}"


def request_line(seen: RequestRecord, error: str | None, *, color: bool) -> str:
    """Return the line of a finished request, without its time.  error: the code of its problem."""
    status = seen.outcome
    style = _GREEN if status < 400 else _YELLOW if status < 500 else _RED
    values = [_painted(str(status), style if color else ""), *_values(seen, error or "")]
    return "  ".join([*filter(None, values), _painted(safe_name(seen.id), _DIM if color else "")])


def _values(seen: RequestRecord, error: str) -> Iterator[str]:
    """Yield the values of a line, "" for one that the request does not have."""
    used, first = seen.usage(), seen.pace.first_content
    yield f"{safe_name(seen.model)} at {seen.backend}" if seen.backend else seen.endpoint
    yield seen.format
    yield f"{used.prompt}+{used.completion} tokens" if used.prompt or used.completion else ""
    yield f"first token {first - seen.arrived:.2f} s" if first else ""
    yield f"{seen.ended - seen.arrived:.2f} s"
    yield safe_name(error)
    yield ", ".join(f"{code} {count}" for code, count in seen.ledger.codes().items())


def _painted(text: str, style: str) -> str:
    return f"{style}{text}{_OFF}" if style else text
