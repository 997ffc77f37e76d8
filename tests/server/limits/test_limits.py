"""Test usage limits of keys and models: the arithmetic, what is counted where, and failures of the counter."""

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from gateway.config import ApiKey, ModelSettings
from gateway.config.limits import KeyLimitSettings, RateLimitSettings
from gateway.errors import RateLimited, StoreFailed
from gateway.request import Request, Tool
from gateway.server.limits import RateLimiter, counters, estimate_tokens
from gateway.server.limits.rate_windows import RateLimit
from gateway.store import Database, usage_sums
from gateway.store.expiry import expire
from gateway.store.records import UsageSlot
from gateway.store.tables import uses as table
from support.app import settings

DAY = 86_400
NOON = 1_800_000_000 // DAY * DAY + DAY / 2  # a minute, and the half of a day, begins
FREE = ModelSettings()


def model(**limits):
    return ModelSettings(limits=RateLimitSettings(**limits))


def key(name="k", group=None, **limits):
    return ApiKey(name=name, key="secret-secret-secret", group=group, limits=KeyLimitSettings(**limits))


class Clock:
    def __init__(self):
        self.now = NOON

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def limits(counted, clock):
    async with limits_of(counted, clock) as one:
        yield one


@asynccontextmanager
async def limits_of(sections, clock=time.time):
    config = settings("http://127.0.0.1:9", **sections)
    store = Database(config.store.url.get_secret_value())
    one = RateLimiter(config, store, clock)
    yield one
    await one.close()
    await store.close()


async def ask(limits, who=None, of=FREE, tokens=0, name="m"):
    return await limits.acquire(who, name, of, lambda: tokens)


async def refusal_of(limits, *arguments, **more):
    with pytest.raises(RateLimited) as error:
        await ask(limits, *arguments, **more)
    return error.value


async def end(grant, used=None):
    """End an admitted request; used: its tokens."""
    if used is not None:
        grant.used = lambda: used
    async with grant:
        pass


def counts(grant):
    """Return what is left, by unit."""
    return {
        unit: int(grant.headers[f"x-ratelimit-remaining-{unit}"])
        for unit in ("requests", "tokens")
        if f"x-ratelimit-remaining-{unit}" in grant.headers
    }


# Arithmetic

NUMBERS = st.integers(0, 1000)
LIMITS = st.builds(
    RateLimit,
    st.just("it"),
    st.just("it"),
    st.just("tokens"),
    st.integers(1, 1000),
    st.sampled_from(["minute", "day", "month"]),
)


@given(LIMITS, NUMBERS, NUMBERS, NUMBERS, st.floats(0, 3 * DAY))
def test_limit_admits_a_request_after_its_wait(limit, taken, before, cost, after):
    now = NOON + after
    counted = dict(zip(limit.slots(now), (taken + cost, before), strict=False))
    standing = limit.state_at(counted, cost, now)
    if cost > limit.amount:
        assert standing.wait == inf and not standing.is_within
        return
    if standing.is_within:
        assert standing.left == limit.amount - standing.used - cost
        return
    assert 0 < standing.wait <= 2 * (limit.slot(now).until - limit.window(now)[1])
    later = now + standing.wait + 1e-3
    slots = limit.slots(later)
    counted[slots[0]] = counted.get(slots[0], cost) if slots[0] != limit.slot(now) else taken + cost
    if slots[0] != limit.slot(now):
        counted |= {slots[0]: cost, **({slots[1]: taken} if limit.is_sliding and slots[1] == limit.slot(now) else {})}
    assert limit.state_at({slot: counted.get(slot, 0) for slot in slots}, cost, later).is_within


@given(LIMITS, NUMBERS, NUMBERS, st.floats(0, 3 * DAY))
def test_limit_is_unused_after_its_reset(limit, taken, before, after):
    now = NOON + after
    standing = limit.state_at(dict(zip(limit.slots(now), (taken, before), strict=False)), 0, now)
    slots = limit.slots(now + standing.reset + 1e-3)
    counted = dict(zip(limit.slots(now), (taken, before), strict=False))
    assert limit.state_at({slot: counted.get(slot, 0) for slot in slots}, 0, now + standing.reset + 1e-3).used == 0


def test_limit_per_day_counts_days_in_utc():
    day = RateLimit("it", "it", "tokens", 10, "day")
    midnight = time.strptime("2026-11-22 UTC", "%Y-%m-%d %Z")
    assert time.gmtime(day.slot(NOON).start)[3:6] == (0, 0, 0)
    assert midnight[3:6] == (0, 0, 0) and day.slots(NOON) == [day.slot(NOON)]
    assert day.state_at({day.slot(NOON): 11}, 1, NOON).wait == DAY / 2


@pytest.mark.parametrize(
    ("day", "first", "end"),
    [
        ("2026-11-27T13:05:59", "2026-11-01", "2026-12-01"),
        ("2026-12-31T23:59:59", "2026-12-01", "2027-01-01"),
        ("2028-02-01T00:00:00", "2028-02-01", "2028-03-01"),
    ],
)
def test_limit_per_month_counts_calendar_months_in_utc(day, first, end):
    def unix(text):
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()

    month = RateLimit("it", "it", "tokens", 10, "month")
    at = unix(day)
    assert month.window(at) == (unix(first), unix(end)) and month.slots(at) == [month.slot(at)]
    assert month.slot(at).until > unix(end), "Redis and the sweep keep it until the month is over"
    assert month.state_at({month.slot(at): 11}, 1, at).wait == unix(end) - at


def test_limit_estimate_is_the_prompt_and_max_tokens_per_choice():
    messages = (
        {"role": "user", "content": "x" * 36},
        {"role": "user", "content": [{"type": "image_url", "url": "data:" + "x" * 999}]},
    )
    plain = Request(model="m", messages=messages)
    assert estimate_tokens(plain) == -(-(36 + len("user" * 2 + "image_url")) // 4)
    tool = Tool("f", {"name": "f", "strict": None, "parameters": {"maximum": 5}})
    assert estimate_tokens(Request(model="m", messages=messages, tools=(tool,), max_tokens=50, n=2)) == 15 + 2 * 50


# Admission


async def test_limits_ping_their_counter(limits):
    await limits.ping()


async def test_limit_counts_nothing_if_not_configured(limits):
    assert not limits.apply_to(key(), "m", FREE) and not (await ask(limits, key(), FREE)).headers


async def test_limit_of_requests_per_minute_slides(limits, clock):
    who = key(requests_per_minute=3)
    for left in (2, 1, 0):
        grant = await ask(limits, who)
        assert grant.headers == {
            "x-ratelimit-limit-requests": "3",
            "x-ratelimit-remaining-requests": str(left),
            "x-ratelimit-reset-requests": "120s",
        }
    error = await refusal_of(limits, who)
    assert error.problem.error() == {
        "message": "Rate limit reached for the key 'k': 3 requests per minute, used 3, requested 1. Try again in 80 s.",
        "type": "rate_limit_error",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    assert error.retry_after == "80" and error.headers["x-ratelimit-remaining-requests"] == "0"
    await ask(limits, key("another", requests_per_minute=3))
    clock.now += 79
    await refusal_of(limits, who)
    clock.now += 1
    assert counts(await ask(limits, who)) == {"requests": 0}
    await refusal_of(limits, who)
    clock.now += 120
    assert counts(await ask(limits, who)) == {"requests": 2}


async def test_limit_refunds_unused_tokens_to_their_window(limits, clock):
    who = key(tokens_per_minute=100)
    first = await ask(limits, who, tokens=80)
    assert (
        await refusal_of(limits, who, tokens=30)
    ).retry_after == "68"  # 20 of 60 seconds into the next minute: 80 × 7/8
    clock.now += 65  # the window of the first is the one before, and counts for 55 of 60 seconds
    await refusal_of(limits, who, tokens=30)
    await end(first, used=20)
    assert counts(await ask(limits, who, tokens=30)) == {"tokens": 100 - 19 - 30}


async def test_limit_counts_tokens_beyond_the_estimate_when_they_are_known(limits, clock):
    who = key(tokens_per_minute=100, tokens_per_day=1000)
    first = await ask(limits, who, tokens=10)
    clock.now += 600
    await end(first, used=500)
    error = await refusal_of(limits, who, tokens=1)
    assert "used 490, requested 1" in error.problem.message
    clock.now += 120
    assert counts(await ask(limits, who, tokens=1)) == {"tokens": 99}
    day = key(tokens_per_day=1000)
    assert counts(await ask(limits, day, tokens=1)) == {"tokens": 1000 - 500 - 2}


async def test_limit_keeps_the_estimate_without_usage_and_refunds_a_failure(limits):
    who = key(tokens_per_minute=100)
    await end(await ask(limits, who, tokens=40))
    with pytest.raises(StoreFailed):
        async with await ask(limits, who, tokens=60):
            raise StoreFailed("It is not there.")
    assert counts(await ask(limits, who, tokens=60)) == {"tokens": 0}


async def test_limit_per_day_resets_at_midnight(limits, clock):
    who = key(tokens_per_day=100)
    await ask(limits, who, tokens=100)
    error = await refusal_of(limits, who, tokens=1)
    assert error.retry_after == str(DAY // 2) and "tokens per day" in error.problem.message
    clock.now += DAY / 2 - 1
    await refusal_of(limits, who, tokens=1)
    clock.now += 1
    grant = await ask(limits, who, tokens=1)
    assert counts(grant) == {"tokens": 99} and grant.headers["x-ratelimit-reset-tokens"] == f"{DAY}s"


# Budgets

TEAM = {"auth": {"groups": {"team": {"tokens_per_day": 100, "tokens_per_month": 150}}}}
MONTH_END = "2027-02-01T00:00:00Z"


async def test_budget_of_a_month_ends_with_the_month(limits, clock):
    who = key(tokens_per_month=100)
    assert (await ask(limits, who, tokens=60)).headers["x-gateway-budgets"] == "month=40/100"
    clock.now += 2 * DAY
    error = await refusal_of(limits, who, tokens=50)
    assert error.problem.message == (
        "Rate limit reached for the key 'k': 100 tokens per month, used 60, requested 50."
        f" The month ends at {MONTH_END}. Try again in {error.retry_after} s."
    )
    assert error.headers["x-gateway-budgets"] == "month=40/100" and error.problem.code == "rate_limit_exceeded"
    clock.now += int(error.retry_after) - 1
    await refusal_of(limits, who, tokens=50)
    clock.now += 1
    assert (await ask(limits, who, tokens=50)).headers["x-gateway-budgets"] == "month=50/100"


async def test_budget_of_a_group_is_shared_by_its_keys(counted, clock):
    async with limits_of({**counted, **TEAM}, clock) as one:
        ann, bob = key("ann", "team", tokens_per_day=80), key("bob", "team")
        first = await ask(one, ann, tokens=50)
        assert first.headers["x-gateway-budgets"] == "day=30/80, group-day=50/100, group-month=100/150"
        assert first.headers["x-ratelimit-remaining-tokens"] == "30"
        await end(first, used=10)
        assert (await ask(one, bob, tokens=70)).headers["x-gateway-budgets"] == "group-day=20/100, group-month=70/150"
        error = await refusal_of(one, ann, tokens=30)
        assert "the group 'team': 100 tokens per day, used 80, requested 30. The day ends at" in error.problem.message
        clock.now += DAY
        await ask(one, bob, tokens=70)
        assert "the group 'team': 150 tokens per month" in (await refusal_of(one, bob, tokens=20)).problem.message
        assert not (await ask(one, key("eve"), tokens=1000)).headers


async def test_budget_of_a_group_that_was_removed_does_not_apply(limits):
    assert not limits.apply_to(key("ann", "gone"), "m", FREE) and not limits.apply_to(None, "m", FREE)
    grant = await ask(limits, key("ann", "gone", requests_per_minute=5), model(tokens_per_day=10), tokens=4)
    assert grant.headers["x-gateway-budgets"] == "model-day=6/10"


async def test_budget_header_is_left_out_without_a_budget(limits):
    assert "x-gateway-budgets" not in (await ask(limits, key(tokens_per_minute=5), tokens=4)).headers


# Several limits


async def test_limit_that_refuses_a_request_leaves_other_limits_unused(limits):
    who = key(requests_per_minute=5, tokens_per_minute=100)
    of = model(requests_per_minute=3, tokens_per_day=1000)
    for _ in range(3):
        grant = await ask(limits, who, of, tokens=10)
    assert counts(grant) == {"requests": 0, "tokens": 70}
    for _ in range(4):
        error = await refusal_of(limits, who, of, tokens=10)
    assert "the model 'm': 3 requests per minute" in error.problem.message
    assert counts(await ask(limits, who, tokens=10)) == {"requests": 1, "tokens": 60}
    assert counts(await ask(limits, None, model(tokens_per_day=1000), tokens=1)) == {"tokens": 969}


async def test_limit_that_changes_keeps_the_usage_so_far(limits):
    for _ in range(3):
        await ask(limits, key(requests_per_minute=3))
    await refusal_of(limits, key(requests_per_minute=3))
    assert counts(await ask(limits, key(requests_per_minute=5))) == {"requests": 1}


async def test_limit_refuses_a_request_above_it_without_retry_after(limits):
    who = key(requests_per_minute=1, tokens_per_minute=100)
    error = await refusal_of(limits, who, tokens=101)
    assert (
        error.problem.message
        == "The request may use 101 tokens, but the limit of the key 'k' is 100 tokens per minute. Send a smaller request."
    )
    assert error.retry_after is None
    await ask(limits, who, tokens=100)


async def test_limit_of_concurrent_requests_frees_a_slot_at_each_end(limits):
    who, of = key(concurrent=2, requests_per_minute=4), model(concurrent=1)
    first, second = await ask(limits, who), await ask(limits, who, of)
    error = await refusal_of(limits, key("another"), of)
    assert "the model 'm': 1 concurrent requests" in error.problem.message and error.retry_after == "1"
    assert "the key 'k'" in (await refusal_of(limits, who)).problem.message
    await end(first)
    third = await ask(limits, who)
    await end(second)
    await end(await ask(limits, who, of))
    await refusal_of(limits, who)  # its slot was free, and is taken again
    await end(third)
    await refusal_of(limits, who)
    assert not limits._places._taken


async def test_limit_of_concurrent_requests_is_divided_among_workers(clock):
    async with limits_of({"server": {"workers": 3}}, clock) as one:
        for most in (1, 3, 7):
            who = key(concurrent=most)
            grants = [await ask(one, who) for _ in range(max(1, most // 3))]
            await refusal_of(one, who)
            for grant in grants:
                await end(grant)


async def test_limit_admits_exactly_its_amount_of_simultaneous_requests(limits):
    async def one(number):
        try:
            await ask(limits, key(requests_per_minute=20), model(tokens_per_minute=1000), tokens=10)
        except RateLimited:
            return False
        return True

    assert sum(await asyncio.gather(*map(one, range(60)))) == 20
    assert counts(await ask(limits, None, model(tokens_per_minute=1000), tokens=1)) == {"tokens": 799}


async def test_limit_of_tokens_ignores_a_request_without_tokens(limits):
    who = key(tokens_per_minute=100, requests_per_minute=5)
    await end(await ask(limits, who, tokens=100), used=200)
    await refusal_of(limits, who, tokens=1)
    assert counts(await ask(limits, who)) == {"requests": 3}
    assert not (await ask(limits, key(tokens_per_minute=100))).headers


# Refusals without the counter


class CallCounter:
    """A counter of usage that counts the calls of `take`."""

    def __init__(self, counter):
        self._counter, self.times = counter, 0

    async def take(self, *arguments):
        self.times += 1
        return await self._counter.take(*arguments)

    async def add(self, amounts):
        await self._counter.add(amounts)

    async def close(self):
        await self._counter.close()


async def test_limit_refuses_a_known_excess_without_asking_the_counter(limits, clock):
    limits._counter = calls = CallCounter(limits._counter)
    who = key(tokens_per_minute=100)
    first = await ask(limits, who, tokens=90)
    for _ in range(10):
        assert (await refusal_of(limits, who, tokens=20)).retry_after == "67"
    assert calls.times == 2
    assert (await refusal_of(limits, who, tokens=95)).retry_after == "117"  # more than what was refusal_of
    assert calls.times == 2
    await ask(limits, who, tokens=5)  # less
    assert calls.times == 3
    clock.now += 1  # others may have given something back
    await refusal_of(limits, who, tokens=20)
    assert calls.times == 4
    await end(first, used=50)
    await ask(limits, who, tokens=20)
    assert calls.times == 5


async def test_limit_counts_again_if_the_clock_was_set_back_after_a_refusal(limits, clock):
    who = key(requests_per_minute=1)
    clock.now += 3600
    await ask(limits, who)
    await refusal_of(limits, who)
    clock.now -= 3600
    assert counts(await ask(limits, who)) == {"requests": 0}


# Failures


async def test_limit_counter_failure_admits_all_and_logs_once(caplog, tmp_path):
    store = {"url": f"sqlite:///{tmp_path}/no/such/folder.db"}
    for sections in ({"store": store}, {"limits": {"url": "redis://127.0.0.1:1/0"}}):
        async with limits_of(sections) as one:
            caplog.clear()
            who = key(requests_per_minute=1, tokens_per_minute=1)
            for _ in range(5):
                grant = await ask(one, who, tokens=1)
                assert not grant.headers
                await end(grant, used=5)
                one._counter._blind_until = 0.0
            assert [record.message[:28] for record in caplog.records] == ["rate limits are not enforced"]
            one._counter._silent_until = 0.0
            await ask(one, who, tokens=1)
            assert len(caplog.records) == 2


async def test_limit_counter_is_not_asked_again_soon_after_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(counters, "_BLIND", 3600.0)  # seconds
    async with limits_of({"store": {"url": f"sqlite:///{tmp_path}/no/such/folder.db"}}) as one:
        one._counter._counter = calls = CallCounter(one._counter._counter)
        for _ in range(5):
            await ask(one, key(requests_per_minute=1))
        assert calls.times == 1


async def test_limit_counter_timeout_admits_the_request(monkeypatch, clock, caplog):
    monkeypatch.setattr(counters, "_MAX_WAIT", 0.01)

    class Slow:
        async def take(self, *_):
            await asyncio.Event().wait()

        async def close(self):
            """There is nothing to be closed."""

    async with limits_of({}, clock) as one:
        one._counter._counter = Slow()
        assert not (await ask(one, key(requests_per_minute=1))).headers
        assert "TimeoutError" in caplog.text


async def test_limit_counter_reconnects_to_a_restarted_redis(own_redis, clock):
    async with limits_of({"limits": {"url": own_redis.url}}, clock) as one:
        who = key("restarted", requests_per_minute=2)
        await ask(one, who)
        own_redis.stop()
        own_redis.start()
        assert counts(await ask(one, who)) == {"requests": 1}  # what it knew is gone


async def test_limit_slot_is_freed_when_admission_raises(limits):
    def broken():
        raise ZeroDivisionError

    who = key(concurrent=1, tokens_per_minute=1)
    with pytest.raises(ZeroDivisionError):
        await limits.acquire(who, "m", FREE, broken)
    await ask(limits, who)


# Store


@pytest.mark.parametrize("name", ["k", "m" * 500])
async def test_limit_store_sums_amounts_by_key_and_window(store, name):
    one, next_one, other = UsageSlot(name, 0, 120), UsageSlot(name, 60, 180), UsageSlot("other", 0, 120)
    async with store.writing() as db:
        assert await usage_sums.add_counts(db, {one: 5, next_one: 0}) == {one: 5, next_one: 0}
        assert await usage_sums.add_counts(db, {other: 1, next_one: 7, one: -2}) == {other: 1, next_one: 7, one: 3}


async def test_limit_store_sweeps_old_windows(store):
    old, new = UsageSlot("k", 0, 120), UsageSlot("k", 60, 180)
    async with store.writing() as db:
        await usage_sums.add_counts(db, {old: 5, new: 7})
    await expire(store, 121, 0, 0)
    async with store.reading() as db:
        assert [*await db.execute(select(table.c.start, table.c.amount))] == [(60, 7)]
