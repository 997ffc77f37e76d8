"""Test the counter of usage in the store: how simultaneous requests share transactions, and their results."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text

from gateway.errors import StoreFailed
from gateway.server.limits import counters
from gateway.server.limits.counters import StoreCounter
from gateway.store import Database
from gateway.store.records import UsageSlot
from gateway.store.tables import uses
from support.sampling import examples

ONE, OTHER = UsageSlot("k", 0, 120), UsageSlot("l", 0, 120)


class Held:
    """A store whose transactions wait for `go` before they end; begun: their number."""

    def __init__(self, store):
        self._store, self.begun = store, 0
        self.go, self._news = asyncio.Event(), asyncio.Event()
        self.ended = lambda: None

    @asynccontextmanager
    async def writing(self):
        self.begun += 1
        self._news.set()
        async with self._store.writing() as db:
            yield db
            await self.go.wait()
        self.ended()

    async def at_work(self):
        await self._news.wait()


@pytest.fixture
def held(store):
    return Held(store)


@pytest.fixture
async def counter(held):
    one = StoreCounter(held)
    yield one
    await one.close()


def up_to(most, slot=ONE):
    return lambda counts: counts[slot] <= most


def take(counter, amount=1, most=100):
    return asyncio.create_task(counter.take({ONE: amount}, up_to(most)))


def add(counter, amount):
    return asyncio.create_task(counter.add({ONE: amount}))


async def stored(store):
    async with store.reading() as db:
        return {key: amount for key, amount in await db.execute(select(uses.c.key, uses.c.amount))}


async def start_transaction(held, counter):
    """Begin a transaction that runs until `held.go`; return the task of its request."""
    first = take(counter)
    await held.at_work()
    return first


async def run(held, *tasks):
    """Let transactions end; return the result of each task."""
    await asyncio.sleep(0)  # they begin
    held.go.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def cancel(task):
    await asyncio.sleep(0)  # it begins
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_limit_batch_takes_requests_that_arrive_during_a_transaction(held, counter, store):
    first = await start_transaction(held, counter)
    rest = [take(counter) for _ in range(10)]
    assert await run(held, first, *rest) == [{ONE: count} for count in range(1, 12)]
    assert held.begun == 2 and await stored(store) == {"k": 11}


async def test_limit_batch_admits_some_requests_and_refuses_others(held, counter, store):
    first = await start_transaction(held, counter)
    calls = [take(counter, 5, 8), take(counter, 5, 8), take(counter, 2, 8), add(counter, 40), take(counter, 1, 48)]
    results = await run(held, first, *calls)
    assert results == [{ONE: 1}, {ONE: 6}, {ONE: 11}, {ONE: 8}, None, {ONE: 49}]
    assert held.begun == 2 and await stored(store) == {"k": 48}


async def test_limit_batch_refusal_leaves_other_counts_unchanged(held, counter, store):
    first = await start_transaction(held, counter)
    refused = asyncio.create_task(counter.take({OTHER: 3, ONE: 1}, up_to(1)))
    taken = asyncio.create_task(counter.take({OTHER: 2, ONE: 0}, up_to(1)))
    assert await run(held, first, refused, taken) == [{ONE: 1}, {OTHER: 3, ONE: 2}, {OTHER: 2, ONE: 1}]
    assert await stored(store) == {"k": 1, "l": 2}


async def test_limit_batch_writes_nothing_if_all_requests_are_refused(held, counter, store):
    held.go.set()
    assert await counter.take({ONE: 3}, up_to(2)) == {ONE: 3}
    assert await stored(store) == {}


async def test_limit_batch_has_a_maximum_size(held, counter, store, monkeypatch):
    monkeypatch.setattr(counters, "_MAX", 4)
    first = await start_transaction(held, counter)
    rest = [take(counter) for _ in range(10)]
    assert (await run(held, first, *rest))[-1] == {ONE: 11}
    assert held.begun == 1 + 3


# Failures


async def test_limit_batch_failure_reaches_only_its_own_requests(held, counter, store):
    class Broken(Exception):
        pass

    def broken(_):
        raise Broken

    first = await start_transaction(held, counter)
    in_it = [take(counter), asyncio.create_task(counter.take({ONE: 1}, broken)), add(counter, 5)]
    results = await run(held, first, *in_it)
    assert results[0] == {ONE: 1} and all(type(one) is Broken for one in results[1:]) and len(results) == 4
    assert await counter.take({ONE: 1}, up_to(2)) == {ONE: 2} and await stored(store) == {"k": 2}


async def test_limit_batch_timeout_raises_store_failed(held, counter, store, monkeypatch):
    async with store.reading():
        pass  # it is all there
    monkeypatch.setattr(counters, "_LONGEST", 0.1)
    first = await start_transaction(held, counter)
    with pytest.raises(StoreFailed):
        await first
    held.go.set()
    monkeypatch.setattr(counters, "_LONGEST", 5.0)
    assert await counter.take({ONE: 1}, up_to(2)) == {ONE: 1}


# Cancelled requests


async def test_limit_batch_skips_a_request_cancelled_before_it(held, counter, store):
    first = await start_transaction(held, counter)
    leaving, staying = take(counter, 50), take(counter)
    await cancel(leaving)
    assert await run(held, first, staying) == [{ONE: 1}, {ONE: 2}]
    assert held.begun == 2 and await stored(store) == {"k": 2}


async def test_limit_batch_of_cancelled_requests_is_not_run(held, counter, store):
    first = await start_transaction(held, counter)
    await cancel(take(counter, 50))
    assert await run(held, first) == [{ONE: 1}]
    await counter.close()
    assert held.begun == 1


async def test_limit_batch_refunds_a_request_cancelled_during_it(held, counter, store):
    first = await start_transaction(held, counter)
    next_one = take(counter)
    await cancel(first)
    assert await run(held, next_one) == [{ONE: 2}]  # the first counts until it is given back
    await counter.close()
    assert held.begun == 2 and await stored(store) == {"k": 1}


async def test_limit_batch_refunds_nothing_for_a_refused_cancelled_request(held, counter, store):
    refused = take(counter, 5, 4)
    await held.at_work()
    await cancel(refused)
    await run(held)
    await counter.close()
    assert held.begun == 1 and await stored(store) == {}


async def test_limit_batch_refunds_a_request_cancelled_right_after_it(held, counter, store):
    first = await start_transaction(held, counter)
    held.ended = lambda: asyncio.get_running_loop().call_soon(first.cancel)
    held.go.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    held.ended = lambda: None
    await counter.close()
    assert held.begun == 2 and await stored(store) == {"k": 0}


@pytest.mark.parametrize("begun", [True, False])
async def test_limit_batch_adds_an_amount_whose_caller_was_cancelled(held, counter, store, begun):
    first = None if begun else await start_transaction(held, counter)
    adding = add(counter, 7)
    if begun:
        await held.at_work()
    await cancel(adding)
    await run(held, *([first] if first else []))
    await counter.close()
    assert await stored(store) == {"k": 7 + (not begun)}


# Close


async def test_limit_batch_close_runs_waiting_requests(held, counter, store):
    first = await start_transaction(held, counter)
    rest = [take(counter), add(counter, 5)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(counter.close())
    assert await run(held, first, *rest) == [{ONE: 1}, {ONE: 2}, None]
    await closing
    assert await stored(store) == {"k": 7}


async def test_limit_batch_close_fails_requests_at_its_timeout(held, counter, store, monkeypatch):
    first = await start_transaction(held, counter)
    rest = [take(counter), add(counter, 5)]
    await cancel(take(counter))
    monkeypatch.setattr(counters, "_LONGEST", 0.1)
    await counter.close()
    results = await asyncio.gather(first, *rest, return_exceptions=True)
    assert [type(one) for one in results] == [StoreFailed] * 3
    assert await stored(store) == {} and held.begun == 1


# Any order

AMOUNTS = st.dictionaries(st.integers(0, 2), st.integers(0, 5), min_size=1)
REQUESTS = st.tuples(AMOUNTS, st.none() | st.integers(0, 25), st.integers(0, 2))  # of what, up to how much, and pauses


class Trial:
    """Requests to a counter, with slots of their own."""

    _numbers = itertools.count()

    def __init__(self, store, requests):
        self._store, self._requests = store, requests
        number = next(self._numbers)
        self.slots = [UsageSlot(f"{number}/{index}", 0, 120) for index in range(3)]

    def amounts(self, request):
        return {self.slots[index]: amount for index, amount in request[0].items()}

    async def pause(self, times):
        """Pause for about as long as so many transactions."""
        for _ in range(times):
            async with self._store.reading() as db:
                await db.execute(text("SELECT 1"))

    async def run(self, leaves=()):
        """Return the result of each request, None for `add`; leaves: which of them are cancelled."""
        counter, tasks = StoreCounter(self._store), []
        for one in self._requests:
            amounts, most = self.amounts(one), one[1]
            call = (
                counter.add(amounts)
                if most is None
                else counter.take(amounts, lambda counts, most=most: sum(counts.values()) <= most)
            )
            tasks.append(asyncio.create_task(call))
            await self.pause(one[2])
        await asyncio.sleep(0)
        for task, leave in zip(tasks, leaves, strict=False):
            if leave:
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await counter.close()
        return results

    async def counts(self):
        found = await stored(self._store)
        return [found.get(slot.key, 0) for slot in self.slots]

    def one_by_one(self):
        """Return the results and the counts of a counter that runs one request after the other."""
        now, results = dict.fromkeys(self.slots, 0), []
        for one in self._requests:
            counts = {slot: now[slot] + amount for slot, amount in self.amounts(one).items()}
            if one[1] is None or sum(counts.values()) <= one[1]:
                now |= counts
            results.append(None if one[1] is None else counts)
        return results, [*now.values()]

    def sums(self, results):
        """Return the amounts of each `add`, and of each `take` that was admitted and not cancelled."""
        used = dict.fromkeys(self.slots, 0)
        for one, counts in zip(self._requests, results, strict=True):
            if one[1] is None or (isinstance(counts, dict) and sum(counts.values()) <= one[1]):
                for slot, amount in self.amounts(one).items():
                    used[slot] += amount
        return [*used.values()]


def play_all(url, strategy, check, count):
    """Check all examples with one store."""
    with asyncio.Runner() as runner:
        store = Database(url)

        @settings(max_examples=examples(count), deadline=None)
        @given(strategy)
        def play(example):
            runner.run(check(store, example))

        try:
            play()
        finally:
            runner.run(store.close())


def test_limit_batch_equals_one_transaction_per_request(store_url):
    async def check(store, requests):
        trial = Trial(store, requests)
        results, counts = trial.one_by_one()
        assert await trial.run() == results
        assert await trial.counts() == counts

    play_all(store_url, st.lists(REQUESTS, max_size=20), check, 60)


def test_limit_batch_keeps_nothing_of_cancelled_requests(store_url):
    async def check(store, requests):
        trial = Trial(store, [one for one, _ in requests])
        results = await trial.run([leave for _, leave in requests])
        assert await trial.counts() == trial.sums(results)

    play_all(store_url, st.lists(st.tuples(REQUESTS, st.booleans()), max_size=20), check, 60)
