"""Test batches of writes: order, size, and errors that reach their callers only."""

import asyncio
import logging

import pytest
from sqlalchemy import exc

from gateway.errors import StoreFailed
from gateway.store import Database, responses
from gateway.store.records import NewResponse
from gateway.store.write_queue import GroupCommit, WriteQueue


class Writer:
    """Batches whose writes wait for `open`.  seen: the batches; wrong: entries that fail."""

    def __init__(self, *wrong):
        self.seen = []
        self.began, self.open = asyncio.Event(), asyncio.Event()
        self.wrong = set(wrong)
        self.broken = False
        self.batches = GroupCommit(self.write, WriteQueue(1))

    async def write(self, these):
        self.seen.append([*these])
        self.began.set()
        await self.open.wait()
        if self.broken:
            raise StoreFailed("It is down.")
        if mistakes := self.wrong.intersection(these):
            raise ValueError(mistakes)

    async def add(self, first, *others):
        """Add each entry from a task of its own, the others during the write of the first."""
        tasks = [asyncio.create_task(self.batches.add(first))]
        await self.began.wait()
        tasks += [asyncio.create_task(self.batches.add(one)) for one in others]
        await asyncio.sleep(0)
        return tasks


def response(id, text="hello"):
    output = [{"id": f"{id}-out", "type": "message", "text": text}]
    return NewResponse("t", {"id": id, "status": "completed", "output": output}, [{"id": f"{id}-in"}], 7)


async def test_store_batch_holds_waiting_entries_in_order():
    writer = Writer()
    tasks = await writer.add(*range(5))
    assert writer.seen == [[0]] and not any(task.done() for task in tasks)
    writer.open.set()
    assert await asyncio.gather(*tasks) == [None] * 5
    assert writer.seen == [[0], [1, 2, 3, 4]]
    await writer.batches.add(5)
    assert writer.seen[2:] == [[5]]


async def test_store_batch_has_at_most_a_hundred_entries():
    writer = Writer()
    tasks = await writer.add(*range(251))
    writer.open.set()
    await asyncio.gather(*tasks)
    assert [len(batch) for batch in writer.seen] == [1, 100, 100, 50]


async def test_store_batch_reports_a_mistake_to_its_caller_only():
    writer = Writer(2)
    tasks = await writer.add(0, 1, 2, 3)
    writer.open.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), ValueError, type(None)]
    assert writer.seen == [[0], [1, 2, 3], [1], [2], [3]]


async def test_store_batch_fails_as_a_whole_if_the_store_is_down():
    writer = Writer()
    tasks = await writer.add(0, 1, 2)
    writer.broken = True
    writer.open.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreFailed] * 3
    assert writer.seen == [[0], [1, 2]]
    writer.broken = False
    await writer.batches.add(3)


@pytest.mark.parametrize("broken", [False, True])
async def test_store_batch_writes_entries_whose_callers_were_cancelled(broken):
    writer = Writer()
    first, second, third = await writer.add(0, 1, 2)
    first.cancel()
    second.cancel()
    writer.broken = broken
    writer.open.set()
    outcomes = await asyncio.gather(first, second, third, return_exceptions=True)
    left = asyncio.CancelledError
    assert [type(outcome) for outcome in outcomes] == [left, left, StoreFailed if broken else type(None)]
    assert writer.seen == [[0], [1, 2]]


async def test_store_batches_close_after_pending_writes():
    writer = Writer()
    await writer.batches.close()  # nothing was
    tasks = await writer.add(0, 1)
    closing = asyncio.create_task(writer.batches.close())
    await asyncio.sleep(0)
    assert not closing.done()
    writer.open.set()
    await closing
    assert all(task.done() for task in tasks)


async def test_store_batch_keeps_all_responses(store):
    await asyncio.gather(
        *(store.write_grouped(responses.begin, response(f"r{number}", "x" * number)) for number in range(9))
    )
    async with store.reading() as db:
        for number in range(9):
            kept = await responses.find(db, "t", f"r{number}")
            whole = await responses.response_object(db, kept)
            assert whole["output"] == response(f"r{number}", "x" * number).body["output"]


async def test_store_batch_with_a_duplicate_id_keeps_the_other_responses(store):
    given = [response("first"), response("a"), response("same", "one"), response("same", "two"), response("b")]
    writing = (store.write_grouped(responses.begin, one) for one in given)
    outcomes = await asyncio.gather(*writing, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None)] * 3 + [exc.IntegrityError, type(None)]
    async with store.reading() as db:
        assert (await responses.response_object(db, await responses.find(db, "t", "same")))["output"][0][
            "text"
        ] == "one"
        assert await responses.find(db, "t", "a") and await responses.find(db, "t", "b")


async def test_store_batch_of_many_is_one_trip_to_the_driver(tmp_path, caplog):
    database = Database(f"sqlite:///{tmp_path}/a.db")
    await database.write_grouped(responses.begin, response("first"))
    caplog.set_level(logging.DEBUG, "aiosqlite")
    await asyncio.gather(*(database.write_grouped(responses.begin, response(f"r{number}")) for number in range(50)))
    statements = [record.message for record in caplog.records if record.message.startswith("executing")]
    await database.close()
    assert len(statements) == 1
