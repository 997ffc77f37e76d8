"""Test the way of usage to the store: nothing is counted twice, and a failed write is repeated."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from gateway.errors import StoreFailed
from gateway.events import Usage
from gateway.server.observability import usage
from gateway.server.observability.request_record import RequestRecord
from gateway.server.observability.usage import UsageKeeper
from gateway.store import Database, usage_sums
from gateway.store.records import UsageSums
from support.wait import until

DAY = 86_400


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Write without a pause."""
    monkeypatch.setattr(usage, "_EVERY", 0)
    monkeypatch.setattr(usage, "_AGAIN", 0)


class Writes:
    """A store that notes what is written.  failure: the error of each write; gate: a write ends when it is open."""

    def __init__(self):
        self.written, self.attempts, self.failure = [], 0, None
        self.gate = asyncio.Event()
        self.gate.set()

    @asynccontextmanager
    async def writing(self):
        self.attempts += 1
        batch = []
        yield batch
        await self.gate.wait()
        if self.failure:
            raise self.failure
        self.written += batch

    @property
    def requests(self):
        """The number of written requests."""
        return sum(sums.requests for usage in self.written for sums in usage.values())


@pytest.fixture
def store(monkeypatch):
    async def add(batch, usage):
        batch.append(usage)

    monkeypatch.setattr(usage_sums, "add", add)
    return Writes()


def down():
    error = StoreFailed("The store is down.")
    error.__cause__ = OSError("no route to host")
    return error


def finish(keeper, key="ci", model="m", backend="up", seconds=0.5, usage=(10, 5, 4)):
    """Count a request."""
    record = RequestRecord("req_1", "POST", "/v1/responses", lambda _: None)
    record.key, record.model, record.backend = key, model, backend
    record.arrived, record.ended, record.usage = 100.0, 100.0 + seconds, lambda: Usage(*usage)
    keeper.count(record)


async def test_usage_is_summed_by_key_model_and_day(store):
    now = 20 * DAY
    keeper = UsageKeeper(lambda: now)
    async with keeper.writing_to(store):
        finish(keeper)
        finish(keeper, seconds=1, usage=(1, 2, 0))
        finish(keeper, key="")
        finish(keeper, model="n")
        now += DAY
        finish(keeper)
        finish(keeper, backend="")
    one = UsageSums(1, 10, 4, 5, 500)
    assert store.written == [
        {
            (20, "ci", "m"): UsageSums(2, 11, 4, 7, 1500),
            (20, "", "m"): one,
            (20, "ci", "n"): one,
            (21, "ci", "m"): one,
        }
    ]


async def test_usage_is_written_while_the_gateway_runs(store):
    keeper = UsageKeeper()
    async with keeper.writing_to(store):
        for count in (1, 2):
            finish(keeper)
            await until(lambda: store.requests, count)
        await keeper.flush()
    assert store.attempts == 2, "nothing is written without a request"


async def test_usage_is_not_kept_without_a_store(store):
    keeper = UsageKeeper()
    finish(keeper)
    async with keeper.writing_to(None):
        finish(keeper)
        await keeper.flush()
    async with keeper.writing_to(store):
        pass
    assert store.attempts == 0


async def test_usage_waits_for_a_failing_store(store, caplog):
    keeper, store.failure = UsageKeeper(lambda: 0.0), down()
    async with keeper.writing_to(store):
        finish(keeper)
        await until(lambda: store.attempts > 2)
        finish(keeper)
        finish(keeper, key="other")
        await keeper.flush()
        store.failure = None
        await until(lambda: store.requests, 3)
    (written,) = store.written
    assert written == {(0, "ci", "m"): UsageSums(2, 20, 8, 10, 1000), (0, "other", "m"): UsageSums(1, 10, 4, 5, 500)}
    assert caplog.messages == ["usage cannot be written, it waits for the store: no route to host"]


@pytest.mark.parametrize(("failure", "written"), [(None, [1, 2]), (down(), [3])])
async def test_usage_that_comes_during_a_write_is_in_the_next_one(store, failure, written):
    keeper, store.failure = UsageKeeper(lambda: 0.0), failure
    store.gate.clear()
    async with keeper.writing_to(store):
        finish(keeper)
        first = asyncio.create_task(keeper.flush())
        await until(lambda: store.attempts, 1)
        finish(keeper)
        finish(keeper)
        store.gate.set()
        await first
        store.failure = None
    assert [usage[0, "ci", "m"].requests for usage in store.written] == written


async def test_each_failure_of_the_store_is_reported_once(store, caplog):
    keeper = UsageKeeper()
    async with keeper.writing_to(store):
        for failure in (down(), None, StoreFailed("The store is overloaded.")):
            store.failure = failure
            finish(keeper)
            await keeper.flush()
            await keeper.flush()
        store.failure = None
    assert store.requests == 3
    assert [message.rpartition(": ")[2] for message in caplog.messages] == [
        "no route to host",
        "The store is overloaded.",
    ]


async def test_usage_that_no_store_takes_is_reported_at_the_end(store, caplog):
    keeper, store.failure = UsageKeeper(), down()
    async with keeper.writing_to(store):
        finish(keeper)
        finish(keeper, key="other")
    assert caplog.messages[-1] == "the usage of 2 requests is lost: the store failed until the end"
    store.failure = None
    async with keeper.writing_to(store):
        pass
    assert store.requests == 0


async def test_usage_does_not_delay_the_end_for_long(store, caplog, monkeypatch):
    monkeypatch.setattr(usage, "_LAST", 0.01)
    keeper = UsageKeeper()
    store.gate.clear()
    async with keeper.writing_to(store):
        finish(keeper)
        await until(lambda: store.attempts, 1)
    assert caplog.messages == ["the usage of 1 requests is lost: the store failed until the end"]


async def test_usage_that_a_store_refuses_is_dropped(store, caplog):
    keeper, store.failure = UsageKeeper(), OverflowError("too large")
    async with keeper.writing_to(store):
        finish(keeper)
        await keeper.flush()
        store.failure = None
        finish(keeper)
    assert store.requests == 1
    assert caplog.messages == ["usage is lost: the store refuses it"]


async def test_usage_in_memory_is_bounded(store, caplog, monkeypatch):
    monkeypatch.setattr(usage, "_MAX", 2)
    keeper, store.failure = UsageKeeper(), down()
    async with keeper.writing_to(store):
        for key in "abcda":
            finish(keeper, key=key)
        store.failure = None
    assert {key for _, key, _ in store.written[0]} == {"a", "b"} and store.requests == 3
    assert caplog.messages == ["usage is lost: 2 sums of keys, models and days wait for the store"]


async def test_usage_goes_to_the_store_of_the_newest_configuration(store):
    keeper, newer = UsageKeeper(), Writes()
    async with AsyncExitStack() as old, AsyncExitStack() as new:
        await old.enter_async_context(keeper.writing_to(store))
        finish(keeper)
        await new.enter_async_context(keeper.writing_to(newer))
        finish(keeper)
        await until(lambda: newer.requests, 2)
        await old.aclose()
        finish(keeper)
    assert (store.requests, newer.requests) == (0, 3)


async def test_usage_before_a_configuration_without_a_store_is_written(store):
    keeper = UsageKeeper()
    async with AsyncExitStack() as old, AsyncExitStack() as new:
        await old.enter_async_context(keeper.writing_to(store))
        finish(keeper)
        await new.enter_async_context(keeper.writing_to(None))
        finish(keeper)
        await old.aclose()
    assert store.requests == 1


async def test_usage_goes_on_after_a_configuration_that_cannot_start(store):
    keeper = UsageKeeper()
    async with keeper.writing_to(store):
        async with keeper.writing_to(Writes()):
            pass
        finish(keeper)
    assert store.requests == 1


async def test_usage_of_several_processes_adds_up(store_url):
    stores = [Database(store_url) for _ in range(3)]
    async with AsyncExitStack() as stack:
        keepers = [UsageKeeper(lambda: 0.0) for _ in stores]
        for keeper, store in zip(keepers, stores, strict=True):
            stack.push_async_callback(store.close)
            await stack.enter_async_context(keeper.writing_to(store))
        for _ in range(5):
            for keeper in keepers:
                finish(keeper)
            await asyncio.gather(*(keeper.flush() for keeper in keepers))
        async with stores[0].reading() as db:
            assert await usage_sums.read(db, 0, 0, ["key"]) == [(("ci",), UsageSums(15, 150, 60, 75, 7500))]
