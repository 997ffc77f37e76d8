"""Create jobs in a store."""

from sqlalchemy import func, select

from gateway.store import jobs, responses
from gateway.store.records import NewJob, NewResponse
from gateway.store.tables import events, items
from gateway.store.tables import responses as all_responses
from gateway.store.tables import threads as all_threads

LEASE = 100


def numbered(*ids):
    """Return items with these ids."""
    return [{"id": id} for id in ids]


async def begin(db, id, holder="a", now=0, wanted_until=None, parent=None):
    """Create an unfinished response of one item, and its job."""
    body = {"id": id, "status": "queued", "output": []}
    await responses.begin(db, [NewResponse("t", body, numbered(f"{id}-in"), now, parent)])
    await jobs.begin(db, [NewJob("t", id, f"{id} \0".encode(), holder, now, LEASE, wanted_until)])


async def counted(db):
    """Return the bytes that threads count, and the bytes of their items, responses and packed logs."""
    kept = 0
    for column in (items.c.body, all_responses.c.body):
        kept += await db.scalar(select(func.coalesce(func.sum(func.length(column)), 0)))
    packed = select(func.coalesce(func.sum(func.length(events.c.data)), 0)).where(events.c.packed)
    return await db.scalar(select(func.sum(all_threads.c.bytes))), kept + await db.scalar(packed)
