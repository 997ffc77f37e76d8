"""Jobs: unfinished responses, each with the lease of the process that works on it.

All times are Unix milliseconds.  Each write of a job's log also renews its lease.  When the lease has ended, any other
process may claim the job.
"""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, delete, exists, insert, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from gateway.store import responses
from gateway.store.engines import listed
from gateway.store.records import FinishedJob, JobLeaseState, JobState, NewJob, OpenedResponse, StoredJob
from gateway.store.tables import LONGEST_MS, jobs, requests

LAST = 1 << 15  # a number of attempts after which no process tries again


_BEGIN, _REQUEST = insert(jobs), insert(requests)
_CHANGE = update(jobs).where(jobs.c.id == bindparam("this"))  # sets the values of the execution


async def open(db: AsyncConnection, new: Sequence[OpenedResponse]) -> None:
    """Store responses without output in threads of their own, with their jobs.

    The responses can be shown and removed.  No other response can continue them before they are finished.
    """
    await responses.begin(db, [one.response for one in new])
    await begin(db, [one.job for one in new])


async def begin(db: AsyncConnection, new: Sequence[NewJob]) -> None:
    """Create the jobs of responses that were just opened."""
    await db.execute(_BEGIN, [_row(job) for job in new])
    await db.execute(_REQUEST, [{"job": job.id, "body": job.request} for job in new])


def _row(job: NewJob) -> dict[str, Any]:
    fields = {"attempts": 1, "cancelled": False, "wanted_until": job.wanted_until}
    return {"id": job.id, "tenant": job.tenant, **fields, **_lease(job.holder, job.now, job.lease)}


async def mark_acting(db: AsyncConnection, id: str) -> None:
    """Mark a job that has side effects, so that no other process begins it again."""
    await db.execute(_CHANGE, {"this": id, "attempts": LAST})


_IDS = listed(jobs.c.id)
_MINE = select(jobs.c.id).where(jobs.c.holder == bindparam("mine"))
_SOME = {dialect: _MINE.where(among) for dialect, among in _IDS.items()}


def _among(rows: Select[str]) -> ColumnElement[bool]:
    """Match ids of a query that locks them.  PostgreSQL runs it once, and in order, only as a CTE."""
    return jobs.c.id.in_(select(rows.cte("locked")))


def _locked(rows: Select[str]) -> Select[str]:
    return rows.order_by(jobs.c.id).with_for_update()


def _renewal(rows: Select[str]) -> ReturningUpdate[str, bool, int | None]:
    renewed = update(jobs).where(_among(_locked(rows)))
    return renewed.values(held_until=bindparam("until")).returning(jobs.c.id, jobs.c.cancelled, jobs.c.wanted_until)


_HOLD_ALL, _HOLD = _renewal(_MINE), {dialect: _renewal(rows) for dialect, rows in _SOME.items()}


async def renew_leases(
    db: AsyncConnection, holder: str, now_ms: int, lease_ms: int, ids: Collection[str] | None = None
) -> dict[str, JobLeaseState]:
    """Renew the leases of a holder's jobs, of all or of these ids, and return those that it still has.

    Writes for them in the same transaction are safe: no other process can claim, cancel or remove them before its end.
    """
    fields = {"mine": holder, "until": now_ms + lease_ms}
    if ids is None:
        rows = await db.execute(_HOLD_ALL, fields)
    else:
        rows = await db.execute(_HOLD[db.dialect.name], {**fields, "ids": ids})
    return {row.id: JobLeaseState(row.cancelled, row.wanted_until) for row in rows.all()}


_LOCK = {dialect: _locked(rows) for dialect, rows in _SOME.items()}


async def lock(db: AsyncConnection, holder: str, ids: Collection[str]) -> Collection[str]:
    """Lock the jobs of these ids that the holder still has, in the order of all processes, and return their ids."""
    rows = await db.execute(_LOCK[db.dialect.name], {"mine": holder, "ids": ids})
    return rows.scalars().all()


async def finish(db: AsyncConnection, ended: Sequence[FinishedJob]) -> Collection[str]:
    """Store final responses of one holder that continue no other; return the ids of the jobs that it still has.

    Transactions never wait for each other in a circle: each locks its jobs first, then its threads, both in the same
    order.
    """
    held = await lock(db, ended[0].holder, [one.response.body["id"] for one in ended])
    await responses.finish_alone(db, [one.response for one in ended if one.response.body["id"] in held])
    return held


_WANTED = _CHANGE.where(jobs.c.wanted_until < bindparam("until")).values(wanted_until=bindparam("until"))


async def extend_wanted_until(db: AsyncConnection, ids: Collection[str], until_ms: int) -> None:
    """Keep these jobs until then for their subscribers; never shorten the time.

    This needs a transaction of its own: a process that holds one job's lock may wait for the lock of another.  All
    processes lock jobs in the same order.
    """
    if rows := [{"this": id, "until": until_ms} for id in sorted(ids)]:
        await db.execute(_WANTED, rows)


_OF = (jobs.c.id == bindparam("this")) & (jobs.c.holder == bindparam("mine"))
_LET_GO = update(jobs).where(_OF).values(holder=None, held_until=0, attempts=jobs.c.attempts - 1)
_END = {dialect: delete(jobs).where(jobs.c.holder == bindparam("mine"), among) for dialect, among in _IDS.items()}


async def release(db: AsyncConnection, id: str, holder: str) -> None:
    """Release a job for any process, without counting this attempt.

    The call has no effect if this holder does not have the job any more.
    """
    await db.execute(_LET_GO, {"this": id, "mine": holder})


async def end(db: AsyncConnection, ids: Collection[str], holder: str) -> int:
    """End jobs; return the number of those that this holder still had."""
    return (await db.execute(_END[db.dialect.name], {"ids": ids, "mine": holder})).rowcount


_CANCEL = _CHANGE.where(jobs.c.tenant == bindparam("of")).values(cancelled=True)


async def cancel(db: AsyncConnection, tenant: str, id: str) -> bool:
    """Mark a job as cancelled for its holder; return False if there is no such job."""
    return (await db.execute(_CANCEL, {"this": id, "of": tenant})).rowcount == 1


async def has_due(db: AsyncConnection, now_ms: int) -> bool:
    """Return True if there is a job to claim."""
    free, strange = exists().where(jobs.c.held_until <= now_ms), exists().where(jobs.c.held_until > now_ms + LONGEST_MS)
    return bool(await db.scalar(select(or_(free, strange))))


async def claim(
    db: AsyncConnection, holder: str, now_ms: int, lease_ms: int, most: int, ids: Collection[str] | None = None
) -> list[StoredJob]:
    """Claim at most `most` jobs whose lease has ended, of all or of these ids.  No two processes get the same job."""
    strange = update(jobs).where(jobs.c.held_until > now_ms + LONGEST_MS)  # separate: with an "or", no index applies
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
    """Return the state of a job; None if there is no such job."""
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
