"""Jobs: the responses that are being answered, and which process is at work on each.

All times are Unix milliseconds.  A process holds a job for the length of a lease, and again with everything that it
writes of it; when the lease is over, any other may take it.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, delete, exists, insert, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from gateway.store.records import JobLeaseState, JobState, StoredJob
from gateway.store.tables import LONGEST_MS, jobs, requests

LAST = 1 << 15  # an attempt that none follows


_BEGIN, _REQUEST = insert(jobs), insert(requests)
_CHANGE = update(jobs).where(jobs.c.id == bindparam("this"))  # sets what it is executed with


async def begin(  # noqa: PLR0913, PLR0917 - it is a row
    db: AsyncConnection,
    tenant: str,
    id: str,
    request: bytes,
    holder: str,
    now_ms: int,
    lease_ms: int,
    wanted_until: int | None = None,
) -> None:
    """The job of a response that was just opened."""
    fields = {"attempts": 1, "cancelled": False, "wanted_until": wanted_until}
    await db.execute(_BEGIN, {"id": id, "tenant": tenant, **fields, **_lease(holder, now_ms, lease_ms)})
    await db.execute(_REQUEST, {"job": id, "body": request})


async def mark_acting(db: AsyncConnection, id: str) -> None:
    """Mark a job that has effects, so that no other process begins it again."""
    await db.execute(_CHANGE, {"this": id, "attempts": LAST})


_MINE = select(jobs.c.id).where(jobs.c.holder == bindparam("mine"))
_SOME = _MINE.where(jobs.c.id.in_(bindparam("ids")))


def _among(rows: Select[str]) -> ColumnElement[bool]:
    """Match ids of a query that locks them.  PostgreSQL runs it once, and in order, only as a CTE."""
    return jobs.c.id.in_(select(rows.cte("locked")))


def _renewal(rows: Select[str]) -> ReturningUpdate[str, bool, int | None]:
    renewed = update(jobs).where(_among(rows.order_by(jobs.c.id).with_for_update()))
    return renewed.values(held_until=bindparam("until")).returning(jobs.c.id, jobs.c.cancelled, jobs.c.wanted_until)


_HOLD_ALL, _HOLD = _renewal(_MINE), _renewal(_SOME)


async def renew_leases(
    db: AsyncConnection, holder: str, now_ms: int, lease_ms: int, ids: Collection[str] | None = None
) -> dict[str, JobLeaseState]:
    """Renew the leases of all jobs of a holder, or of those of them; only what is returned is still its.

    What is written of them in the same transaction is written while nobody else can take, cancel or remove them.
    """
    fields = {"mine": holder, "until": now_ms + lease_ms}
    rows = await db.execute(_HOLD_ALL, fields) if ids is None else await db.execute(_HOLD, {**fields, "ids": [*ids]})
    return {id: JobLeaseState(cancelled, wanted_until) for id, cancelled, wanted_until in rows}


_WANTED = _CHANGE.where(jobs.c.wanted_until < bindparam("until")).values(wanted_until=bindparam("until"))


async def extend_wanted_until(db: AsyncConnection, ids: Collection[str], until_ms: int) -> None:
    """Keep these jobs until then for their subscribers; never shorten the time.

    In a transaction of its own: the next one that it locks may be held by a process that waits for the last one.
    """
    if rows := [{"this": id, "until": until_ms} for id in sorted(ids)]:  # two processes in the same order
        await db.execute(_WANTED, rows)


_OF = (jobs.c.id == bindparam("this")) & (jobs.c.holder == bindparam("mine"))
_LET_GO = update(jobs).where(_OF).values(holder=None, held_until=0, attempts=jobs.c.attempts - 1)
_END = delete(jobs).where(_OF)


async def release(db: AsyncConnection, id: str, holder: str) -> None:
    """Leave it to whoever takes it first, as if this one had not tried; unless another one has taken it already."""
    await db.execute(_LET_GO, {"this": id, "mine": holder})


async def end(db: AsyncConnection, id: str, holder: str) -> bool:
    """End a job; return False if this holder does not have it any more."""
    return (await db.execute(_END, {"this": id, "mine": holder})).rowcount == 1


_CANCEL = _CHANGE.where(jobs.c.tenant == bindparam("of")).values(cancelled=True)


async def cancel(db: AsyncConnection, tenant: str, id: str) -> bool:
    """Tell its holder to stop; False if there is no such job."""
    return (await db.execute(_CANCEL, {"this": id, "of": tenant})).rowcount == 1


async def has_due(db: AsyncConnection, now_ms: int) -> bool:
    """Return True if there is a job to take."""
    free, strange = exists().where(jobs.c.held_until <= now_ms), exists().where(jobs.c.held_until > now_ms + LONGEST_MS)
    return bool(await db.scalar(select(or_(free, strange))))


async def claim(
    db: AsyncConnection, holder: str, now_ms: int, lease_ms: int, most: int, ids: Collection[str] | None = None
) -> list[StoredJob]:
    """At most so many jobs, of all or of these, that nobody has or whose lease is over; no two takers get the same."""
    strange = update(jobs).where(jobs.c.held_until > now_ms + LONGEST_MS)  # on its own: with an "or" no index serves
    await db.execute(strange.values(held_until=now_ms))
    due = select(jobs.c.id).where(jobs.c.held_until <= now_ms)
    if ids is not None:
        due = due.where(jobs.c.id.in_(ids))
    free = due.order_by(jobs.c.held_until).limit(most).with_for_update(skip_locked=True)
    taken = await db.scalars(
        update(jobs)
        .where(_among(free))
        .values(attempts=jobs.c.attempts + 1, **_lease(holder, now_ms, lease_ms))
        .returning(jobs.c.id)
    )
    columns = (jobs.c.id, jobs.c.tenant, requests.c.body, jobs.c.attempts, jobs.c.cancelled)
    rows = await db.execute(select(*columns).join(requests).where(jobs.c.id.in_(taken.all())))
    return [StoredJob(*row) for row in rows]


_STATE = select(jobs.c.holder).where(jobs.c.id == bindparam("this"))


async def job_state(db: AsyncConnection, id: str) -> JobState | None:
    """None if there is no such job (any more)."""
    found = (await db.execute(_STATE, {"this": id})).one_or_none()
    if found is None:
        return None
    return JobState.RUNNING if found.holder else JobState.QUEUED


_NOTIFY = text("SELECT pg_notify(:channel, :payload)")


async def notify(db: AsyncConnection, channel: str, payloads: Collection[str]) -> None:
    """Notify listening processes when the transaction commits; with SQLite there are none."""
    if payloads and db.dialect.name == "postgresql":
        rows = [{"channel": channel, "payload": payload} for payload in payloads]
        await db.execute(_NOTIFY, rows)


def _lease(holder: str, now_ms: int, lease_ms: int) -> dict[str, Any]:
    return {"holder": holder, "held_until": now_ms + lease_ms}
