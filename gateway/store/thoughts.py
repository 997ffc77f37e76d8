"""Reasoning memory: the thoughts behind what clients send back without them, by whatever key tells one from another."""

from collections.abc import Collection, Sequence

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.engines import portions, upsert
from gateway.store.tables import as_stored, thoughts

MOST = 10_000  # of a tenant; `sweep` deletes those that were not used for longest
_TOUCH = 3600  # seconds: what was used that recently is not marked as used once more


async def save(db: AsyncConnection, tenant: str, said: Sequence[tuple[str, str]], now: int) -> None:
    """Keep thoughts by their keys; the newest counts."""
    insert = upsert(db, thoughts)
    new = {"text": insert.excluded.text, "bytes": insert.excluded.bytes, "used_at": insert.excluded.used_at}
    statement = insert.on_conflict_do_update(index_elements=("tenant", "key"), set_=new)
    texts = sorted({as_stored(key): text.encode() for key, text in said}.items())  # two processes in the same order
    rows = [{"tenant": tenant, "key": key, "text": text, "bytes": len(text), "used_at": now} for key, text in texts]
    if rows:
        await db.execute(statement, rows)


async def find(db: AsyncConnection, tenant: str, keys: Collection[str]) -> dict[str, str]:
    """The thoughts of these keys, as far as there are any."""
    found: dict[str, str] = {}
    for some in portions(keys):
        asked = {as_stored(key): key for key in some}
        mine = thoughts.c.tenant == tenant, thoughts.c.key.in_(some)
        rows = await db.execute(select(thoughts.c.key, thoughts.c.text).where(*mine))
        found |= {asked[key]: text.decode() for key, text in rows}
    return found


async def touch(db: AsyncConnection, tenant: str, keys: Collection[str], now: int) -> None:
    """They are in use; writes only what was not touched for an hour."""
    for some in portions(keys):
        mine = thoughts.c.tenant == tenant, thoughts.c.key.in_(some), thoughts.c.used_at < now - _TOUCH
        free = select(thoughts.c.key).where(*mine).with_for_update(skip_locked=True)  # others are being touched as well
        await db.execute(
            update(thoughts).where(thoughts.c.tenant == tenant, thoughts.c.key.in_(free)).values(used_at=now)
        )
