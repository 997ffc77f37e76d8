"""Limits of what keys and models may use, right across workers and replicas.

Reading order:

    limits      admission by limits, and the final usage                    ← start here
    grant       the leave that is given, for as long as an answer takes
    windows     the arithmetic of one limit: how much is used, and when there is room again
    places      how many may be asked at a time
    counters    where all processes count together, and what is done where they cannot:
    in_store    in the store,
    in_redis    or in Redis
    sizes       how many tokens a request may take
"""

from gateway.server.limiting.grant import RateLimitPermit
from gateway.server.limiting.limits import HEADERS, RateLimiter
from gateway.server.limiting.sizes import estimate_tokens

__all__ = ["HEADERS", "RateLimitPermit", "RateLimiter", "estimate_tokens"]
