"""Test several processes on one database, and processes that are killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
from sqlalchemy import func, select

import gateway
from gateway.store import Database, conversations, item_lists, jobs, responses
from gateway.store.records import NewJob, NewResponse
from gateway.store.tables import items
from gateway.store.tables import responses as all_responses
from gateway.store.tables import threads as all_threads
from support.paths import PROGRAMS
from support.wait import DEADLINE, idle

pytestmark = pytest.mark.smoke

_WORKER = PROGRAMS / "store_worker.py"
_PROCESSES = 3


def start(url, job, name, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(gateway.__file__).parent.parent)}
    command = [sys.executable, _WORKER, url, job, name, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def run(url, job, *arguments):
    """Run the same job in several processes at once; return the output of each."""
    started = [start(url, job, f"p{number}", *arguments) for number in range(_PROCESSES)]
    outputs = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0] * _PROCESSES
    return [[*map(json.loads, one.splitlines())] for one in outputs]


async def begin(store):
    async with store.writing() as db:
        await responses.save(db, "t", {"id": "first", "output": [{"id": "o", "text": "o"}]}, [{"id": "i"}], None, 0)


async def ids(store, response):
    """Return the ids of all items up to the end of a response."""
    async with store.reading() as db:
        found = await responses.find(db, "t", response)
        return [item["id"] for item in await item_lists.read(db, await item_lists.ranges(db, found.behind))]


def own(name, number):
    return [f"{name}-{number}-{place}" for place in range(5)]


async def test_response_chains_from_one_response_are_all_kept(store, store_url):
    await begin(store)
    run(store_url, "branch", "first", 10)
    for number in range(_PROCESSES):
        expected = [item for turn in range(10) for item in own(f"p{number}", turn)]
        assert await ids(store, f"p{number}-9") == ["i", "o", *expected]
    async with store.reading() as db:
        first = await responses.find(db, "t", "first")
        kept = [await responses.find(db, "t", f"p{number}-9") for number in range(_PROCESSES)]
        assert await db.scalar(select(func.count()).select_from(all_threads)) == _PROCESSES
    assert [one.thread for one in kept].count(first.thread) == 1  # one goes on, the others branch off


async def test_thread_is_extended_by_one_of_all_forks(store, store_url):
    await begin(store)
    run(store_url, "fork", "first", 10)
    for number in range(_PROCESSES):
        for turn in range(10):
            assert await ids(store, f"p{number}-{turn}") == ["i", "o", *own(f"p{number}", turn)]
    async with store.reading() as db:
        assert await db.scalar(select(func.count()).select_from(all_threads)) == _PROCESSES * 10
        assert (await item_lists.ranges(db, item_lists.ListPosition("first", 7)))[0].end == 7


async def test_conversation_has_one_holder_across_processes(store, store_url):
    async with store.writing() as db:
        await conversations.create(db, "t", "conv", {}, [], 0)
    run(store_url, "hold", "conv", 15)
    async with store.reading() as db:
        found = await conversations.find(db, "t", "conv")
        stored_items = await item_lists.read(db, [found.items])
    assert len(stored_items) == _PROCESSES * 15 * 2
    pairs = [stored_items[place : place + 2] for place in range(0, len(stored_items), 2)]
    assert all(a["name"] == b["name"] and (a["word"], b["word"]) == ("in", "out") for a, b in pairs)
    assert len([*groupby(stored_items, lambda one: one["name"])]) > 1


async def test_job_is_taken_by_one_process(store, store_url):
    ids = {f"job{number}" for number in range(60)}
    async with store.writing() as db:
        for id in ids:
            await responses.begin(db, [NewResponse("t", {"id": id, "output": []}, [], 0, None)])
            await jobs.begin(db, [NewJob("t", id, b"", "dead", -2, 1)])
    job_lists = [[job for some in one for job in some] for one in run(store_url, "take")]
    assert sorted(job for one in job_lists for job in one) == sorted(ids)
    async with store.writing() as db:
        for number, mine in enumerate(job_lists):
            assert {*await jobs.renew_leases(db, f"p{number}", 0, 1)} < {*mine} or not mine


async def test_migration_runs_in_several_processes_at_once(store_url):
    """All processes open a new database at once, and each can save."""
    started = [start(store_url, "save", f"p{number}") for number in range(4)]
    lines = [json.loads(process.stdout.readline()) for process in started]
    for process in started:
        process.kill()
        process.communicate()
    assert lines == [f"p{number}-0" for number in range(4)]


@pytest.mark.parametrize("after", [0, 0.003, 0.007, 0.011])
async def test_store_keeps_acknowledged_writes_after_a_kill(after, store_url):
    process = start(store_url, "save", "p")
    lines = [json.loads(process.stdout.readline()) for _ in range(20)]
    await idle(after)
    process.send_signal(signal.SIGKILL)
    lines += map(json.loads, filter(lambda line: line.endswith("\n"), process.communicate()[0].splitlines(True)))
    database = Database(store_url)
    for number, id in enumerate(lines):
        assert await ids(database, id) == [item for turn in range(number + 1) for item in own("p", turn)]
    async with database.writing() as db:
        kept = await db.scalar(select(func.count()).select_from(all_responses))
        assert kept in (len(lines), len(lines) + 1)
        assert await db.scalar(select(func.count()).select_from(items)) == kept * 5
        assert [*await db.scalars(select(all_threads.c.length))] == [kept * 5]
    await database.close()


async def test_store_goes_on_after_a_process_was_killed(store, store_url):
    """A killed process leaves no lock."""
    process = start(store_url, "save", "p")
    last = [json.loads(process.stdout.readline()) for _ in range(5)][-1]
    process.kill()
    process.communicate()
    async with asyncio.timeout(DEADLINE), store.writing() as db:
        behind = (await responses.find(db, "t", last)).behind
        await responses.save(db, "t", {"id": "next", "output": []}, [{"id": "n"}], behind, 0)
    assert (await ids(store, "next"))[-1] == "n"
