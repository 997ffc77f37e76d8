"""Reasoning memory: thoughts that clients do not send back, by a key of the message that they belong to."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.engines import chunked, upserts
from gateway.store.tables import as_stored, thoughts

MAX = 10_000  # per tenant; `expiry` deletes the longest unused ones beyond it
_RECENT = 3600  # seconds between two updates of the time of last use


def _saving(insert: Any) -> Any:  # noqa: ANN401 - of a dialect
    new = {"text": insert.excluded.text, "bytes": insert.excluded.bytes, "used_at": insert.excluded.used_at}
    return insert.on_conflict_do_update(index_elements=("tenant", "key"), set_=new)


_SAVE = upserts(thoughts, _saving)


async def save(db: AsyncConnection, tenant: str, items: Sequence[tuple[str, str]], now: int) -> None:
    """Store thoughts by their keys; a later thought replaces an earlier one."""
    texts = sorted({as_stored(key): text.encode() for key, text in items}.items())  # against deadlocks
    rows = [{"tenant": tenant, "key": key, "text": text, "bytes": len(text), "used_at": now} for key, text in texts]
    if rows:
        await db.execute(_SAVE[db.dialect.name], rows)


_FIND = select(thoughts.c.key, thoughts.c.text).where(
    thoughts.c.tenant == bindparam("tenant"), thoughts.c.key.in_(bindparam("keys"))
)


async def find(db: AsyncConnection, tenant: str, keys: Collection[str]) -> dict[str, str]:
    """Return the stored thoughts of these keys."""
    found: dict[str, str] = {}
    for some in chunked(keys):
        fields = {as_stored(key): key for key in some}
        rows = await db.execute(_FIND, {"tenant": tenant, "keys": some})
        found |= {fields[key]: text.decode() for key, text in rows}
    return found


_FREE = (  # without rows that others are updating
    select(thoughts.c.key)
    .where(thoughts.c.tenant == bindparam("of"), thoughts.c.key.in_(bindparam("keys")))
    .where(thoughts.c.used_at < bindparam("before"))
    .with_for_update(skip_locked=True)
)
_TOUCH = update(thoughts).where(thoughts.c.tenant == bindparam("of"), thoughts.c.key.in_(_FREE))


async def touch(db: AsyncConnection, tenant: str, keys: Collection[str], now: int) -> None:
    """Mark thoughts as used, unless they were marked within the last hour."""
    for some in chunked(keys):
        await db.execute(_TOUCH, {"of": tenant, "keys": some, "before": now - _RECENT, "used_at": now})
