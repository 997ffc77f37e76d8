"""Read how long a backend wants to be left alone, in any of the forms of HTTP and of hosted services."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import ceil

_NUMBER = re.compile(r"\d{1,9}(\.\d*)?", re.ASCII)


def stated_wait(headers: Mapping[str, str], now: float) -> str | None:
    """Return the wait in whole seconds, as a `retry-after` that all clients read; None if the response states none.

    now: Unix time.  A date counts from that of the response, as the clocks may differ.
    """
    stated = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(stated):
        return str(ceil(float(stated)))
    milliseconds = headers.get("retry-after-ms", "").strip()  # OpenAI, Azure
    if _NUMBER.fullmatch(milliseconds):
        return str(ceil(float(milliseconds) / 1000))
    if (until := _time(stated)) is None:
        return None
    sent = _time(headers.get("date", ""))
    return str(max(0, ceil(until - (now if sent is None else sent))))


def _time(date: str) -> float | None:
    """Return the Unix time of an HTTP date; None for anything else."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
