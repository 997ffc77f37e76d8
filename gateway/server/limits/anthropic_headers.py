"""Report rate limits in the headers of Anthropic's API, beside those of OpenAI's."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from gateway.server.limits.rate_limiter import HEADERS

ANTHROPIC_HEADERS = tuple(
    f"anthropic-ratelimit-{unit}-{field}"
    for field, unit in (name.removeprefix("x-ratelimit-").split("-") for name in HEADERS)
)
_NAMES = dict(zip(HEADERS, ANTHROPIC_HEADERS, strict=True))


def with_anthropic_headers(headers: Mapping[str, str], now: float | None = None) -> dict[str, str]:
    """Return the headers, with each `x-ratelimit-…` in Anthropic's form as well.

    now: Unix seconds; None for the clock's.
    """
    now = time.time() if now is None else now
    added = {_NAMES[name]: _value(name, value, now) for name, value in headers.items() if name in _NAMES}
    return {**headers, **added}


def _value(name: str, value: str, now: float) -> str:
    """Return a value; the reset is a point in time, where OpenAI's is a duration such as `12s`."""
    if "-reset-" not in name:
        return value
    return datetime.fromtimestamp(int(now) + int(value.removesuffix("s")), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
