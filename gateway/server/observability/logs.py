"""Configure the logs of all processes: one format for all lines.  They hold no content unless configured.

Content goes to a logger of its own, `content`, which `logs.content` enables.  `logs.requests` enables another one,
`requests`, with an entry for each request.  If it is not set, a terminal shows these entries.
"""

import logging
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from msgspec import json

from gateway.config import LogSettings
from gateway.server.observability import terminal_log
from gateway.server.observability.request_record import current_request_id
from gateway.warnings import safe_name

content = logging.getLogger("gateway.content")
content.setLevel(logging.CRITICAL)
requests = logging.getLogger("gateway.requests")
requests.setLevel(logging.CRITICAL)
_log = logging.getLogger("gateway")


class LogHandler(logging.StreamHandler[Any]):
    """The handler of standard error."""


def configure_logging(settings: LogSettings) -> None:
    """Log to standard error: warnings of all libraries, and information of the gateway."""
    logging.basicConfig(level=logging.WARNING, handlers=[LogHandler()])
    _log.setLevel(logging.INFO)
    logging.captureWarnings(True)
    threading.excepthook = log_thread_failure
    apply_settings(settings)


def apply_settings(settings: LogSettings) -> None:
    """Apply the format, and enable or disable the content log and the access log."""
    content.setLevel(logging.INFO if settings.content else logging.CRITICAL)
    on_terminal = settings.requests is None and terminal_log.is_terminal()
    requests.setLevel(logging.INFO if settings.requests or on_terminal else logging.CRITICAL)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogHandler):
            handler.setFormatter(log_formatter(settings))


def log_formatter(settings: LogSettings) -> "RedactingFormatter":
    """Return the formatter for standard error: for JSON, for a terminal, or for other text."""
    if writes_json(settings):
        return JsonFormatter()
    if terminal_log.is_terminal():
        return TerminalFormatter()
    return RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


def writes_json(settings: LogSettings) -> bool:
    """Return True if each line is a JSON object."""
    return settings.format == "json" or (settings.format is None and bool(settings.requests))


def announce(text: str, settings: LogSettings) -> None:
    """Write what an operator reads at the start: as an entry of a log in JSON, else as it is."""
    if writes_json(settings):
        _log.info("%s", text)
    else:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def log_thread_failure(failure: threading.ExceptHookArgs) -> None:
    """Log the exception that ended a thread."""
    if failure.exc_value:
        _log.error("a thread failed", exc_info=failure.exc_value)


@contextmanager
def survive(work: str) -> Iterator[None]:
    """Log an unexpected error of one round of an endless task, which goes on with the next round.

    work: what failed, for the log.
    """
    try:
        yield
    except Exception:  # noqa: BLE001 - the log has it
        _log.exception("%s failed, the gateway tries again", work)


@contextmanager
def logged_failure() -> Iterator[None]:
    """Log an exception that would end the process, and exit with status 1."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - Python would write it in another format
        _log.critical("the process failed", exc_info=error)
        sys.exit(1)


class LogEntry(ABC):
    """A message with fields: its text is for lines of text, its fields are for JSON."""

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Return the members of the JSON object."""


class RedactingFormatter(logging.Formatter):
    """Format a record as text, with the id of its request.

    Exceptions have no messages, which may quote a request, unless content is shown.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; drop details that hold content."""
        _hide_results(record)
        record.exc_text = None  # another formatter may have cached its text here
        try:
            return super().format(record)
        finally:
            record.exc_text = None

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format the message of a record."""
        record.message = _with_id(record)
        return super().formatMessage(record)

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Format an exception: without messages unless content is shown."""
        return super().formatException(ei) if shows_content() else "\n".join(_traceback_lines(ei[1]))


class TerminalFormatter(RedactingFormatter):
    """Format a record for a terminal: with the time of day, and the level only of warnings and errors."""

    def usesTime(self) -> bool:
        """Return False: `formatMessage` writes the time."""
        return False

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format the message of a record."""
        time, color = self.formatTime(record, "%H:%M:%S"), terminal_log.wants_color()
        return terminal_log.log_line(time, record.levelname, _with_id(record), color=color)


class JsonFormatter(RedactingFormatter):
    """Format a record as a JSON object, with its traceback as a member."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; drop details that hold content."""
        _hide_results(record)
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(record.msg, LogEntry):
            entry |= record.msg.fields()
        else:
            entry["message"] = record.getMessage()
            if id := request_id_of(record):
                entry["id"] = id
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.encode(entry).decode()


def request_id_of(record: logging.LogRecord) -> str:
    """Return the id of the request that a record is about; "" without one.

    A record may name it as `request_id`.  Otherwise it is the request that the task serves, unless that has ended: a
    task may outlive the request that started it.  asyncio logs from any task.
    """
    if given := getattr(record, "request_id", ""):
        return str(given)
    return current_request_id() if record.name != "asyncio" else ""


def _hide_results(record: logging.LogRecord) -> None:
    """Shorten a record of asyncio, which logs the results of tasks, unless content is shown."""
    if record.name == "asyncio" and not shows_content():
        record.msg, record.args = record.getMessage().partition("\n")[0], ()


def _with_id(record: logging.LogRecord) -> str:
    """Return the message with the id of its request, which entries have already."""
    id = "" if isinstance(record.msg, LogEntry) else request_id_of(record)
    return f"request {safe_name(id)}: {record.message}" if id else record.message


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
