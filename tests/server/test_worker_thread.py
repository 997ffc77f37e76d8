"""Test that work in the thread leaves the event loop free, and that nobody goes on before it has ended."""

import asyncio
import threading

import pytest

from gateway.server.worker_thread import run_in_thread, start_in_thread
from support.app import gateway
from support.sse import text_of
from support.upstream import chunk, stream
from support.wait import until

BRACES = "{" * 6000


async def test_cancelled_task_waits_for_work_that_has_begun():
    begun, may_end, done = threading.Event(), threading.Event(), []

    def work():
        begun.set()
        may_end.wait(20)
        done.append("work")

    task = asyncio.create_task(run_in_thread(work))
    await until(begun.is_set)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["work"]


async def test_cancelled_task_leaves_work_that_has_not_begun():
    begun, may_end, done = threading.Event(), threading.Event(), []
    first = asyncio.create_task(run_in_thread(lambda: (begun.set(), may_end.wait(20))))
    await until(begun.is_set)
    second = asyncio.create_task(run_in_thread(done.append, "second"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    may_end.set()
    await first
    await run_in_thread(done.append, "third")
    assert done == ["third"]


async def test_work_for_later_is_done_without_anybody_who_waits():
    threads = []
    start_in_thread(lambda: threads.append(threading.current_thread()))
    assert [await run_in_thread(threading.current_thread)] == threads


async def test_cancelled_task_hides_the_error_of_its_work():
    begun, may_end = threading.Event(), threading.Event()

    def work():
        begun.set()
        may_end.wait(20)
        raise ValueError

    task = asyncio.create_task(run_in_thread(work))
    await until(begun.is_set)
    task.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task


PARTS = [chunk(BRACES[:5000]), chunk(BRACES[5000:])]
ANSWERS = {
    "a long chunk": stream(chunk(BRACES), chunk(finish="stop")),
    "a long chunk in pieces": stream(
        *(chunk(BRACES)[at : at + 1000] for at in range(0, 7000, 1000)), chunk(finish="stop")
    ),
    "long chunks": stream(b"".join(PARTS), chunk(finish="stop")),
}


@pytest.mark.parametrize("script", ANSWERS.values(), ids=ANSWERS)
async def test_long_chunks_of_a_backend_are_read_in_the_thread(script, monkeypatch):
    threads = []

    async def spied(work, *args):
        threads.append(await run_in_thread(threading.current_thread))
        return await run_in_thread(work, *args)

    monkeypatch.setattr("gateway.server.relay.relay.run_in_thread", spied)
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with gateway(script, model={"format": "bare_json"}) as site:
        answer = await site.chat(stream=True, tools=tools)
    assert text_of(answer.text) == BRACES
    assert threads and threading.main_thread() not in threads
