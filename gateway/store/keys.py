"""Idempotency keys: a request that is sent twice is answered once, and both get the same."""

from typing import Any

from sqlalchemy import and_, delete, or_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.engines import upsert
from gateway.store.leases import over
from gateway.store.records import Answer, Begun
from gateway.store.tables import keys

_VALID = 600  # seconds from the beginning of the first request
_LEASE = 60  # seconds after which a request that was not renewed counts as dead


async def begin(db: AsyncConnection, tenant: str, key: str, digest: str, holder: str, now: int) -> Begun | Answer:
    """Whether this holder has to answer the request of this key; digest: what the request is."""
    dead = and_(keys.c.status.is_(None), over(keys.c.held_until, now))
    await db.execute(delete(keys).where(_of(tenant, key), or_(over(keys.c.valid_until, now), dead)))
    said = {"digest": digest, "holder": holder, "held_until": now + _LEASE, "valid_until": now + _VALID}
    insert = upsert(db, keys).values(tenant=tenant, key=key, **said)
    unchanged = insert.on_conflict_do_update(index_elements=("tenant", "key"), set_={"digest": keys.c.digest})
    row = (await db.execute(unchanged.returning(keys))).one()
    if row.holder == holder:
        return Begun.NEW
    if row.digest != digest:
        return Begun.OTHER
    return Begun.RUNNING if row.status is None else Answer(row.status, row.type, row.body)


async def renew(db: AsyncConnection, tenant: str, key: str, holder: str, now: int) -> None:
    """It is still being answered: due well within a minute, or another one may begin."""
    await db.execute(update(keys).where(_held(tenant, key, holder)).values(held_until=now + _LEASE))


async def finish(db: AsyncConnection, tenant: str, key: str, holder: str, answer: Answer) -> None:
    """Whoever sends it again gets this answer."""
    said = {"status": answer.status, "type": answer.type, "body": answer.body}
    await db.execute(update(keys).where(_held(tenant, key, holder)).values(**said))


async def give_up(db: AsyncConnection, tenant: str, key: str, holder: str) -> None:
    """There was no answer worth keeping: whoever sends it again begins anew."""
    await db.execute(delete(keys).where(_held(tenant, key, holder)))


def _of(tenant: str, key: str) -> Any:  # noqa: ANN401 - a condition
    return and_(keys.c.tenant == tenant, keys.c.key == key)


def _held(tenant: str, key: str, holder: str) -> Any:  # noqa: ANN401 - a condition
    return and_(_of(tenant, key), keys.c.holder == holder)
