"""Event logs: all that the followers of a response are told, in rows as it came, and after its end in a single one.

Events are known by the API's sequence numbers.
"""

import asyncio
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store import responses
from gateway.store.database import Database
from gateway.store.engines import upsert
from gateway.store.records import Row
from gateway.store.tables import events
from gateway.store.tables import threads as all_threads

_MUCH = 1 << 20  # bytes that are read at once
_LOOSE = ~events.c.packed


async def append(db: AsyncConnection, rows: Sequence[tuple[str, Row]]) -> None:
    """Rows of any responses; one that is there already stays as it is, so that who is not sure may do it again."""
    said = [
        {"response": id, "first": row.first, "last": row.last, "data": row.data, "packed": False} for id, row in rows
    ]
    if said:
        await db.execute(upsert(db, events).on_conflict_do_nothing(), said)


async def read(db: AsyncConnection, id: str, after: int, most: int) -> list[Row]:
    """The rows with events behind this one: so many at most, and not much more than 1 MiB, but at least one.

    The first of them may begin with events up to this one.  Only `reading` sees one state of the log throughout.
    """
    size = func.length(events.c.data)
    sizes = await db.execute(
        select(events.c.first, size).where(_behind(id, after)).order_by(events.c.first).limit(most)
    )
    if not (chosen := [*_some(sizes)]):
        return []
    here = events.c.response == id, events.c.first.between(chosen[0], chosen[-1])
    columns = (events.c.first, events.c.last, events.c.data, events.c.packed)
    rows = await db.execute(select(*columns).where(*here).order_by(events.c.first))
    return [
        Row(first, last, await asyncio.to_thread(zlib.decompress, data) if packed else data)
        for first, last, data, packed in rows
    ]


def _behind(id: str, after: int) -> ColumnElement[bool]:
    """From the row with the next event, which is found by where it begins, as the index knows of nothing else."""
    older = events.alias()
    mine = select(func.max(older.c.first)).where(older.c.response == id, older.c.first <= after + 1)
    begin = func.coalesce(mine.scalar_subquery(), 0)
    return (events.c.response == id) & (events.c.first >= begin) & (events.c.last > after)


def _some(sizes: Iterable[Any]) -> Iterator[int]:
    """The first rows, as many as are read at once."""
    size = 0
    for first, length in sizes:
        yield first
        size += length
        if size >= _MUCH:
            return


async def newest(db: AsyncConnection, id: str, now: int) -> int | None:
    """The number of the last event; None if there is no log, or it has expired."""
    lasts = or_(events.c.valid_until.is_(None), events.c.valid_until > now)
    rows = select(events.c.last).where(events.c.response == id, lasts)
    last: int | None = await db.scalar(rows.order_by(events.c.first.desc()).limit(1))
    return last


async def pack(database: Database, id: str) -> None:
    """Make one row of a log that is complete, which lasts as long as the response and is part of its thread's bytes.

    Nothing happens to one that changes meanwhile, has been packed, or has lost something in between.
    """
    async with database.reading() as db:
        rows = await _loose(db, id, events.c.data)
    if not rows or any(one.last + 1 < other.first for one, other in pairwise(rows)):
        return
    data = await asyncio.to_thread(zlib.compress, b"".join(row.data for row in rows))
    async with database.writing() as db:
        if not (response := await responses.locked(db, id)):
            return
        if [*map(tuple, await _loose(db, id))] != [(row.first, row.last) for row in rows]:
            return
        await db.execute(delete(events).where(_LOOSE, events.c.response == id))
        said = {"first": rows[0].first, "last": rows[-1].last, "data": data, "packed": True}
        await db.execute(insert(events).values(response=id, **said))
        this = all_threads.c.id == response.thread
        await db.execute(update(all_threads).where(this).values(bytes=all_threads.c.bytes + len(data)))


async def expire(db: AsyncConnection, id: str, valid_until: int) -> None:
    """A log that is complete lasts until then, unless it is packed."""
    await db.execute(update(events).where(_LOOSE, events.c.response == id).values(valid_until=valid_until))


async def trim(db: AsyncConnection, id: str, keep_bytes: int) -> None:
    """Forget the oldest rows of a log that is not packed: what is left is the newest, and at most so much."""
    mine = events.c.response == id
    upto = func.sum(func.length(events.c.data)).over(order_by=events.c.first.desc())
    sized = select(events.c.first, upto.label("upto")).where(mine).subquery()
    newest = select(func.max(sized.c.first)).where(sized.c.upto > keep_bytes).scalar_subquery()
    await db.execute(delete(events).where(_LOOSE, mine, events.c.first <= newest))


async def _loose(db: AsyncConnection, id: str, *more: ColumnElement[Any]) -> Sequence[Any]:
    """The rows of a log that is not packed: their first and last numbers, and more."""
    mine = select(events.c.first, events.c.last, *more).where(_LOOSE, events.c.response == id)
    return (await db.execute(mine.order_by(events.c.first))).all()
