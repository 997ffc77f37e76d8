"""Jobs: the responses that are being answered, and which process is at work on each.

All times are Unix milliseconds.  A process holds a job for the length of a lease, and again with everything that it
writes of it; when the lease is over, any other may take it.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, delete, exists, insert, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.leases import LONGEST_MS
from gateway.store.records import Held, Job, State
from gateway.store.tables import jobs, requests

LAST = 1 << 15  # an attempt that none follows


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
    said = {"attempts": 1, "cancelled": False, "wanted_until": wanted_until}
    lease = _lease(holder, now_ms, lease_ms)
    await db.execute(insert(jobs).values(id=id, tenant=tenant, **said, **lease))
    await db.execute(insert(requests).values(job=id, body=request))


async def act(db: AsyncConnection, id: str) -> None:
    """Whoever takes the job from now on is not to begin it again: it has had effects that nobody can take back."""
    await db.execute(update(jobs).where(jobs.c.id == id).values(attempts=LAST))


async def hold(
    db: AsyncConnection, holder: str, now_ms: int, lease_ms: int, ids: Collection[str] | None = None
) -> dict[str, Held]:
    """Renew the leases of all jobs of a holder, or of those of them; only what is returned is still its.

    What is written of them in the same transaction is written while nobody else can take, cancel or remove them.
    """
    mine = select(jobs.c.id).where(jobs.c.holder == holder)
    if ids is not None:
        mine = mine.where(jobs.c.id.in_(ids))
    held = update(jobs).where(_among(mine.order_by(jobs.c.id).with_for_update()))
    rows = await db.execute(
        held.values(held_until=now_ms + lease_ms).returning(jobs.c.id, jobs.c.cancelled, jobs.c.wanted_until)
    )
    return {id: Held(cancelled, wanted_until) for id, cancelled, wanted_until in rows}


async def wanted(db: AsyncConnection, ids: Collection[str], until_ms: int) -> None:
    """Somebody follows these and may come back until then; what is wanted for longer, or for ever, stays so.

    In a transaction of its own: the next one that it locks may be held by a process that waits for the last one.
    """
    this = jobs.c.id == bindparam("job")
    longer = update(jobs).where(this, jobs.c.wanted_until < until_ms).values(wanted_until=until_ms)
    if rows := [{"job": id} for id in sorted(ids)]:  # two processes in the same order
        await db.execute(longer, rows)


async def let_go(db: AsyncConnection, id: str, holder: str) -> None:
    """Leave it to whoever takes it first, as if this one had not tried; unless another one has taken it already."""
    untried = {"holder": None, "held_until": 0, "attempts": jobs.c.attempts - 1}
    await db.execute(update(jobs).where(_of(id, holder)).values(**untried))


async def end(db: AsyncConnection, id: str, holder: str) -> bool:
    """It is done; False if this holder does not have it any more."""
    return (await db.execute(delete(jobs).where(_of(id, holder)))).rowcount == 1


async def cancel(db: AsyncConnection, tenant: str, id: str) -> bool:
    """Tell its holder to stop; False if there is no such job."""
    mine = jobs.c.id == id, jobs.c.tenant == tenant
    return (await db.execute(update(jobs).where(*mine).values(cancelled=True))).rowcount == 1


async def due(db: AsyncConnection, now_ms: int) -> bool:
    """Whether there is one that may be taken."""
    free, strange = exists().where(jobs.c.held_until <= now_ms), exists().where(jobs.c.held_until > now_ms + LONGEST_MS)
    return bool(await db.scalar(select(or_(free, strange))))


async def take(
    db: AsyncConnection, holder: str, now_ms: int, lease_ms: int, most: int, ids: Collection[str] | None = None
) -> list[Job]:
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
    return [Job(*row) for row in rows]


async def state(db: AsyncConnection, id: str) -> State | None:
    """None if there is no such job (any more)."""
    found = (await db.execute(select(jobs.c.holder).where(jobs.c.id == id))).one_or_none()
    if found is None:
        return None
    return State.RUNNING if found.holder else State.QUEUED


async def notify(db: AsyncConnection, channel: str, payloads: Collection[str]) -> None:
    """Tell those who listen, once the transaction is done; with SQLite nobody does."""
    if payloads and db.dialect.name == "postgresql":
        rows = [{"channel": channel, "payload": payload} for payload in payloads]
        await db.execute(text("SELECT pg_notify(:channel, :payload)"), rows)


def _lease(holder: str, now_ms: int, lease_ms: int) -> dict[str, Any]:
    return {"holder": holder, "held_until": now_ms + lease_ms}


def _of(id: str, holder: str) -> ColumnElement[bool]:
    return (jobs.c.id == id) & (jobs.c.holder == holder)


def _among(rows: Select[tuple[str]]) -> ColumnElement[bool]:
    """Those of a query that locks them, which PostgreSQL runs once, and in its order, only if it stands by itself."""
    return jobs.c.id.in_(select(rows.cte("locked")))
