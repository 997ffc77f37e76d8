"""Batches, each with the lease of the process that works on it, and the results of their lines.

Leases are in Unix milliseconds, as those of jobs.  A process that holds a batch may save it; a client may cancel it.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import json
from msgspec.structs import replace
from sqlalchemy import delete, exists, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.api.batches import ENDED, LIFETIME, Batch
from gateway.store.records import BatchLease, LineResult
from gateway.store.tables import batches, lease_ended, results

_SECOND = 1000  # in milliseconds
_AGE = (batches.c.created_at, batches.c.id)
_ROWS = 5000  # results that are deleted in a transaction
_encode, _decode = json.Encoder().encode, json.Decoder(Batch).decode


async def create(db: AsyncConnection, tenant: str, batch: Batch) -> None:
    """Store a new batch, which no process holds."""
    values = {"id": batch.id, "tenant": tenant, "created_at": batch.created_at, "held_until": 0}
    await db.execute(insert(batches), {**values, "completed": 0, "failed": 0, "body": _encode(batch)})


async def find(db: AsyncConnection, tenant: str, id: str, *, lock: bool = False) -> Batch | None:
    """Return the batch of a tenant, or None.  lock: no other transaction changes it until the end of this one."""
    query = select(batches).where(batches.c.id == id, batches.c.tenant == tenant)
    row = (await db.execute(query.with_for_update() if lock else query)).one_or_none()
    return _batch(row) if row else None


async def page(
    db: AsyncConnection, tenant: str, limit: int, *, newest_first: bool, behind: Batch | None = None
) -> list[Batch]:
    """Return a page of batches, ordered by creation time.  behind: the last batch of the page before."""
    query = select(batches).where(batches.c.tenant == tenant)
    if behind:
        here, last = tuple_(*_AGE), tuple_(behind.created_at, behind.id)
        query = query.where(here < last if newest_first else here > last)
    order = [column.desc() for column in _AGE] if newest_first else _AGE
    return [*map(_batch, await db.execute(query.order_by(*order).limit(limit)))]


async def save(db: AsyncConnection, batch: Batch, now: int) -> None:
    """Store a changed batch; one that has ended loses its lease, and is deleted 30 days later."""
    values: dict[str, Any] = {"body": _encode(batch)}
    if batch.status in ENDED:
        values |= {"holder": None, "held_until": None, "valid_until": now + LIFETIME}
    await db.execute(update(batches).where(batches.c.id == batch.id).values(**values))


async def has_due(db: AsyncConnection, now_ms: int) -> bool:
    """Return True if there is a batch to claim."""
    return bool(await db.scalar(select(exists().where(lease_ended(batches.c.held_until, now_ms, _SECOND)))))


async def claim(db: AsyncConnection, lease: BatchLease, most: int) -> list[tuple[str, Batch]]:
    """Claim at most `most` batches whose lease has ended, and return them with their tenants."""
    due = select(batches).where(lease_ended(batches.c.held_until, lease.now, _SECOND))
    due = due.order_by(batches.c.created_at).limit(most).with_for_update(skip_locked=True)
    rows = (await db.execute(due)).all()
    if rows:
        await db.execute(update(batches).where(batches.c.id.in_([row.id for row in rows])).values(**lease.values))
    return [(row.tenant, _batch(row)) for row in rows]


async def renew(db: AsyncConnection, lease: BatchLease, id: str) -> Batch | None:
    """Renew the lease of a batch and return it; None if this holder does not have it any more.

    No other transaction changes the batch until the end of this one.
    """
    mine = (batches.c.id == id) & (batches.c.holder == lease.holder)
    row = (await db.execute(update(batches).where(mine).values(**lease.values).returning(batches))).one_or_none()
    return _batch(row) if row else None


async def release(db: AsyncConnection, id: str, holder: str) -> None:
    """Release a batch for any process, unless this holder has lost it."""
    mine = (batches.c.id == id) & (batches.c.holder == holder)
    await db.execute(update(batches).where(mine).values(holder=None, held_until=0))


async def add_results(db: AsyncConnection, id: str, added: Sequence[LineResult]) -> None:
    """Store results of a batch, and count them."""
    rows = [{"batch": id, "place": one.place, "ok": one.ok, "data": one.data} for one in added]
    await db.execute(insert(results), rows)
    well = sum(one.ok for one in added)
    counts = {"completed": batches.c.completed + well, "failed": batches.c.failed + len(added) - well}
    await db.execute(update(batches).where(batches.c.id == id).values(**counts))


async def finished(db: AsyncConnection, id: str) -> list[int]:
    """Return the places of all lines that have a result."""
    return [*await db.scalars(select(results.c.place).where(results.c.batch == id))]


async def read_results(db: AsyncConnection, id: str, ok: bool, after: int, most: int) -> list[LineResult]:
    """Return at most `most` results of one sort behind a place, in the order of the input."""
    query = select(results.c.place, results.c.ok, results.c.data).where(results.c.batch == id, results.c.ok == ok)
    rows = await db.execute(query.where(results.c.place > after).order_by(results.c.place).limit(most))
    return [LineResult(*row) for row in rows]


async def remove_results(db: AsyncConnection, id: str) -> bool:
    """Delete some results of a batch; return False if none is left."""
    some = select(results.c.place).where(results.c.batch == id).limit(_ROWS)
    gone = await db.execute(delete(results).where(results.c.batch == id, results.c.place.in_(some)))
    return gone.rowcount > 0


def _batch(row: Any) -> Batch:  # noqa: ANN401 - of `batches`
    return replace(_decode(row.body), completed=row.completed, failed=row.failed)
