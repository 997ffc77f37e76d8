"""Read and extend lists of items that grow at their end and branch; `tables.py` describes them."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from sqlalchemy import Integer, Select, bindparam, delete, exists, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from gateway.store.engines import chunked
from gateway.store.records import Item, ItemList, ItemRange, ItemsMissing, ListAddition, ListPosition
from gateway.store.tables import conversations, decode, encode, items, jobs, threads

_BEGIN = insert(threads)
_USE = update(threads).where(threads.c.id == bindparam("this")).values(used_at=bindparam("now"))


async def begin(db: AsyncConnection, *new: ItemList) -> None:
    """Create threads with their items, and mark the threads that they continue as used."""
    rows, of_items = [], []
    for thread in new:
        bodies = [*map(encode, thread.added)]
        rows.append(_row(thread, bodies))
        of_items.append(_rows(thread.tenant, ListPosition(thread.id, 0), thread.added, bodies))
    await db.execute(_BEGIN, rows)
    if used := [{"this": thread.parent.thread, "now": thread.now} for thread in new if thread.parent]:
        await db.execute(_USE, used)
    await _put(db, chain.from_iterable(of_items))


def _row(thread: ItemList, bodies: Sequence[bytes]) -> dict[str, Any]:
    parent, end = (thread.parent.thread, thread.parent.end) if thread.parent else (None, None)
    size = sum(map(len, bodies)) + thread.extra_bytes
    counted = {"length": len(bodies), "bytes": size, "used_at": thread.now}
    return {"id": thread.id, "tenant": thread.tenant, "parent": parent, "parent_end": end, **counted}


_EXTEND = (
    update(threads)
    .where(threads.c.id == bindparam("this"))
    .values(
        length=threads.c.length + bindparam("items"),
        bytes=threads.c.bytes + bindparam("size"),
        used_at=bindparam("now"),
    )
)
_GROW = _EXTEND.returning(threads.c.tenant, threads.c.length)
_GROW_BEHIND = _GROW.where(
    threads.c.length == bindparam("end"),
    ~exists().where(conversations.c.thread == bindparam("this")),
    ~exists().where(jobs.c.id == bindparam("this")),  # its response is not finished
)


async def append(
    db: AsyncConnection, at: ListPosition, added: Sequence[Item], now: int, beside: int = 0
) -> ItemRange | None:
    """Append items at this position, and return their range; None if the caller has to create a new thread.

    The position has to be the end of its thread.  A conversation and the thread of an unfinished response grow by
    `extend` only.

    beside: bytes that are stored along with the items.
    """
    return await _grow(db, _GROW_BEHIND, {"this": at.thread, "end": at.end}, added, now, beside)


async def extend(
    db: AsyncConnection, thread: str, added: Sequence[Item], now: int, beside: int = 0
) -> ItemRange | None:
    """Append items at the current end of a thread, and return their range; None if the thread was deleted."""
    return await _grow(db, _GROW, {"this": thread}, added, now, beside)


async def extend_all(db: AsyncConnection, new: Sequence[ListAddition]) -> None:
    """Append items to threads that the caller alone extends."""
    rows, of_items = [], []
    for one in new:
        bodies = [*map(encode, one.added)]
        rows.append({"this": one.at.thread, **_growth(bodies, one.extra_bytes, one.now)})
        of_items.append(_rows(one.tenant, one.at, one.added, bodies))
    await db.execute(_EXTEND, rows)
    await _put(db, chain.from_iterable(of_items))


def _growth(bodies: Sequence[bytes], beside: int, now: int) -> dict[str, int]:
    return {"items": len(bodies), "size": sum(map(len, bodies)) + beside, "now": now}


async def _grow(
    db: AsyncConnection,
    growing: ReturningUpdate[str, int],
    which: dict[str, Any],
    added: Sequence[Item],
    now: int,
    beside: int,
) -> ItemRange | None:
    bodies = [*map(encode, added)]
    more = _growth(bodies, beside, now)
    if not (row := (await db.execute(growing, {**which, **more})).one_or_none()):
        return None
    at = ListPosition(which["this"], row.length - len(bodies))
    await _put(db, _rows(row.tenant, at, added, bodies))
    return ItemRange(at.thread, at.end, row.length)


_PUT = insert(items)
_ROWS = 500  # rows in one statement, so that other transactions do not wait long


async def _put(db: AsyncConnection, rows: Iterator[dict[str, Any]]) -> None:
    """Insert the rows of items that their threads already count."""
    while some := [*islice(rows, _ROWS)]:
        await db.execute(_PUT, some)


def _rows(tenant: str, at: ListPosition, added: Sequence[Item], bodies: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the rows of items from this position on."""
    for place, (item, body) in enumerate(zip(added, bodies, strict=True), at.end):
        yield {"thread": at.thread, "place": place, "tenant": tenant, "id": item.get("id"), "body": body}


_PARENT = select(threads.c.parent, threads.c.parent_end).where(threads.c.id == bindparam("this"))


async def parent_position(db: AsyncConnection, id: str) -> ListPosition | None:
    """Return the position that a thread continues."""
    row = (await db.execute(_PARENT, {"this": id})).one()
    return ListPosition(row.parent, row.parent_end) if row.parent else None


def _line() -> Select[str, int, str | None]:
    """Select a thread and its ancestors, the oldest first, each with the end of the part that belongs to the list."""
    end, up = bindparam("end", type_=Integer).label("end"), literal(0).label("up")
    start = select(threads.c.id, end, threads.c.parent, threads.c.parent_end, up)
    line = start.where(threads.c.id == bindparam("this")).cte("line", recursive=True)
    older = threads.alias()
    line = line.union_all(
        select(older.c.id, line.c.parent_end, older.c.parent, older.c.parent_end, line.c.up + 1).where(
            older.c.id == line.c.parent
        )
    )
    return select(line.c.id, line.c.end, line.c.parent).order_by(line.c.up.desc())


_LINE = _line()


async def ranges(db: AsyncConnection, at: ListPosition) -> list[ItemRange]:
    """Return all ranges before a position, the oldest first: of its thread, and of its ancestors.

    Raises ItemsMissing if an ancestor was deleted.
    """
    rows = (await db.execute(_LINE, {"this": at.thread, "end": at.end})).all()
    if not rows or rows[0].parent:
        raise ItemsMissing
    return [ItemRange(row.id, 0, row.end) for row in rows]


_WITHIN = (
    (items.c.thread == bindparam("inside")) & (items.c.place >= bindparam("first")) & (items.c.place < bindparam("end"))
)
_BODIES = select(items.c.body).where(_WITHIN)
_READ = _BODIES.order_by(items.c.place)


def _within(one: ItemRange) -> dict[str, Any]:
    """Return the parameters of `_WITHIN`."""
    return {"inside": one.thread, "first": one.first, "end": one.end}


async def read(db: AsyncConnection, of: Sequence[ItemRange]) -> list[Item]:
    """Return the items of the ranges.  Raises ItemsMissing if one was deleted."""
    found: list[Item] = []
    for one in of:
        bodies = (await db.execute(_READ, _within(one))).scalars().all()
        if None in bodies:
            raise ItemsMissing
        found += map(decode, bodies)
    return found


_ERASED = (
    select(items.c.id)
    .where(items.c.tenant == bindparam("tenant"), items.c.id.is_(None), items.c.thread == bindparam("inside"))
    .where(items.c.place + 0 < bindparam("end"), items.c.body.is_(None))  # a sum, so that the index by id is taken
    .limit(bindparam("most", type_=Integer))
)
_COUNT = select(func.count()).select_from(items).where(_WITHIN)
_OWNER = select(conversations.c.id).where(conversations.c.thread == bindparam("this"))


async def has_erased(db: AsyncConnection, tenant: str, one: ItemRange) -> bool:
    """Return True if an item of the range was deleted with its response."""
    return bool((await db.execute(_ERASED, {"tenant": tenant, "most": 1, **_within(one)})).all())


async def count(db: AsyncConnection, one: ItemRange) -> int:
    """Return the number of items in a range: those that `remove` deletes are missing."""
    (found,) = (await db.execute(_COUNT, _within(one))).scalars().all()
    return int(found)


async def is_of_conversation(db: AsyncConnection, thread: str) -> bool:
    """Return True if a conversation has this thread, so that `remove` may delete items of it."""
    return bool((await db.execute(_OWNER, {"this": thread})).all())


_FIND = select(items.c.thread, items.c.place).where(
    items.c.tenant == bindparam("tenant"), items.c.id == bindparam("id"), items.c.thread.in_(bindparam("among"))
)


async def find(
    db: AsyncConnection, tenant: str, of: Sequence[ItemRange], id: str, *, newest_first: bool = True
) -> ListPosition | None:
    """Return the position of the item with this id in the ranges, or None.

    If several items have the id, the last one in this order counts, so that paging behind it never repeats items.
    """
    ends = {one.thread: one for one in of}
    places: dict[str, list[int]] = {}
    for some in chunked(ends):
        for thread, place in await db.execute(_FIND, {"tenant": tenant, "id": id, "among": some}):
            if ends[thread].first <= place < ends[thread].end:
                places.setdefault(thread, []).append(place)
    for one in of if newest_first else reversed(of):
        if here := places.get(one.thread):
            return ListPosition(one.thread, min(here) if newest_first else max(here))
    return None


_PAGE = _BODIES.where(items.c.body.is_not(None)).limit(bindparam("most", type_=Integer))
_OLDEST, _NEWEST = _PAGE.order_by(items.c.place), _PAGE.order_by(items.c.place.desc())


async def page(
    db: AsyncConnection, of: Sequence[ItemRange], limit: int, *, newest_first: bool, behind: ListPosition | None = None
) -> list[Item]:
    """Return at most `limit` items in either order; reads no other items.

    behind: the position that `find` returned for the last item of the page before.
    """
    found: list[Item] = []
    for one in _rest(of, newest_first, behind):
        some = {**_within(one), "most": limit - len(found)}
        rows = await db.execute(_NEWEST if newest_first else _OLDEST, some)
        found += map(decode, rows.scalars())
        if len(found) == limit:
            break
    return found


def _rest(of: Sequence[ItemRange], newest_first: bool, behind: ListPosition | None) -> list[ItemRange]:
    """Return the ranges in this order, without the items up to the position."""
    ordered = [*reversed(of)] if newest_first else [*of]
    if behind is None:
        return ordered
    start = next(i for i, one in enumerate(ordered) if one.thread == behind.thread)
    cut = ordered[start]
    first = (
        ItemRange(cut.thread, cut.first, behind.end) if newest_first else ItemRange(cut.thread, behind.end + 1, cut.end)
    )
    return [first, *ordered[start + 1 :]]


_ERASE, _REMOVE = update(items).where(_WITHIN).values(id=None, body=None), delete(items).where(_WITHIN)
_SIZE = select(func.coalesce(func.sum(func.length(items.c.body)), 0)).where(_WITHIN).scalar_subquery()
_LIGHTEN = (
    update(threads)
    .where(threads.c.id == bindparam("inside"))
    .values(bytes=threads.c.bytes - _SIZE - bindparam("beside"))
)


async def erase(db: AsyncConnection, one: ItemRange, beside: int = 0) -> None:
    """Delete the items of a range, and bytes beside them; their places stay taken."""
    await _lighten(db, one, beside)
    await db.execute(_ERASE, _within(one))


async def remove(db: AsyncConnection, at: ListPosition) -> None:
    """Delete one item of a conversation, with its place."""
    one = ItemRange(at.thread, at.end, at.end + 1)
    await _lighten(db, one, 0)
    await db.execute(_REMOVE, _within(one))


async def _lighten(db: AsyncConnection, one: ItemRange, beside: int) -> None:
    await db.execute(_LIGHTEN, {**_within(one), "beside": beside})


_BY_ID = (
    select(items.c.body)
    .join(threads, threads.c.id == items.c.thread)
    .where(items.c.tenant == bindparam("tenant"), items.c.id.in_(bindparam("ids")))
    .order_by(threads.c.used_at, items.c.place)
)


async def by_id(db: AsyncConnection, tenant: str, ids: Collection[str]) -> dict[str, Item]:
    """Return the existing items with these ids; the newest if an id is used twice."""
    found: dict[str, Item] = {}
    for some in chunked(ids):
        rows = await db.execute(_BY_ID, {"tenant": tenant, "ids": some})
        found |= {item["id"]: item for item in map(decode, rows.scalars())}
    return found
