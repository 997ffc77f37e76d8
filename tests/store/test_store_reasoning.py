"""Test stored reasoning memory: lookup by key and tenant, replacement and use."""

import pytest
from sqlalchemy import select

from gateway.store import reasoning_memory
from gateway.store.tables import thoughts as table


async def used(db):
    return {key: at for key, at in await db.execute(select(table.c.key, table.c.used_at))}


async def test_reasoning_memory_is_found_by_key_and_tenant(store):
    thoughts = {"call_1": "Hm.", "call_2": "\0 é", "\0": "c", "k" * 5000: "d", "empty": ""}
    async with store.writing() as db:
        await reasoning_memory.save(db, "t", [*thoughts.items()], 0)
        assert await reasoning_memory.find(db, "t", [*thoughts, "unknown"]) == thoughts
        assert await reasoning_memory.find(db, "other", [*thoughts]) == {}
        assert await reasoning_memory.find(db, "t", []) == {}


async def test_reasoning_memory_keeps_the_newest_of_a_key(store):
    async with store.writing() as db:
        await reasoning_memory.save(db, "t", [], 0)
        await reasoning_memory.save(db, "t", [("a", "1"), ("b", "2"), ("a", "3")], 0)
        assert await reasoning_memory.find(db, "t", ["a", "b"]) == {"a": "3", "b": "2"}
        await reasoning_memory.save(db, "t", [("a", "longer")], 5)
        await reasoning_memory.save(db, "other", [("a", "another")], 5)
        assert await reasoning_memory.find(db, "t", ["a", "b"]) == {"a": "longer", "b": "2"}
        assert await used(db) == {"a": 5, "b": 0}
        sizes = await db.execute(select(table.c.bytes).where(table.c.tenant == "t").order_by(table.c.key))
        assert [*sizes.scalars()] == [6, 1]


@pytest.mark.parametrize(("now", "then"), [(3600, 0), (3601, 3601)])
async def test_reasoning_memory_notes_use_once_an_hour(store, now, then):
    async with store.writing() as db:
        await reasoning_memory.save(db, "t", [("a", "1"), ("b", "2")], 0)
        await reasoning_memory.touch(db, "other", ["a"], now)
        await reasoning_memory.touch(db, "t", ["a", "c"], now)
        assert await used(db) == {"a": then, "b": 0}


async def test_reasoning_memory_takes_more_keys_than_a_statement(store):
    thoughts = {f"call_{number}": str(number) for number in range(1200)}
    async with store.writing() as db:
        await reasoning_memory.save(db, "t", [*thoughts.items()], 0)
        assert await reasoning_memory.find(db, "t", thoughts) == thoughts
        await reasoning_memory.touch(db, "t", thoughts, 4000)
        assert {*(await used(db)).values()} == {4000}
