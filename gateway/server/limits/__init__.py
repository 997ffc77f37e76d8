"""Limit what keys and models may use, across workers and replicas.

Reading order:

    rate_limiter    admission by limits, and the final usage                    ← start here
    rate_windows    the arithmetic of one limit: the use, and when there is room again
    counters        the shared counters, in the store
    redis_counter   the same in Redis
    anthropic_headers  the headers of Anthropic's API
"""

from gateway.server.limits.anthropic_headers import ANTHROPIC_HEADERS, with_anthropic_headers
from gateway.server.limits.rate_limiter import (
    BUDGETS_HEADER,
    HEADERS,
    RateLimiter,
    RateLimitPermit,
    estimate_tokens,
)

__all__ = [
    "ANTHROPIC_HEADERS",
    "BUDGETS_HEADER",
    "HEADERS",
    "RateLimitPermit",
    "RateLimiter",
    "estimate_tokens",
    "with_anthropic_headers",
]
