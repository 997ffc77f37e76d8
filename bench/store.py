"""Measure the store without a gateway: milliseconds per stored turn, and their growth with rows that are not read.

`python -m bench --only store` prints them for an SQLite file.
"""

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from statistics import median

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from bench.figures import Figure
from gateway.store import Database, item_lists, responses
from gateway.store.records import Item, ListPosition, StoredResponse

_TIMES = 50  # measurements; the median is shown
_SIZES = (10, 100, 1000, 10_000)  # items of a chain
_FEW = 1000  # shorter chains would grow much by the measurements, so there is one for each
_ITEMS = 2  # of a request, and of its response
_FILL = 1_000_000  # other rows
_OF_A_THREAD = 100
_MOST, _FLAT = 10.0, 1.5

_TEXT = "the fast gateway " * 30
_NUMBERS = itertools.count()

Clock = Callable[[], float]
# Takes the id of a chain's last response, and returns the id of the new one.
Job = Callable[[Database, str], Awaitable[str]]


def figures(quick: bool) -> Iterator[Figure]:
    """Yield the figures of a new SQLite file."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield from asyncio.run(measured(f"sqlite:///{folder}/gateway.db", quick))


def turn_beside(url: str, rows: int) -> float:
    """Return CPU milliseconds of a turn behind ten items, in an empty database with this many other rows."""
    return asyncio.run(_turn_beside(url, rows))


async def _turn_beside(url: str, rows: int) -> float:
    database = Database(url)
    await _chain(database, _SIZES[0])  # the first one creates the tables
    await _fill(database, rows)
    (cost,) = await _costs(database, _turn, _SIZES[:1], time.process_time)
    await database.close()
    return cost


async def measured(url: str, quick: bool) -> list[Figure]:
    """Return the figures of an empty database."""
    sizes, rows = (_SIZES[:3], _FILL // 10) if quick else (_SIZES, _FILL)
    found: list[Figure] = []
    for beside in ("", f", {rows:,} rows of others"):
        database = Database(url)
        found += [figure async for figure in _figures(database, sizes, beside)]
        if not beside:
            await _fill(database, rows)
        await database.close()
    return found


async def _figures(database: Database, sizes: Sequence[int], beside: str) -> AsyncIterator[Figure]:
    turns = await _costs(database, _turn, sizes)
    for size, cost in zip(sizes, turns, strict=True):
        yield Figure("store", f"a turn stored behind {size:,} items{beside}", "ms", (cost,), wanted=_MOST)
    yield Figure("store", f"the longest chain to the shortest{beside}", "×", (turns[-1] / turns[0],), wanted=_FLAT)
    for name, job in _READS.items():
        (cost,) = await _costs(database, job, sizes[-1:])
        yield Figure("store", f"{name} of {sizes[-1]:,} items{beside}", "ms", (cost,))


async def _costs(database: Database, job: Job, sizes: Sequence[int], clock: Clock = time.perf_counter) -> list[float]:
    """Return milliseconds of a job on chains of these sizes; they take turns to share the machine's busy moments."""
    costs: list[list[float]] = [[] for _ in sizes]
    chains = [[await _chain(database, size) for _ in range(_TIMES if size < _FEW else 1)] for size in sizes]
    for turn in range(_TIMES):
        for same, cost in zip(chains, costs, strict=True):
            which = turn % len(same)
            begun = clock()
            same[which] = await job(database, same[which])
            cost.append((clock() - begun) * 1000)
    return [*map(median, costs)]


async def _chain(database: Database, size: int) -> str:
    return await _save(database, size - _ITEMS, None)


async def _save(database: Database, given: int, behind: ListPosition | None) -> str:
    """Store a response with this many input items, and return its id."""
    id, now = f"resp_{next(_NUMBERS):048}", int(time.time())
    items = [{"id": f"msg_{next(_NUMBERS):048}", "type": "message", "content": _TEXT} for _ in range(given + _ITEMS)]
    body = {"id": id, "object": "response", "instructions": _TEXT, "output": items[given:]}
    await database.run_writing(lambda db: responses.save(db, "t", body, items[:given], behind, now))
    return id


async def _found(db: AsyncConnection, id: str) -> StoredResponse:
    found = await responses.find(db, "t", id)
    assert found
    return found


async def _turn(database: Database, last: str) -> str:
    """Do the work of a request: find the response that it continues, and store the new one behind it."""
    found = await database.run_reading(lambda db: _found(db, last))
    return await _save(database, _ITEMS, found.behind)


async def _context(database: Database, last: str) -> str:
    await database.run_reading(lambda db: _history(db, last))
    return last


async def _history(db: AsyncConnection, last: str) -> list[Item]:
    return await item_lists.read(db, await item_lists.ranges(db, (await _found(db, last)).behind))


async def _page(database: Database, last: str, *, newest_first: bool) -> str:
    async with database.reading() as db:
        ranges = await responses.effective_input(db, await _found(db, last))
        await item_lists.page(db, ranges, 20, newest_first=newest_first)
    return last


_READS: dict[str, Job] = {
    "the newest 20": partial(_page, newest_first=True),
    "the oldest 20": partial(_page, newest_first=False),
    "the context, all": _context,
}


async def _fill(database: Database, rows: int) -> None:
    """Insert items of other chains of the same tenant."""
    async with database.writing() as db:
        for statement in _FILLING:
            last = rows // _OF_A_THREAD if "INTO items" not in statement else rows
            await db.execute(text(statement), {"last": last - 1, "body": _TEXT.encode()})


_COUNTED = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :last)"
_FILLING = (
    f"""INSERT INTO threads (id, tenant, length, bytes, used_at)
    {_COUNTED} SELECT 'thread' || i, 't', {_OF_A_THREAD}, 0, i FROM n""",
    f"""INSERT INTO items (thread, place, tenant, id, body)
    {_COUNTED} SELECT 'thread' || (i / {_OF_A_THREAD}), i % {_OF_A_THREAD}, 't', 'item' || i, :body FROM n""",
    f"""INSERT INTO responses (id, tenant, thread, first, output, "end", body)
    {_COUNTED} SELECT 'response' || i, 't', 'thread' || i, 0, {_OF_A_THREAD - 2}, {_OF_A_THREAD}, :body FROM n""",
)
