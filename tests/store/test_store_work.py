"""Check that store statements use indexes and that their number does not grow."""

from contextlib import contextmanager

import pytest
from sqlalchemy import event

from gateway.store import (
    chat_completions,
    conversations,
    event_logs,
    expiry,
    files,
    idempotency_keys,
    item_lists,
    jobs,
    reasoning_memory,
    responses,
)
from gateway.store.records import CompletionFilter, NewJob, NewResponse
from support.statements import noted, plan

CHAIN = 50  # responses in one thread


def response(id):
    return {"id": id, "output": [{"id": f"{id}-out"}]}


async def fill(db, chain=CHAIN):
    behind = None
    for number in range(chain):
        await responses.save(db, "t", response(f"r{number}"), [{"id": f"r{number}-in"}], behind, number)
        behind = item_lists.ListPosition("r0", 2 * number + 2)
        made = {"id": f"c{number}", "created": number, "model": "m", "metadata": {"a": "b"}}
        await chat_completions.save(db, "t", made, [{"role": "user"}], 0)
    await conversations.create(db, "t", "conv", {}, [{"id": "i"}], 0)
    await responses.save(db, "t", response("branch"), [], item_lists.ListPosition("r0", 4), 0)
    for number in range(CHAIN):
        await responses.begin(db, [NewResponse("t", response(f"j{number}"), [{"id": f"j{number}-in"}], 0, None)])
        await jobs.begin(db, [NewJob("t", f"j{number}", b"", "a", number, 1)])
        await event_logs.append(db, [(f"j{number}", event_logs.LogRow(at, at, b"abc")) for at in range(9)])


async def extend(db, last=CHAIN - 1):
    found = await responses.find(db, "t", f"r{last}")
    await responses.save(db, "t", response("new"), [{"id": "new-in"}], found.behind, 1)


async def branch(db):
    await extend(db, 3)


async def page(db, last=CHAIN - 1, newest_first=True):
    ranges = await responses.effective_input(db, await responses.find(db, "t", f"r{last}"))
    behind = await item_lists.find(db, "t", ranges, "r3-in", newest_first=newest_first)
    assert len(await item_lists.page(db, ranges, 3, newest_first=newest_first, behind=behind)) == 3


async def page_from_the_oldest(db, last=CHAIN - 1):
    await page(db, last, newest_first=False)


async def page_of_a_branch(db):
    ranges = await responses.effective_input(db, await responses.find(db, "t", "branch"))
    assert len(await item_lists.page(db, ranges, 3, newest_first=True)) == 3


async def page_of_completions(db):
    for newest_first in (False, True):
        behind = await chat_completions.find(db, "t", "c20")
        assert (
            len(await chat_completions.page(db, "t", CompletionFilter(), 3, newest_first=newest_first, behind=behind))
            == 3
        )
        assert (
            len(await chat_completions.page(db, "t", CompletionFilter("m", {"a": "b"}), 3, newest_first=newest_first))
            == 3
        )


async def describe(db):
    await chat_completions.set_metadata(db, await chat_completions.find(db, "t", "c20"), {"c": "d"})


async def items(db):
    await item_lists.by_id(db, "t", ["r3-in", "r4-in"])


async def converse(db):
    found = await conversations.find(db, "t", "conv")
    await conversations.acquire(db, "conv", "a", 1, 2)
    await conversations.append(db, found, [{"id": "j"}], 1)
    await conversations.set_metadata(db, "conv", {})
    await item_lists.remove(db, item_lists.ListPosition("conv", 0))
    await conversations.release(db, "conv", "a")
    await conversations.remove(db, "conv")


async def delete(db):
    await responses.remove(db, await responses.find(db, "t", "r3"))
    await chat_completions.remove(db, "c20")


async def repeat(db):
    await idempotency_keys.begin(db, "t", "k", "d", "a", 0)
    await idempotency_keys.renew(db, "t", "k", "a", 0)
    await idempotency_keys.finish(db, "t", "k", "a", idempotency_keys.StoredAnswer(200, "", b""))


async def remember(db):
    await reasoning_memory.save(db, "t", [("a", "b")], 0)
    await reasoning_memory.find(db, "t", ["a"])
    await reasoning_memory.touch(db, "t", ["a"], 9999)


async def hold(db):
    await jobs.renew_leases(db, "a", 1, 2)
    await jobs.renew_leases(db, "a", 1, 2, ["j3", "j4"])
    assert await jobs.lock(db, "a", ["j3", "j4"]) == ["j3", "j4"]
    await jobs.extend_wanted_until(db, ["j3", "j4"], 9)
    assert await jobs.cancel(db, "t", "j3")
    assert await jobs.job_state(db, "j3")


async def take(db):
    assert await jobs.has_due(db, 20)
    assert len(await jobs.claim(db, "b", 20, 2, 3)) == 3


async def finish(db):
    assert await responses.finish(db, "t", response("j3"), await conversations.find(db, "t", "conv"), 1)
    assert await responses.finish(db, "t", response("j4"), None, 1)
    assert await jobs.end(db, ["j3"], "a")


async def follow(db):
    assert len(await event_logs.read(db, "j3", 4, 3)) == 3
    assert await event_logs.newest_event(db, "j3", 0)
    assert await event_logs.newest_event(db, "j3", 0) == 8


async def put_away(db):
    await event_logs.expire(db, "j3", 9)
    await event_logs.trim(db, "j4", 9)
    await event_logs._replace(db, [event_logs._PackedLog("j4", [(at, at) for at in (6, 7, 8)], b"")])
    await responses.find_locked(db, "j5")
    await responses.remove(db, await responses.find(db, "t", "j5"))


async def sweep_away(db):
    for kind in (expiry._THREADS, expiry._THOUGHTS, expiry._KEYS, expiry._EVENTS):
        await expiry._unused(db, kind, 1)


def walks(plan):
    """Return the full scans of a plan, except those of lists that the statement itself makes."""
    lines = [line.strip() for line in plan.splitlines()]
    whole = [line for line in lines if line.startswith("SCAN") or "Seq Scan" in line]
    made = ("line", "CONSTANT", "LIST", "older", "Values", "locked", "listed", "subquery")
    return [line for line in whole if not any(word in line for word in made)]


async def find_files(db):
    assert await files.find_all(db, "t", ["file-1", "file-2"], 0) == {}


JOBS = [
    extend, branch, page, page_from_the_oldest, page_of_a_branch, page_of_completions, describe, items, converse, delete,
    repeat, remember, hold, take, finish, follow, put_away, sweep_away, find_files,
]  # fmt: skip


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
async def test_store_statements_use_an_index(store, job):
    async with store.writing() as db:
        await fill(db)
    with noted(store) as sent:
        async with store.writing() as db:
            await job(db)
    statements = [one for one in sent if one[0].startswith(("SELECT", "UPDATE", "DELETE", "WITH"))]
    assert statements
    async with store.writing() as db:
        for statement, parameters in statements:
            how = await plan(db, statement, parameters)
            assert not walks(how), f"{statement}\n{how}"
            if "LIMIT" in statement:
                assert "TEMP B-TREE" not in how and "Sort" not in how, f"{statement}\n{how}"


@contextmanager
def executed(database):
    """Yield a list that collects the executed statement objects."""
    found, engine = [], database._engines.writes.sync_engine

    def note(connection, statement, *_):
        found.append(statement)

    event.listen(engine, "before_execute", note)
    yield found
    event.remove(engine, "before_execute", note)


BUILT = [page_of_completions, take, sweep_away]  # anew each time, as they depend on what is asked for, or are seldom


@pytest.mark.parametrize("job", [job for job in JOBS if job not in BUILT], ids=lambda job: job.__name__)
async def test_store_statements_are_built_once(store, job):
    """Building and caching a statement takes several times as long as executing it."""
    async with store.writing() as db:
        await fill(db)
        turns = []
        for _ in range(2):
            async with db.begin_nested() as undone:
                with executed(store) as found:
                    await job(db)
                await undone.rollback()
            turns.append(found)
        assert turns[0] and all(one is other for one, other in zip(*turns, strict=True))


@pytest.mark.parametrize("job", [extend, page, page_from_the_oldest], ids=lambda job: job.__name__)
async def test_store_statement_count_does_not_grow_with_the_chain(store, job):
    counts = set()
    async with store.writing() as db:
        for chain in (10, CHAIN):
            async with db.begin_nested() as undone:
                await fill(db, chain)
                with noted(store) as sent:
                    await job(db, chain - 1)
                await undone.rollback()
            counts.add(len(sent))
    assert len(counts) == 1


async def test_store_plan_check_finds_full_scans(store):
    async with store.writing() as db:
        for statement in ("SELECT * FROM items WHERE body IS NULL", "DELETE FROM threads WHERE bytes = 0"):
            assert walks(await plan(db, statement, ()))
