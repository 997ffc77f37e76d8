"""Test event logs: reading from any event, page size, packing and expiry."""

import asyncio
import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, select

from gateway.store import Database, conversations, event_logs, responses
from gateway.store.records import LogRow
from gateway.store.tables import events
from gateway.store.tables import threads as all_threads
from support.sampling import examples
from support.statements import noted, plan
from support.store_jobs import begin, counted, numbered

FOREVER = 1 << 40


def event(number, size=0):
    return b"%d%s " % (number, b"x" * size)


def row(first, last, size=0):
    return LogRow(first, last, b"".join(event(number, size) for number in range(first, last + 1)))


def rows(*lasts, size=0):
    """Return adjacent rows from the first event on, each up to one of `lasts`."""
    return [row(before + 1, last, size) for before, last in itertools.pairwise([-1, *lasts])]


async def keep(db, id, *added):
    if not await responses.find(db, "t", id):
        await responses.save(db, "t", {"id": id, "output": []}, numbered(f"{id}-in"), None, 0)
    await event_logs.append(db, [(id, one) for one in added])


async def everything(database, id, after=-1, most=9, pages=999):
    """Read page after page; return the events and the number of pages."""
    event_list, read = [], 0
    while read < pages and (page := await one_page(database, id, after, most)):
        event_list += [event for one in page for event in behind(one, after)]
        after, read = page[-1].last, read + 1
    return event_list, read


async def one_page(database, id, after, most):
    async with database.reading() as db:
        return await event_logs.read(db, id, after, most)


def behind(one, after):
    event_numbers = one.data.split()
    assert len(event_numbers) == one.last - one.first + 1
    return event_numbers[max(0, after + 1 - one.first) :]


def numbers(first, last):
    return [b"%d" % number for number in range(first, last + 1)]


async def test_event_log_is_read_from_any_event(store):
    log = rows(2, 3, 9, 10)
    async with store.writing() as db:
        await keep(db, "other", *rows(5, 20))
        await keep(db, "r", *log)
        for after, first in [(-1, 0), (0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (8, 2), (9, 3), (10, 4), (99, 4)]:
            assert await event_logs.read(db, "r", after, 9) == log[first:]
            assert await event_logs.read(db, "r", after, 1) == log[first : first + 1]
        assert await event_logs.read(db, "none", -1, 9) == []


async def test_event_log_rows_of_several_responses_are_added_at_once(store):
    async with store.writing() as db:
        for id in ("r", "s"):
            await keep(db, id)
        await event_logs.append(db, [])
        await event_logs.append(db, [("r", row(0, 1)), ("s", row(0, 3)), ("r", row(2, 2))])
        assert await event_logs.read(db, "r", -1, 9) == rows(1, 2)
        assert await event_logs.read(db, "s", -1, 9) == rows(3)


async def test_event_log_row_may_be_added_twice(store):
    async with store.writing() as db:
        await keep(db, "r", *rows(2, 3))
        await event_logs.append(db, [("r", row(3, 3)), ("r", row(4, 4))])
        assert await event_logs.read(db, "r", -1, 9) == rows(2, 3, 4)


async def test_event_log_page_has_about_a_megabyte(store):
    half, large = 1 << 19, 3 << 20
    async with store.writing() as db:
        await keep(db, "r", *rows(*range(6), size=half), row(6, 6, large), row(7, 7, large))
        assert [one.last for one in await event_logs.read(db, "r", -1, 9)] == [0, 1]
        assert [one.last for one in await event_logs.read(db, "r", 4, 9)] == [5, 6]
        assert [one.last for one in await event_logs.read(db, "r", 6, 9)] == [7]
    assert (await everything(store, "r"))[1] == 5


async def test_event_log_is_available_until_it_expires(store):
    async with store.writing() as db:
        await keep(db, "r")
        assert await event_logs.newest_event(db, "r", 0) is None
        assert await event_logs.newest_event(db, "r", 0) is None
        await keep(db, "r", *rows(2, 4))
        assert await event_logs.newest_event(db, "r", FOREVER) is not None
        assert await event_logs.newest_event(db, "r", FOREVER) == 4
        await event_logs.expire(db, "r", 50)
        assert [await event_logs.newest_event(db, "r", now) for now in (49, 50)] == [4, None]
        assert [await event_logs.newest_event(db, "r", now) is None for now in (0, 49, 50, 51)] == [
            False,
            False,
            True,
            True,
        ]


async def test_event_log_packed_is_one_row_that_counts_in_its_thread(store):
    async with store.writing() as db:
        await keep(db, "other", *rows(3))
        await keep(db, "r", *rows(2, 3, 9, size=1000))
        loose, _ = await counted(db)
    await event_logs.pack(store, "r")
    async with store.writing() as db:
        for after in (-1, 0, 5, 8):
            assert await event_logs.read(db, "r", after, 9) == [row(0, 9, size=1000)]
        assert await event_logs.read(db, "r", 9, 9) == []
        assert await event_logs.read(db, "other", -1, 9) == rows(3)
        size = await db.scalar(select(func.length(events.c.data)).where(events.c.packed))
        assert size < 1000
        assert await counted(db) == (loose + size, loose + size)
        await event_logs.expire(db, "r", 50)
        await event_logs.trim(db, "r", 0)
        assert await event_logs.newest_event(db, "r", FOREVER) is not None and await event_logs.read(db, "r", 8, 9)
    await event_logs.pack(store, "r")
    async with store.writing() as db:
        assert await counted(db) == (loose + size, loose + size)
        await responses.remove(db, await responses.find(db, "t", "r"))
        assert await event_logs.newest_event(db, "r", 0) is None
        counted_size, kept = await counted(db)
        assert counted_size == kept < loose


async def test_event_log_may_be_empty_when_it_is_packed(store):
    await event_logs.pack(store, "none")
    async with store.writing() as db:
        await keep(db, "r")
    await event_logs.pack(store, "r")
    async with store.writing() as db:
        assert await event_logs.newest_event(db, "r", 0) is None


async def test_event_log_is_packed_in_the_conversation_of_its_response(store):
    """The thread of the conversation grows by the log, and shrinks with the response."""
    async with store.writing() as db:
        await conversations.create(db, "t", "conv", {}, numbered("x"), 0)
        found = await conversations.find(db, "t", "conv")
        await begin(db, "r", parent=found.behind)
        await event_logs.append(db, [("r", row(0, 50))])
        assert await responses.finish(db, "t", {"id": "r", "output": numbered("out")}, found, 0)
        before = await db.scalar(select(all_threads.c.bytes))
    await event_logs.pack(store, "r")
    async with store.writing() as db:
        counted_size, kept = await counted(db)
        assert counted_size == kept > before
        await responses.remove(db, await responses.find(db, "t", "r"))
        assert await counted(db) == (counted_size := await db.scalar(select(all_threads.c.bytes)), counted_size)


async def test_event_log_read_skips_earlier_rows_by_an_index(store):
    async with store.writing() as db:
        await keep(db, "r", *rows(*range(200)))
    with noted(store) as sent:
        async with store.writing() as db:
            assert [one.first for one in await event_logs.read(db, "r", 150, 3)] == [151, 152, 153]
    async with store.writing() as db:
        statements = [one for one in sent if one[0].startswith("SELECT")]
        assert len(statements) == 2
        for statement, parameters in statements:
            how = [line for line in (await plan(db, statement, parameters)).splitlines() if "first" in line]
            assert any("first>" in line or "first >= " in line for line in how), how
            assert any("first<" in line or "first <= " in line for line in how), how


class Interrupted(Database):
    """A database that makes a change after its next read."""

    change = None

    async def run_reading(self, work):
        result = await super().run_reading(work)
        change, self.change = self.change, None
        if change:
            async with self.writing() as db:
                await change(db)
        return result


async def test_event_log_that_changes_while_it_is_packed_stays_as_it_is(store_url):
    async def grow(db):
        await event_logs.append(db, [("r", row(4, 4))])

    async def shorten(db):
        await event_logs.trim(db, "r", 4)

    async def remove(db):
        await responses.remove(db, await responses.find(db, "t", "r"))

    database = Interrupted(store_url)
    async with database.writing() as db:
        await keep(db, "r", *rows(2, 3))
    for change, left in [(grow, rows(2, 3, 4)), (shorten, [row(3, 3), row(4, 4)]), (remove, [])]:
        database.change = change
        await event_logs.pack(database, "r")
        async with database.reading() as db:
            assert await event_logs.read(db, "r", -1, 9) == left
            counted_size, kept = await counted(db)
            assert counted_size == kept
    await database.close()


async def test_event_log_is_packed_by_one_of_several_databases(store_url):
    databases = [Database(store_url) for _ in range(3)]
    async with databases[0].writing() as db:
        for number in range(10):
            await keep(db, f"r{number}", *rows(2, 3))
    for number in range(10):
        await asyncio.gather(*(event_logs.pack(one, f"r{number}") for one in databases))
    async with databases[0].reading() as db:
        counted_size, kept = await counted(db)
        assert counted_size == kept
        assert await event_logs.read(db, "r9", -1, 9) == [row(0, 3)]
    for one in databases:
        await one.close()


async def test_event_log_reader_gets_each_event_once_during_packing(store_url):
    databases = [Database(store_url) for _ in range(2)]
    async with databases[0].writing() as db:
        for id in ("r", "s"):
            await keep(db, id, *rows(*range(2, 600, 3)))
    before, pages = await everything(databases[0], "r", pages=5)
    assert (before, pages) == (numbers(0, 134), 5)
    await event_logs.pack(databases[1], "r")
    assert await everything(databases[0], "r", 134) == (numbers(135, 599), 1)
    readers = (everything(databases[0], "s", after, most=2) for after in (-1, 0, 100))
    _, *reads = await asyncio.gather(event_logs.pack(databases[1], "s"), *readers)
    assert [events for events, _ in reads] == [numbers(0, 599), numbers(1, 599), numbers(101, 599)]
    for one in databases:
        await one.close()


LENGTHS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=12)


def test_event_log_page_equals_a_list_slice_and_trim_keeps_the_newest(store_url):
    async def check(database, lengths, after, most, keep_bytes):
        log = []
        for count, size in lengths:
            first = log[-1].last + 1 if log else 0
            log.append(row(first, first + count - 1, size))
        async with database.writing() as db:
            await db.execute(delete(all_threads))
            await keep(db, "r", *log)
            await keep(db, "s", *log)
            for forgotten in (False, True):
                if forgotten:
                    await event_logs.trim(db, "r", keep_bytes)
                    while sum(len(one.data) for one in log) > keep_bytes:
                        log.pop(0)
                assert await event_logs.read(db, "r", after, most) == [one for one in log if one.last > after][:most]
            assert len(await event_logs.read(db, "s", -1, 99)) == len(lengths)

    with asyncio.Runner() as runner:
        database = Database(store_url)

        @settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(LENGTHS, st.integers(-1, 40), st.integers(1, 5), st.integers(0, 60))
        def play(lengths, after, most, keep_bytes):
            runner.run(check(database, lengths, after, most, keep_bytes))

        play()
        runner.run(database.close())
