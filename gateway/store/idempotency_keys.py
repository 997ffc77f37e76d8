"""Idempotency keys: a repeated request gets the response of the first one."""

from typing import Any

from sqlalchemy import BigInteger, and_, bindparam, delete, or_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.engines import upserts
from gateway.store.records import IdempotencyState, StoredAnswer
from gateway.store.tables import keys, lease_ended

_VALID = 600  # seconds from the beginning of the first request
_LEASE = 60  # seconds until a request that is not renewed counts as dead

_THIS = and_(keys.c.tenant == bindparam("of"), keys.c.key == bindparam("this"))
_HELD = and_(_THIS, keys.c.holder == bindparam("mine"))
_NOW = bindparam("now", type_=BigInteger)
_DEAD = and_(keys.c.status.is_(None), lease_ended(keys.c.held_until, _NOW))
_FORGET = delete(keys).where(_THIS, or_(lease_ended(keys.c.valid_until, _NOW), _DEAD))


def _beginning(insert: Any) -> Any:  # noqa: ANN401 - of a dialect
    unchanged = insert.on_conflict_do_update(index_elements=("tenant", "key"), set_={"digest": keys.c.digest})
    return unchanged.returning(keys)


_BEGIN = upserts(keys, _beginning)


async def begin(
    db: AsyncConnection, tenant: str, key: str, digest: str, holder: str, now: int
) -> IdempotencyState | StoredAnswer:
    """Claim a key for a request, or return the state of the key or its stored response.

    digest: the digest of the request.
    holder: the id of this attempt.
    """
    await db.execute(_FORGET, {"of": tenant, "this": key, "now": now})
    fields = {"digest": digest, "holder": holder, "held_until": now + _LEASE, "valid_until": now + _VALID}
    row = (await db.execute(_BEGIN[db.dialect.name], {"tenant": tenant, "key": key, **fields})).one()
    if row.holder == holder:
        return IdempotencyState.NEW
    if row.digest != digest:
        return IdempotencyState.OTHER
    return IdempotencyState.RUNNING if row.status is None else StoredAnswer(row.status, row.type, row.body)


_CHANGE = update(keys).where(_HELD)  # sets the values of the execution
_GIVE_UP = delete(keys).where(_HELD)


async def renew(db: AsyncConnection, tenant: str, key: str, holder: str, now: int) -> None:
    """Extend the lease of a response in progress; without it, another process may begin after a minute."""
    await db.execute(_CHANGE, {**_held(tenant, key, holder), "held_until": now + _LEASE})


async def finish(db: AsyncConnection, tenant: str, key: str, holder: str, answer: StoredAnswer) -> None:
    """Store the response for repeated requests."""
    fields = {"status": answer.status, "type": answer.type, "body": answer.body}
    await db.execute(_CHANGE, {**_held(tenant, key, holder), **fields})


async def give_up(db: AsyncConnection, tenant: str, key: str, holder: str) -> None:
    """Delete a key without a storable response: the next request with the key begins again."""
    await db.execute(_GIVE_UP, _held(tenant, key, holder))


def _held(tenant: str, key: str, holder: str) -> dict[str, Any]:
    """Return the parameters of `_HELD`."""
    return {"of": tenant, "this": key, "mine": holder}
