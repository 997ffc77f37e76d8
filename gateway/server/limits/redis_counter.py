"""Counting in Redis, for gateways that share no store, or want to spare it."""

from collections.abc import Callable, Mapping

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.errors import StoreFailed
from gateway.server.limits.counters import SlotCounts
from gateway.store.records import UsageSlot

_CONNECTIONS = 16  # of one process: each is in use for a fraction of a millisecond
_WAIT = 1.0  # seconds, for a connection, and for an answer


class RedisCounter:
    """One transaction to take.  Where it was too much another one gives it back: meanwhile others may be refused."""

    def __init__(self, url: str) -> None:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=_WAIT,
            socket_timeout=_WAIT,
            socket_connect_timeout=_WAIT,
            retry=Retry(NoBackoff(), 1),  # a server that was restarted is no failure
        )
        self._redis = Redis.from_pool(pool)

    async def take(self, amounts: Mapping[UsageSlot, int], enough: Callable[[SlotCounts], bool]) -> SlotCounts:
        counts = await self._added(amounts)
        if not enough(counts):
            await self.add({slot: -amount for slot, amount in amounts.items() if amount})
        return counts

    async def add(self, amounts: Mapping[UsageSlot, int]) -> None:
        await self._added(amounts)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _added(self, amounts: Mapping[UsageSlot, int]) -> SlotCounts:
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                for slot, amount in amounts.items():
                    name = f"gateway:{slot.key}:{slot.start}"
                    pipe.incrby(name, amount)
                    pipe.expire(name, slot.until - slot.start)
                items = await pipe.execute()
        except (RedisError, OSError) as error:
            raise StoreFailed("The gateway's Redis cannot be used at the moment.") from error
        return dict(zip(amounts, items[::2], strict=True))
