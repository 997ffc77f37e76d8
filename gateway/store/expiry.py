"""Delete rows that are unused for long or exceed the size limit, a few per transaction: SQLite has one writer."""

import math
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from sqlalchemy import ColumnElement, Table, delete, exists, func, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.audit_log import MAX_ENTRIES
from gateway.store.database import Database
from gateway.store.reasoning_memory import MAX
from gateway.store.tables import audit_log, batches, blobs, events, files, jobs, keys, thoughts, threads, uploads, uses

_CHUNK = 1 << 20  # bytes of a file in a row
_ROWS = 1000  # rows deleted in a transaction, or one larger thread


class _ExpiringTable(Struct, frozen=True):
    """A kind of rows that may be deleted.

    used: the time of the last use.
    size: the size that counts against the limit.
    rows: the number of rows that are deleted with one.
    only: further conditions.
    """

    table: Table
    used: ColumnElement[int]
    size: ColumnElement[int]
    rows: ColumnElement[int] = literal(1)
    only: tuple[ColumnElement[bool], ...] = ()


class _UnusedRow(Struct, frozen=True):
    kind: _ExpiringTable
    key: tuple[str | int, ...]
    used: int
    size: int
    rows: int


_child = threads.alias()
_LAST = ~exists().where(_child.c.parent == threads.c.id)
_AT_REST = ~exists().where(jobs.c.id == threads.c.id)
_THREADS = _ExpiringTable(threads, threads.c.used_at, threads.c.bytes, threads.c.length, (_LAST, _AT_REST))
_THOUGHTS = _ExpiringTable(thoughts, thoughts.c.used_at, thoughts.c.bytes)
_KEYS = _ExpiringTable(keys, keys.c.valid_until, literal(1))
_EVENTS = _ExpiringTable(events, events.c.valid_until, literal(1))
_FILES = _ExpiringTable(files, files.c.expires_at, literal(1), files.c.bytes // _CHUNK + 1)
_UPLOADS = _ExpiringTable(uploads, uploads.c.expires_at, literal(1), uploads.c.bytes // _CHUNK + 1)
_BLOBS = _ExpiringTable(blobs, blobs.c.valid_until, literal(1), blobs.c.bytes // _CHUNK + 1)
_AUDIT_LOG = _ExpiringTable(audit_log, audit_log.c.created_at, literal(1))
_BATCHES = _ExpiringTable(batches, batches.c.valid_until, literal(1))
_USES = _ExpiringTable(uses, uses.c.valid_until, literal(1))


async def expire(database: Database, now: int, ttl_seconds: int, max_bytes: int) -> None:
    """Delete rows that expired, and the longest unused ones if the store is too large.

    ttl_seconds: time without use until a row expires; 0: never.
    max_bytes: the size limit; 0: none.

    The audit log keeps its newest entries.

    A thread is deleted with all its rows, but only if no other thread continues it and it has no job.  Several
    processes may do this at the same time.
    """
    await _delete(database, [_KEYS, _EVENTS, _USES, _FILES, _UPLOADS, _BLOBS, _BATCHES], now)
    for kind, surplus in [(_AUDIT_LOG, await _surplus_entries(database)), *await _crowds(database)]:
        await _delete(database, [kind], now, surplus)
    if ttl_seconds:
        await _delete(database, [_THREADS, _THOUGHTS], now - ttl_seconds)
    if max_bytes:
        await _delete(database, [_THREADS, _THOUGHTS], now, await _size(database) - max_bytes)


async def _crowds(database: Database) -> list[tuple[_ExpiringTable, int]]:
    """Return each tenant with too many thoughts, as a table to delete from, and the surplus."""
    count = func.count()
    async with database.reading() as db:
        rows = await db.execute(select(thoughts.c.tenant, count).group_by(thoughts.c.tenant).having(count > MAX))
    return [
        (_ExpiringTable(thoughts, thoughts.c.used_at, literal(1), only=(thoughts.c.tenant == tenant,)), count - MAX)
        for tenant, count in rows
    ]


async def _surplus_entries(database: Database) -> int:
    """Return how many entries the audit log has beyond its limit."""
    async with database.reading() as db:
        return (await db.scalar(select(func.count()).select_from(audit_log)) or 0) - MAX_ENTRIES


async def _size(database: Database) -> int:
    async with database.reading() as db:
        return sum([await db.scalar(select(func.sum(kind.size))) or 0 for kind in (_THREADS, _THOUGHTS)])


async def _delete(database: Database, kinds: Sequence[_ExpiringTable], before: int, surplus: float = math.inf) -> None:
    """Delete rows unused since `before`, the longest unused first, until the surplus is gone."""
    while surplus > 0:
        async with database.writing() as db:
            found = [one for kind in kinds for one in await _unused(db, kind, before)]
            gone = [*_some(sorted(found, key=lambda one: one.used), surplus)]
            for kind in kinds:
                chosen = [one.key for one in gone if one.kind is kind]
                await db.execute(delete(kind.table).where(tuple_(*kind.table.primary_key).in_(chosen)))
        if not gone:
            return
        surplus -= sum(one.size for one in gone)


async def _unused(db: AsyncConnection, kind: _ExpiringTable, before: int) -> list[_UnusedRow]:
    """Return the longest unused rows, without those that another process locks."""
    columns = (kind.used.label("used"), kind.size.label("size"), kind.rows.label("rows"))
    rows = await db.execute(
        select(*columns, *kind.table.primary_key)
        .where(kind.used < before, *kind.only)
        .order_by(kind.used)
        .limit(_ROWS)
        .with_for_update(skip_locked=True, of=kind.table)
    )
    return [_UnusedRow(kind, tuple(key), used, size, rows) for used, size, rows, *key in rows]


def _some(found: Iterable[_UnusedRow], surplus: float) -> Iterator[_UnusedRow]:
    """Yield the first rows: as many as the surplus needs and one transaction should delete."""
    rows = 0
    for one in found:
        if surplus <= 0 or rows >= _ROWS:
            return
        yield one
        rows, surplus = rows + one.rows, surplus - one.size
