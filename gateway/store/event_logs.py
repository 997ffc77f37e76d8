"""Event logs: the events of a response for its subscribers, in rows as they came, after its end in a single row.

The API's sequence numbers identify the events.
"""

import asyncio
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Delete, Integer, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store import responses
from gateway.store.database import Database
from gateway.store.engines import listed, upserts
from gateway.store.records import LogRow
from gateway.store.tables import events
from gateway.store.tables import threads as all_threads

_MUCH = 1 << 20  # bytes of one read
_LOOSE = ~events.c.packed

_OF = events.c.response == bindparam("this")
_APPEND = upserts(events, lambda insert: insert.on_conflict_do_nothing())


async def append(db: AsyncConnection, rows: Sequence[tuple[str, LogRow]]) -> None:
    """Add rows of any responses; existing rows stay as they are, so a repetition is harmless."""
    items = [
        {"response": id, "first": row.first, "last": row.last, "data": row.data, "packed": False} for id, row in rows
    ]
    if items:
        await db.execute(_APPEND[db.dialect.name], items)


def _behind() -> ColumnElement[bool]:
    """Match rows from the next event on; the first is found by its beginning, since only that is indexed."""
    older, after = events.alias(), bindparam("after", type_=Integer)
    mine = select(func.max(older.c.first)).where(older.c.response == bindparam("this"), older.c.first <= after + 1)
    begin = func.coalesce(mine.scalar_subquery(), 0)
    return _OF & (events.c.first >= begin) & (events.c.last > after)


_SIZES = (
    select(events.c.first, func.length(events.c.data))
    .where(_behind())
    .order_by(events.c.first)
    .limit(bindparam("most", type_=Integer))
)
_READ = (
    select(events.c.first, events.c.last, events.c.data, events.c.packed)
    .where(_OF, events.c.first.between(bindparam("begin"), bindparam("end")))
    .order_by(events.c.first)
)


async def read(db: AsyncConnection, id: str, after: int, most: int) -> list[LogRow]:
    """Return the rows with events after this one: at most `most`, and not much more than 1 MiB, but at least one.

    The first row may begin with earlier events.  Only a transaction of `reading` sees one state of the log throughout.
    """
    sizes = await db.execute(_SIZES, {"this": id, "after": after, "most": most})
    if not (chosen := [*_some(sizes)]):
        return []
    rows = await db.execute(_READ, {"this": id, "begin": chosen[0], "end": chosen[-1]})
    return [
        LogRow(first, last, await asyncio.to_thread(zlib.decompress, data) if packed else data)
        for first, last, data, packed in rows
    ]


def _some(sizes: Iterable[Any]) -> Iterator[int]:
    """Yield the first rows, up to the bytes of one read."""
    size = 0
    for first, length in sizes:
        yield first
        size += length
        if size >= _MUCH:
            return


_NEWEST = (
    select(events.c.last)
    .where(_OF, or_(events.c.valid_until.is_(None), events.c.valid_until > bindparam("now")))
    .order_by(events.c.first.desc())
    .limit(1)
)


async def newest_event(db: AsyncConnection, id: str, now: int) -> int | None:
    """Return the number of the last event; None if there is no log, or it has expired."""
    last: int | None = await db.scalar(_NEWEST, {"this": id, "now": now})
    return last


_ROWS = select(events.c.first, events.c.last, events.c.data).where(_LOOSE, _OF).order_by(events.c.first)
_RANGES = {
    dialect: select(events.c.response, events.c.first, events.c.last).where(_LOOSE, among).order_by(events.c.first)
    for dialect, among in listed(events.c.response).items()
}
_CLEAR, _PACK = delete(events).where(_LOOSE, _OF), insert(events)
_WEIGH = (
    update(all_threads)
    .where(all_threads.c.id == bindparam("this"))
    .values(bytes=all_threads.c.bytes + bindparam("size"))
)


async def pack(database: Database, id: str) -> None:
    """Replace the rows of a complete log by one compressed row.

    That row lasts as long as the response, and counts as bytes of its thread.  Nothing happens if the log changes
    meanwhile, is packed already, or has a gap.
    """
    rows = await database.run_reading(lambda db: _rows(db, id))
    if not rows or any(one.last + 1 < other.first for one, other in pairwise(rows)):
        return
    data = await asyncio.to_thread(zlib.compress, b"".join(row.data for row in rows))
    packed = _PackedLog(id, [(row.first, row.last) for row in rows], data)
    await database.write_grouped(_replace, packed)


class _PackedLog(Struct, frozen=True):
    """A compressed log.  ranges: the numbers of the first and the last event of each row that it replaces."""

    id: str
    ranges: list[tuple[int, int]]
    data: bytes


async def _rows(db: AsyncConnection, id: str) -> Sequence[Any]:
    return (await db.execute(_ROWS, {"this": id})).all()


async def _replace(db: AsyncConnection, logs: Sequence[_PackedLog]) -> None:
    """Replace the rows of logs that have not changed; lock their threads first, in the order of all processes."""
    ids, found = [one.id for one in logs], defaultdict[str, list[tuple[int, int]]](list)
    threads = await responses.lock_threads(db, ids)
    for row in (await db.execute(_RANGES[db.dialect.name], {"ids": ids})).all():
        found[row.response].append((row.first, row.last))
    if same := [one for one in logs if one.id in threads and found[one.id] == one.ranges]:
        await db.execute(_CLEAR, [{"this": one.id} for one in same])
        await db.execute(_PACK, [_packed_row(one) for one in same])
        await db.execute(_WEIGH, [{"this": threads[one.id], "size": len(one.data)} for one in same])


def _packed_row(one: _PackedLog) -> dict[str, Any]:
    return {"response": one.id, "first": one.ranges[0][0], "last": one.ranges[-1][1], "data": one.data, "packed": True}


_EXPIRE = update(events).where(_LOOSE, _OF).values(valid_until=bindparam("until"))


async def expire(db: AsyncConnection, id: str, valid_until: int) -> None:
    """Set the expiry time of a complete log, unless it is packed."""
    await db.execute(_EXPIRE, {"this": id, "until": valid_until})


def _trimming() -> Delete:
    upto = func.sum(func.length(events.c.data)).over(order_by=events.c.first.desc())
    sized = select(events.c.first, upto.label("upto")).where(_OF).subquery()
    newest = select(func.max(sized.c.first)).where(sized.c.upto > bindparam("most", type_=Integer)).scalar_subquery()
    return delete(events).where(_LOOSE, _OF, events.c.first <= newest)


_TRIM = _trimming()


async def trim(db: AsyncConnection, id: str, keep_bytes: int) -> None:
    """Delete the oldest rows of a log that is not packed, until at most `keep_bytes` are left."""
    await db.execute(_TRIM, {"this": id, "most": keep_bytes})
