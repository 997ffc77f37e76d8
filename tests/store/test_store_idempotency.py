"""Test stored idempotency keys: one request runs, and the others wait for its response."""

import asyncio

import pytest

from gateway.store import idempotency_keys
from gateway.store.records import IdempotencyState, StoredAnswer

HELLO = StoredAnswer(200, "application/json", b'{"a": "\\u0000"}\x00\xff')


async def test_idempotency_key_gives_the_first_response_to_all(store):
    async with store.writing() as db:
        assert await idempotency_keys.begin(db, "t", "k", "d", "a", 0) is IdempotencyState.NEW
        assert await idempotency_keys.begin(db, "t", "k", "d", "b", 1) is IdempotencyState.RUNNING
        assert await idempotency_keys.begin(db, "t", "k", "another", "b", 1) is IdempotencyState.OTHER
        assert await idempotency_keys.begin(db, "other", "k", "another", "b", 1) is IdempotencyState.NEW
        await idempotency_keys.finish(db, "t", "k", "a", HELLO)
        assert await idempotency_keys.begin(db, "t", "k", "d", "b", 2) == HELLO
        assert await idempotency_keys.begin(db, "t", "k", "another", "b", 2) is IdempotencyState.OTHER


async def test_idempotency_key_keeps_its_response_for_ten_minutes(store):
    async with store.writing() as db:
        await idempotency_keys.begin(db, "t", "k", "d", "a", 0)
        await idempotency_keys.finish(db, "t", "k", "a", HELLO)
        assert await idempotency_keys.begin(db, "t", "k", "d", "b", 599) == HELLO
        assert await idempotency_keys.begin(db, "t", "k", "another", "b", 600) is IdempotencyState.NEW


async def test_idempotency_key_of_a_dead_process_is_free_again(store):
    async with store.writing() as db:
        await idempotency_keys.begin(db, "t", "k", "d", "a", 0)
        await idempotency_keys.renew(db, "t", "k", "a", 50)
        assert await idempotency_keys.begin(db, "t", "k", "d", "b", 109) is IdempotencyState.RUNNING
        assert await idempotency_keys.begin(db, "t", "k", "d", "b", 110) is IdempotencyState.NEW
        await idempotency_keys.finish(db, "t", "k", "a", HELLO)  # it was not dead, but has lost it
        await idempotency_keys.give_up(db, "t", "k", "a")
        await idempotency_keys.renew(db, "t", "k", "a", 500)
        assert await idempotency_keys.begin(db, "t", "k", "d", "c", 111) is IdempotencyState.RUNNING
        assert await idempotency_keys.begin(db, "t", "k", "d", "c", 170) is IdempotencyState.NEW


async def test_idempotency_key_without_a_response_is_free(store):
    async with store.writing() as db:
        await idempotency_keys.begin(db, "t", "k", "d", "a", 0)
        await idempotency_keys.give_up(db, "t", "k", "a")
        assert await idempotency_keys.begin(db, "t", "k", "another", "b", 0) is IdempotencyState.NEW


@pytest.mark.parametrize("key", ["\0", "k" * 5000])
async def test_idempotency_key_may_be_any_text(store, key):
    async with store.writing() as db:
        assert await idempotency_keys.begin(db, "t", key, "d", "a", 0) is IdempotencyState.NEW
        await idempotency_keys.finish(db, "t", key, "a", HELLO)
        assert await idempotency_keys.begin(db, "t", key, "d", "b", 0) == HELLO


async def test_idempotency_key_is_new_for_one_of_many_requests_at_once(store):
    async def begin(number):
        async with store.writing() as db:
            return await idempotency_keys.begin(db, "t", "k", "d", f"holder{number}", 0)

    results = await asyncio.gather(*map(begin, range(8)))
    assert sorted(one.name for one in results) == ["NEW"] + ["RUNNING"] * 7
