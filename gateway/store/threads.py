"""Lists of items that grow at their end and branch: reading and extending them (`tables.py` says what they are)."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, exists, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.engines import portions
from gateway.store.records import Broken, Item, Place, Range
from gateway.store.tables import conversations, decode, encode, items, jobs, threads


async def begin(db: AsyncConnection, id: str, tenant: str, now: int, parent: Place | None = None) -> Place:
    """A new thread, perhaps one that goes on from another, which is in use by that."""
    said = {"parent": parent.thread, "parent_end": parent.end} if parent else {}
    await db.execute(insert(threads).values(id=id, tenant=tenant, length=0, bytes=0, used_at=now, **said))
    if parent:
        await db.execute(update(threads).where(threads.c.id == parent.thread).values(used_at=now))
    return Place(id, 0)


async def append(db: AsyncConnection, at: Place, added: Sequence[Item], now: int, beside: int = 0) -> Range | None:
    """The items' range behind this place, if it is the end of a thread that grows: None means to begin another one.

    It is not the end where something else stands behind it already.  A conversation grows by `extend` only, and so does
    the thread of a response that is not finished.
    beside: how many bytes are kept along with the items.
    """
    owned = exists().where(conversations.c.thread == at.thread)
    unfinished = exists().where(jobs.c.id == at.thread)
    return await _grow(db, at.thread, added, now, beside, threads.c.length == at.end, ~owned, ~unfinished)


async def extend(db: AsyncConnection, thread: str, added: Sequence[Item], now: int, beside: int = 0) -> Range | None:
    """The items' range at the end of a thread, wherever that is by now; None if there is no such thread any more."""
    return await _grow(db, thread, added, now, beside)


async def _grow(
    db: AsyncConnection, thread: str, added: Sequence[Item], now: int, beside: int, *only: ColumnElement[bool]
) -> Range | None:
    bodies = [*map(encode, added)]
    size = sum(map(len, bodies)) + beside
    grown = await db.execute(
        update(threads)
        .where(threads.c.id == thread, *only)
        .values(length=threads.c.length + len(bodies), bytes=threads.c.bytes + size, used_at=now)
        .returning(threads.c.tenant, threads.c.length)
    )
    if not (row := grown.one_or_none()):
        return None
    first = row.length - len(bodies)
    rows = [
        {"thread": thread, "place": place, "tenant": row.tenant, "id": item.get("id"), "body": body}
        for place, (item, body) in enumerate(zip(added, bodies, strict=True), first)
    ]
    if rows:
        await db.execute(insert(items), rows)
    return Range(thread, first, row.length)


async def parent(db: AsyncConnection, id: str) -> Place | None:
    """What a thread goes on from."""
    found = await db.execute(select(threads.c.parent, threads.c.parent_end).where(threads.c.id == id))
    row = found.one()
    return Place(row.parent, row.parent_end) if row.parent else None


async def ranges(db: AsyncConnection, at: Place) -> list[Range]:
    """All that comes before a place, the oldest first: of its thread, and of those it goes on from.

    Raises Broken where one of them was deleted.
    """
    start = select(threads.c.id, literal(at.end).label("end"), threads.c.parent, threads.c.parent_end)
    line = start.add_columns(literal(0).label("up")).where(threads.c.id == at.thread).cte("line", recursive=True)
    older = threads.alias()
    line = line.union_all(
        select(older.c.id, line.c.parent_end, older.c.parent, older.c.parent_end, line.c.up + 1).where(
            older.c.id == line.c.parent
        )
    )
    rows = (await db.execute(select(line.c.id, line.c.end, line.c.parent).order_by(line.c.up.desc()))).all()
    if not rows or rows[0].parent:
        raise Broken
    return [Range(row.id, 0, row.end) for row in rows]


async def read(db: AsyncConnection, of: Sequence[Range]) -> list[Item]:
    """Their items; raises Broken where one of them is gone."""
    found: list[Item] = []
    for one in of:
        for body in (await db.execute(_bodies(one).order_by(items.c.place))).scalars():
            if body is None:
                raise Broken
            found.append(decode(body))
    return found


def _within(one: Range) -> ColumnElement[bool]:
    return (items.c.thread == one.thread) & (items.c.place >= one.first) & (items.c.place < one.end)


def _bodies(one: Range) -> Select[Any]:
    return select(items.c.body).where(_within(one))


async def find(
    db: AsyncConnection, tenant: str, of: Sequence[Range], id: str, *, newest_first: bool = True
) -> Place | None:
    """Where in these ranges an item of this id stands: behind the place.

    If there are several it is the one that comes last in this order, so that paging behind it never goes in circles.
    """
    ends = {one.thread: one for one in of}
    places: dict[str, list[int]] = {}
    for some in portions(ends):
        said = items.c.tenant == tenant, items.c.id == id, items.c.thread.in_(some)
        for thread, place in await db.execute(select(items.c.thread, items.c.place).where(*said)):
            if ends[thread].first <= place < ends[thread].end:
                places.setdefault(thread, []).append(place)
    for one in of if newest_first else reversed(of):
        if here := places.get(one.thread):
            return Place(one.thread, min(here) if newest_first else max(here))
    return None


async def page(
    db: AsyncConnection, of: Sequence[Range], limit: int, *, newest_first: bool, behind: Place | None = None
) -> list[Item]:
    """At most so many of their items, in either order, from behind the one that `find` found; reads no others."""
    found: list[Item] = []
    for one in _rest(of, newest_first, behind):
        order = items.c.place.desc() if newest_first else items.c.place
        rows = await db.execute(_bodies(one).where(items.c.body.is_not(None)).order_by(order).limit(limit - len(found)))
        found += map(decode, rows.scalars())
        if len(found) == limit:
            break
    return found


def _rest(of: Sequence[Range], newest_first: bool, behind: Place | None) -> list[Range]:
    """The ranges in this order, without what comes before an item, and without the item."""
    ordered = [*reversed(of)] if newest_first else [*of]
    if behind is None:
        return ordered
    start = next(i for i, one in enumerate(ordered) if one.thread == behind.thread)
    cut = ordered[start]
    first = Range(cut.thread, cut.first, behind.end) if newest_first else Range(cut.thread, behind.end + 1, cut.end)
    return [first, *ordered[start + 1 :]]


async def erase(db: AsyncConnection, one: Range, beside: int = 0) -> None:
    """Delete what stands there, and bytes beside it; that something stood there remains."""
    await _lighten(db, one, beside)
    await db.execute(update(items).where(_within(one)).values(id=None, body=None))


async def remove(db: AsyncConnection, at: Place) -> None:
    """Delete one item of a conversation, without a trace."""
    one = Range(at.thread, at.end, at.end + 1)
    await _lighten(db, one, 0)
    await db.execute(delete(items).where(_within(one)))


async def _lighten(db: AsyncConnection, one: Range, beside: int) -> None:
    size = select(func.coalesce(func.sum(func.length(items.c.body)), 0)).where(_within(one)).scalar_subquery()
    left = threads.c.bytes - size - beside
    await db.execute(update(threads).where(threads.c.id == one.thread).values(bytes=left))


async def by_id(db: AsyncConnection, tenant: str, ids: Collection[str]) -> dict[str, Item]:
    """The items of these ids that there are, the newest where an id was given twice."""
    found: dict[str, Item] = {}
    for some in portions(ids):
        rows = await db.execute(
            select(items.c.body)
            .join(threads, threads.c.id == items.c.thread)
            .where(items.c.tenant == tenant, items.c.id.in_(some))
            .order_by(threads.c.used_at, items.c.place)
        )
        found |= {item["id"]: item for item in map(decode, rows.scalars())}
    return found
