"""Conversations: lists of items that clients name.  One response at a time continues a conversation."""

from collections.abc import Sequence

from sqlalchemy import BigInteger, bindparam, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store import item_lists
from gateway.store.records import Item, ItemList, ItemRange, StoredConversation
from gateway.store.tables import conversations, decode, encode, lease_ended
from gateway.store.tables import threads as all_threads

_FIND = (
    select(
        conversations.c.id, conversations.c.thread, conversations.c.created_at, conversations.c.metadata,
        all_threads.c.length,
    )
    .join(all_threads, all_threads.c.id == conversations.c.thread)
    .where(conversations.c.id == bindparam("this"), conversations.c.tenant == bindparam("tenant"))
)  # fmt: skip


async def find(db: AsyncConnection, tenant: str, id: str) -> StoredConversation | None:
    """Return the conversation of a tenant, or None."""
    row = (await db.execute(_FIND, {"this": id, "tenant": tenant})).one_or_none()
    return StoredConversation(row.id, row.thread, row.created_at, decode(row.metadata), row.length) if row else None


_CREATE = insert(conversations)


async def create(
    db: AsyncConnection, tenant: str, id: str, metadata: dict[str, str], items: Sequence[Item], now: int
) -> None:
    """Create a conversation with its first items."""
    await item_lists.begin(db, ItemList(id, tenant, items, now))
    fields = {"created_at": now, "metadata": encode(metadata), "held_until": 0}
    await db.execute(_CREATE, {"id": id, "tenant": tenant, "thread": id, **fields})


async def append(
    db: AsyncConnection, conversation: StoredConversation, items: Sequence[Item], now: int
) -> ItemRange | None:
    """Append items at the current end, and return their range; None if the conversation has expired meanwhile."""
    return await item_lists.extend(db, conversation.thread, items, now)


_CHANGE = update(conversations).where(conversations.c.id == bindparam("this"))  # sets the values of the execution


async def set_metadata(db: AsyncConnection, id: str, metadata: dict[str, str]) -> None:
    """Replace the metadata."""
    await db.execute(_CHANGE, {"this": id, "metadata": encode(metadata)})


_REMOVE = delete(conversations).where(conversations.c.id == bindparam("this"))


async def remove(db: AsyncConnection, id: str) -> None:
    """Delete a conversation; its items stay with the responses that were made in it."""
    await db.execute(_REMOVE, {"this": id})


_NOW = bindparam("now", type_=BigInteger)
_HELD = _CHANGE.where(conversations.c.holder == bindparam("mine"))
_HOLD = _CHANGE.where(
    or_(conversations.c.holder == bindparam("mine"), lease_ended(conversations.c.held_until, _NOW, 1000))
)


async def acquire(db: AsyncConnection, id: str, holder: str, now_ms: int, lease_ms: int) -> bool:
    """Acquire or extend the lease for a request; return False if another request has it."""
    fields = {"holder": holder, "held_until": now_ms + lease_ms}
    held = await db.execute(_HOLD, {"this": id, "mine": holder, "now": now_ms, **fields})
    return held.rowcount == 1


async def renew(db: AsyncConnection, id: str, holder: str, now_ms: int, lease_ms: int) -> None:
    """Extend the lease, if this holder still has it."""
    await db.execute(_HELD, {"this": id, "mine": holder, "held_until": now_ms + lease_ms})


async def release(db: AsyncConnection, id: str, holder: str) -> None:
    """Release the lease, if this holder still has it."""
    await db.execute(_HELD, {"this": id, "mine": holder, "holder": None, "held_until": 0})
