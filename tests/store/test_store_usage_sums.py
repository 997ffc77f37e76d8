"""Test usage in the store: processes add to the same rows, and sums are exact."""

import asyncio

import pytest

from gateway.store import Database, usage_sums
from gateway.store.records import UsageSums

ALL = ("day", "key", "model")
USAGE = {
    (20, "ci", "m"): UsageSums(1, 10, 4, 5, 100),
    (20, "ci", "n"): UsageSums(2, 20, 0, 6, 200),
    (20, "", "m"): UsageSums(3, 30, 0, 7, 300),
    (21, "ci", "m"): UsageSums(4, 40, 8, 8, 1 << 40),
}


async def add(store, usage):
    async with store.writing() as db:
        await usage_sums.add(db, usage)


async def read(store, *by, first=0, last=100):
    async with store.reading() as db:
        return await usage_sums.read(db, first, last, by)


async def test_daily_usage_is_read_as_it_was_added(store):
    await add(store, USAGE)
    assert await read(store, *ALL) == sorted(USAGE.items())


@pytest.mark.parametrize(
    ("by", "days", "found"),
    [
        (["day"], (20, 21), [((20,), (6, 60, 4, 18, 600)), ((21,), (4, 40, 8, 8, 1 << 40))]),
        (["key"], (20, 20), [(("",), (3, 30, 0, 7, 300)), (("ci",), (3, 30, 4, 11, 300))]),
        (["model", "day"], (21, 30), [(("m", 21), (4, 40, 8, 8, 1 << 40))]),
        (["model"], (22, 30), []),
    ],
)
async def test_daily_usage_is_summed_by_columns_within_days(store, by, days, found):
    await add(store, USAGE)
    first, last = days
    assert await read(store, *by, first=first, last=last) == [(place, UsageSums(*sums)) for place, sums in found]


async def test_daily_usage_of_several_processes_adds_up(store_url):
    stores = [Database(store_url) for _ in range(3)]
    await asyncio.gather(*(add(one, USAGE) for one in stores for _ in range(5)))
    assert dict(await read(stores[0], *ALL))[20, "ci", "m"] == UsageSums(15, 150, 60, 75, 1500)
    for one in stores:
        await one.close()


async def test_daily_usage_has_a_place_for_any_name(store):
    await add(store, {(20, "k", "\0" + "m" * 200): UsageSums(1, 2, 3, 4, 5)})
    ((_, sums),) = await read(store, "key")
    assert sums == UsageSums(1, 2, 3, 4, 5)
