"""Count usage in Redis, for gateways that share no store or want to keep load off it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.errors import StoreFailed
from gateway.server.limits.counters import SlotCounts
from gateway.store.records import UsageSlot

_CONNECTIONS = 16  # of one process; each is in use for a fraction of a millisecond
_WAIT = 1.0  # seconds for a connection, and for a response


class RedisCounter:
    """Count usage in Redis, one transaction per request.

    A second transaction gives back amounts that do not fit.  Between the two, other requests may be refused.
    """

    def __init__(self, url: str) -> None:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=_WAIT,
            socket_timeout=_WAIT,
            socket_connect_timeout=_WAIT,
            retry=Retry(NoBackoff(), 1),  # so a restarted server causes no failure
        )
        self._redis = Redis.from_pool(pool)

    async def take(self, amounts: Mapping[UsageSlot, int], enough: Callable[[SlotCounts], bool]) -> SlotCounts:
        """Add the amounts and return the new counts; give the amounts back if `enough` returns False."""
        counts = await self._added(amounts)
        if not enough(counts):
            await self.add({slot: -amount for slot, amount in amounts.items() if amount})
        return counts

    async def add(self, amounts: Mapping[UsageSlot, int]) -> None:
        """Add the amounts in any case."""
        await self._added(amounts)

    async def ping(self) -> None:
        """Return if Redis responds.  Raises StoreFailed."""
        with _failures():
            await self._redis.ping()

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()

    async def _added(self, amounts: Mapping[UsageSlot, int]) -> SlotCounts:
        with _failures():
            async with self._redis.pipeline(transaction=True) as pipe:
                for slot, amount in amounts.items():
                    name = f"gateway:{slot.key}:{slot.start}"
                    pipe.incrby(name, amount)
                    pipe.expire(name, slot.until - slot.start)
                items = await pipe.execute()
        return dict(zip(amounts, items[::2], strict=True))


@contextmanager
def _failures() -> Iterator[None]:
    """Raise StoreFailed for the failures of a block."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise StoreFailed("The gateway's Redis is unavailable. Retry later.") from error
