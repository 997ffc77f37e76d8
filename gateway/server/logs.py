"""Configure the logs of all processes.  They hold no content of requests and responses unless configured.

What they say goes to a logger of its own, `content`, which `logs.content` switches on; `logs.requests` switches on
another, `requests`, that has a line of JSON for each.
"""

import logging
import traceback
from types import TracebackType

from gateway.config import LogSettings

content = logging.getLogger("gateway.content")
content.setLevel(logging.CRITICAL)
requests = logging.getLogger("gateway.requests")
requests.setLevel(logging.CRITICAL)


def configure_logging() -> None:
    """On standard error: warnings of everybody, and what the gateway itself does."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("gateway").setLevel(logging.INFO)
    requests.addHandler(logging.StreamHandler())  # nothing but the line
    requests.propagate = False


def apply_settings(settings: LogSettings) -> None:
    content.setLevel(logging.INFO if settings.content else logging.CRITICAL)
    requests.setLevel(logging.INFO if settings.requests else logging.CRITICAL)


class RedactingFormatter(logging.Formatter):
    """Says which exception came from where, but not its message, which may quote a request, unless content is shown."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == "asyncio" and not shows_content():  # it shows the results of tasks
            record.msg, record.args = record.getMessage().partition("\n")[0], ()
        record.exc_text = None  # as another formatter would have it, which remembers it here
        try:
            return super().format(record)
        finally:
            record.exc_text = None

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return super().formatException(ei) if shows_content() else "\n".join(_told(ei[1]))


def shows_content() -> bool:
    return content.isEnabledFor(logging.INFO)


def _told(error: BaseException | None) -> list[str]:
    """Return the traceback with its causes first, as Python does."""
    if error is None:
        return []
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    here = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return [*_told(before), here, kind, *(line for one in inner for line in _told(one))]
