"""Test the queue of writes: turns, its length, and requests that a full queue refuses before a model is asked."""

import asyncio

import pytest

from gateway.errors import StoreFailed
from gateway.store import write_queue
from gateway.store.write_queue import GroupCommit, WriteQueue
from support.wait import until


async def test_store_transactions_take_turns_in_their_order():
    queue, order, go = WriteQueue(1), [], asyncio.Event()

    async def write(name):
        async with queue.turn():
            order.append(name)
            await go.wait()

    tasks = [asyncio.create_task(write(name)) for name in "abc"]
    await until(lambda: order, ["a"])
    assert queue.length == 2
    go.set()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"] and queue.length == 0


async def test_store_transaction_that_waits_too_long_fails(monkeypatch):
    monkeypatch.setattr(write_queue, "_MAX_WAIT", 0.01)
    queue = WriteQueue(1)
    async with queue.turn():
        with pytest.raises(StoreFailed) as failed:
            async with queue.turn():
                raise AssertionError
        assert failed.value.retry_after == "1" and queue.length == 0
    async with queue.turn():
        """It is free again."""


async def test_store_queue_counts_grouped_writes_until_they_are_written():
    go, queue = asyncio.Event(), WriteQueue(1)

    async def write(values):
        await go.wait()
        return values

    group = GroupCommit(write, queue)
    tasks = [asyncio.create_task(group.add(value)) for value in range(3)]
    await until(lambda: queue.length, 3)
    tasks[2].cancel()
    await asyncio.gather(tasks[2], return_exceptions=True)
    assert queue.length == 3  # it is written all the same
    go.set()
    assert await asyncio.gather(*tasks[:2]) == [[0, 1, 2]] * 2
    await group.close()
    assert queue.length == 0


async def test_store_queue_counts_failed_writes_no_longer():
    async def write(values):
        raise ValueError(values)

    queue = WriteQueue(1)
    group = GroupCommit(write, queue)
    await asyncio.gather(*map(group.add, range(3)), return_exceptions=True)
    await group.close()
    assert queue.length == 0


async def test_full_store_queue_refuses_new_work_and_lets_writes_wait(monkeypatch):
    monkeypatch.setattr(write_queue, "_MAX_LENGTH", 2)
    queue, go = WriteQueue(1), asyncio.Event()

    async def write(values):
        async with queue.turn():
            await go.wait()

    group = GroupCommit(write, queue)
    queue.check_room()
    async with queue.turn():
        tasks = [asyncio.create_task(group.add(value)) for value in range(4)]
        await until(lambda: queue.length >= 4)
        with pytest.raises(StoreFailed) as refused:
            queue.check_room()
        problem = refused.value.problem
        assert (problem.status, problem.code, refused.value.retry_after) == (503, "store_unavailable", "1")
        assert "writes waiting" in problem.message and refused.value.reason == problem.message
    go.set()
    await asyncio.gather(*tasks)
    await group.close()
    queue.check_room()
