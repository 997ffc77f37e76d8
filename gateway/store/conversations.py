"""Conversations: lists of items that clients name, and that one response at a time goes on from."""

from collections.abc import Sequence

from sqlalchemy import delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store import threads
from gateway.store.leases import over
from gateway.store.records import Conversation, Item, Range
from gateway.store.tables import conversations, decode, encode
from gateway.store.tables import threads as all_threads


async def find(db: AsyncConnection, tenant: str, id: str) -> Conversation | None:
    columns = (conversations.c.id, conversations.c.thread, conversations.c.created_at, conversations.c.metadata)
    found = await db.execute(
        select(*columns, all_threads.c.length)
        .join(all_threads, all_threads.c.id == conversations.c.thread)
        .where(conversations.c.id == id, conversations.c.tenant == tenant)
    )
    row = found.one_or_none()
    return Conversation(row.id, row.thread, row.created_at, decode(row.metadata), row.length) if row else None


async def create(
    db: AsyncConnection, tenant: str, id: str, metadata: dict[str, str], items: Sequence[Item], now: int
) -> None:
    at = await threads.begin(db, id, tenant, now)
    await threads.append(db, at, items, now)
    said = {"created_at": now, "metadata": encode(metadata), "held_until": 0}
    await db.execute(insert(conversations).values(id=id, tenant=tenant, thread=id, **said))


async def append(db: AsyncConnection, conversation: Conversation, items: Sequence[Item], now: int) -> Range | None:
    """Their range at its end, wherever that is by now; None if it was deleted for its age meanwhile."""
    return await threads.extend(db, conversation.thread, items, now)


async def describe(db: AsyncConnection, id: str, metadata: dict[str, str]) -> None:
    """Replace its metadata."""
    await db.execute(update(conversations).where(conversations.c.id == id).values(metadata=encode(metadata)))


async def remove(db: AsyncConnection, id: str) -> None:
    """Forget it; its items stay with the responses that were made in it."""
    await db.execute(delete(conversations).where(conversations.c.id == id))


async def hold(db: AsyncConnection, id: str, holder: str, now_ms: int, lease_ms: int) -> bool:
    """Take it for a request, or take it for longer; False if another one is at work on it."""
    held = await db.execute(
        update(conversations)
        .where(conversations.c.id == id)
        .where(or_(conversations.c.holder == holder, over(conversations.c.held_until, now_ms, 1000)))
        .values(holder=holder, held_until=now_ms + lease_ms)
    )
    return held.rowcount == 1


async def renew(db: AsyncConnection, id: str, holder: str, now_ms: int, lease_ms: int) -> None:
    """Keep it for longer, if it was not let go and nobody else has taken it."""
    held = update(conversations).where(conversations.c.id == id, conversations.c.holder == holder)
    await db.execute(held.values(held_until=now_ms + lease_ms))


async def let_go(db: AsyncConnection, id: str, holder: str) -> None:
    """Leave it to others, unless it is another one's already."""
    await db.execute(
        update(conversations)
        .where(conversations.c.id == id, conversations.c.holder == holder)
        .values(holder=None, held_until=0)
    )
