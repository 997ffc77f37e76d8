"""Event logs: all that the followers of a response are told, in rows as it came, and after its end in a single one.

Events are known by the API's sequence numbers.
"""

import asyncio
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import ColumnElement, Delete, Integer, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store import responses
from gateway.store.database import Database
from gateway.store.engines import upserts
from gateway.store.records import LogRow
from gateway.store.tables import events
from gateway.store.tables import threads as all_threads

_MUCH = 1 << 20  # bytes that are read at once
_LOOSE = ~events.c.packed

_OF = events.c.response == bindparam("this")
_APPEND = upserts(events, lambda insert: insert.on_conflict_do_nothing())


async def append(db: AsyncConnection, rows: Sequence[tuple[str, LogRow]]) -> None:
    """Add rows of any responses; existing rows stay as they are, so that a repetition is harmless."""
    items = [
        {"response": id, "first": row.first, "last": row.last, "data": row.data, "packed": False} for id, row in rows
    ]
    if items:
        await db.execute(_APPEND[db.dialect.name], items)


def _behind() -> ColumnElement[bool]:
    """From the row with the next event, which is found by where it begins, as the index knows of nothing else."""
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
    """The rows with events behind this one: so many at most, and not much more than 1 MiB, but at least one.

    The first of them may begin with events up to this one.  Only `reading` sees one state of the log throughout.
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
    """The first rows, as many as are read at once."""
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
    """The number of the last event; None if there is no log, or it has expired."""
    last: int | None = await db.scalar(_NEWEST, {"this": id, "now": now})
    return last


_RANGES = select(events.c.first, events.c.last).where(_LOOSE, _OF).order_by(events.c.first)
_ROWS = _RANGES.add_columns(events.c.data)
_CLEAR, _PACK = delete(events).where(_LOOSE, _OF), insert(events)
_WEIGH = (
    update(all_threads)
    .where(all_threads.c.id == bindparam("this"))
    .values(bytes=all_threads.c.bytes + bindparam("size"))
)


async def pack(database: Database, id: str) -> None:
    """Make one row of a log that is complete, which lasts as long as the response and is part of its thread's bytes.

    Nothing happens to one that changes meanwhile, has been packed, or has lost something in between.
    """
    async with database.reading() as db:
        rows = (await db.execute(_ROWS, {"this": id})).all()
    if not rows or any(one.last + 1 < other.first for one, other in pairwise(rows)):
        return
    data = await asyncio.to_thread(zlib.compress, b"".join(row.data for row in rows))
    async with database.writing() as db:
        if not (response := await responses.find_locked(db, id)):
            return
        if [*map(tuple, await db.execute(_RANGES, {"this": id}))] != [(row.first, row.last) for row in rows]:
            return
        await db.execute(_CLEAR, {"this": id})
        fields = {"first": rows[0].first, "last": rows[-1].last, "data": data, "packed": True}
        await db.execute(_PACK, {"response": id, **fields})
        await db.execute(_WEIGH, {"this": response.thread, "size": len(data)})


_EXPIRE = update(events).where(_LOOSE, _OF).values(valid_until=bindparam("until"))


async def expire(db: AsyncConnection, id: str, valid_until: int) -> None:
    """A log that is complete lasts until then, unless it is packed."""
    await db.execute(_EXPIRE, {"this": id, "until": valid_until})


def _trimming() -> Delete:
    upto = func.sum(func.length(events.c.data)).over(order_by=events.c.first.desc())
    sized = select(events.c.first, upto.label("upto")).where(_OF).subquery()
    newest = select(func.max(sized.c.first)).where(sized.c.upto > bindparam("most", type_=Integer)).scalar_subquery()
    return delete(events).where(_LOOSE, _OF, events.c.first <= newest)


_TRIM = _trimming()


async def trim(db: AsyncConnection, id: str, keep_bytes: int) -> None:
    """Forget the oldest rows of a log that is not packed: what is left is the newest, and at most so much."""
    await db.execute(_TRIM, {"this": id, "most": keep_bytes})
