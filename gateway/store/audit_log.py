"""Keep who changed which key, and which settings a reload changed.  Entries have no secrets and no digests."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from sqlalchemy import bindparam, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.tables import audit_log, decode, encode

MAX_ENTRIES = 10_000  # older ones are deleted

AuditAction = Literal["key.added", "key.changed", "key.rotated", "key.revoked", "configuration.reloaded"]
_ADD = insert(audit_log)
_NEWEST = select(audit_log).order_by(audit_log.c.number.desc()).limit(bindparam("count"))
_OLDEST = select(audit_log).order_by(audit_log.c.number).limit(bindparam("count"))
_BEFORE = _NEWEST.where(audit_log.c.number < bindparam("after"))
_AFTER = _OLDEST.where(audit_log.c.number > bindparam("after"))


class AuditEntry(Struct, frozen=True):
    """A change.

    created_at: Unix seconds.
    actor: `key:NAME`, `sso:NAME`, `cli:USER`, or `gateway:HOST` for a reload.
    key: the name of the changed key; None for a reload.
    changes: as `gateway.config.difference` returns them.
    """

    created_at: int
    actor: str
    action: AuditAction
    key: str | None
    changes: Sequence[Mapping[str, Any]]


class StoredAuditEntry(Struct, frozen=True):
    """An entry of the log; entries have ascending numbers."""

    number: int
    created_at: int
    body: dict[str, Any]

    def shown(self) -> dict[str, Any]:
        """Return the entry as JSON for operators."""
        return {"object": "audit_entry", "id": str(self.number), "created_at": self.created_at, **self.body}


async def add(db: AsyncConnection, entry: AuditEntry) -> None:
    """Add an entry."""
    body = {"actor": entry.actor, "action": entry.action, "key": entry.key, "changes": entry.changes}
    await db.execute(_ADD, {"created_at": entry.created_at, "body": encode(body)})


async def read(
    db: AsyncConnection, count: int, *, newest_first: bool = True, after: int | None = None
) -> list[StoredAuditEntry]:
    """Return at most `count` entries; after: the number of the entry that precedes them in this order."""
    if after is None:
        rows = await db.execute(_NEWEST if newest_first else _OLDEST, {"count": count})
    else:
        rows = await db.execute(_BEFORE if newest_first else _AFTER, {"count": count, "after": after})
    return [StoredAuditEntry(number, created_at, decode(body)) for number, created_at, body in rows]
