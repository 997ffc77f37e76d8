"""Reasoning memory: the thoughts behind what clients send back without them, by whatever key tells one from another."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.engines import chunked, upserts
from gateway.store.tables import as_stored, thoughts

MOST = 10_000  # of a tenant; `sweep` deletes those that were not used for longest
_RECENT = 3600  # seconds: what was used that recently is not marked as used once more


def _saving(insert: Any) -> Any:  # noqa: ANN401 - of a dialect
    new = {"text": insert.excluded.text, "bytes": insert.excluded.bytes, "used_at": insert.excluded.used_at}
    return insert.on_conflict_do_update(index_elements=("tenant", "key"), set_=new)


_SAVE = upserts(thoughts, _saving)


async def save(db: AsyncConnection, tenant: str, items: Sequence[tuple[str, str]], now: int) -> None:
    """Keep thoughts by their keys; the newest counts."""
    texts = sorted({as_stored(key): text.encode() for key, text in items}.items())  # two processes in the same order
    rows = [{"tenant": tenant, "key": key, "text": text, "bytes": len(text), "used_at": now} for key, text in texts]
    if rows:
        await db.execute(_SAVE[db.dialect.name], rows)


_FIND = select(thoughts.c.key, thoughts.c.text).where(
    thoughts.c.tenant == bindparam("tenant"), thoughts.c.key.in_(bindparam("keys"))
)


async def find(db: AsyncConnection, tenant: str, keys: Collection[str]) -> dict[str, str]:
    """The thoughts of these keys, as far as there are any."""
    found: dict[str, str] = {}
    for some in chunked(keys):
        fields = {as_stored(key): key for key in some}
        rows = await db.execute(_FIND, {"tenant": tenant, "keys": some})
        found |= {fields[key]: text.decode() for key, text in rows}
    return found


_FREE = (  # others are being touched as well
    select(thoughts.c.key)
    .where(thoughts.c.tenant == bindparam("of"), thoughts.c.key.in_(bindparam("keys")))
    .where(thoughts.c.used_at < bindparam("before"))
    .with_for_update(skip_locked=True)
)
_TOUCH = update(thoughts).where(thoughts.c.tenant == bindparam("of"), thoughts.c.key.in_(_FREE))


async def touch(db: AsyncConnection, tenant: str, keys: Collection[str], now: int) -> None:
    """They are in use; writes only what was not touched for an hour."""
    for some in chunked(keys):
        await db.execute(_TOUCH, {"of": tenant, "keys": some, "before": now - _RECENT, "used_at": now})
