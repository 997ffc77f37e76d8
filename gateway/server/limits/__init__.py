"""Limit what keys and models may use, across workers and replicas.

Reading order:

    rate_limiter    admission by limits, and the final usage                    ← start here
    rate_windows    the arithmetic of one limit: the use, and when there is room again
    counters        the shared counters, in the store
    redis_counter   the same in Redis
"""

from gateway.server.limits.rate_limiter import HEADERS, RateLimiter, RateLimitPermit, estimate_tokens

__all__ = ["HEADERS", "RateLimitPermit", "RateLimiter", "estimate_tokens"]
