"""Test threads beyond the model of test_store_model.py: deletion by age, duplicate ids, leases and sizes."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from gateway.store import Database, conversations, item_lists, responses
from gateway.store.records import ItemRange, ItemsMissing, ListPosition, StoredConversation
from gateway.store.tables import threads as all_threads
from support.sampling import examples
from support.store_jobs import counted, numbered

pytestmark = pytest.mark.smoke


async def save(db, id, behind=None, now=0):
    """Save a response with an input item and an output item."""
    await responses.save(db, "t", {"id": id, "output": numbered(f"{id}-out")}, numbered(f"{id}-in"), behind, now)
    return await responses.find(db, "t", id)


async def forget(db, thread):
    await db.execute(delete(all_threads).where(all_threads.c.id == thread))


async def used(db, thread):
    return await db.scalar(select(all_threads.c.used_at).where(all_threads.c.id == thread))


async def test_response_is_returned_as_saved(store):
    body = {"id": "r", "status": "completed", "output": [{"id": "b", "n": 1.5, "é": [None, True]}], "tools": []}
    async with store.writing() as db:
        await responses.save(db, "t", body, numbered("a"), None, 7)
        found = await responses.find(db, "t", "r")
        assert await responses.response_object(db, found) == body
        assert await item_lists.read(db, await responses.effective_input(db, found)) == numbered("a")
        assert (found.start_position, found.own, found.behind) == (
            ListPosition("r", 0),
            ItemRange("r", 0, 2),
            ListPosition("r", 2),
        )
        assert await responses.find(db, "", "r") is None


async def test_thread_holds_a_chain_until_it_branches(store):
    async with store.writing() as db:
        first = await save(db, "a")
        second = await save(db, "b", first.behind)
        third = await save(db, "c", first.behind)
        assert [one.thread for one in (first, second, third)] == ["a", "a", "c"]
        assert await item_lists.ranges(db, third.behind) == [ItemRange("a", 0, 2), ItemRange("c", 0, 2)]


async def test_thread_of_a_chain_from_a_conversation_is_separate(store):
    async with store.writing() as db:
        await conversations.create(db, "t", "conv", {}, numbered("a"), 0)
        inside = await save(db, "r", await conversations.find(db, "t", "conv"))
        outside = await save(db, "s", inside.behind)
        assert (inside.thread, outside.thread) == ("conv", "s")
        assert (await conversations.find(db, "t", "conv")).end == 3


async def test_thread_that_was_deleted_breaks_its_continuations(store):
    """The response itself is kept, as its client has waited for it."""
    async with store.writing() as db:
        first = await save(db, "a")
        await forget(db, "a")
        second = await save(db, "b", first.behind)
        assert (await responses.response_object(db, second))["output"] == numbered("b-out")
        with pytest.raises(ItemsMissing):
            await responses.effective_input(db, second)
        with pytest.raises(ItemsMissing):
            await item_lists.ranges(db, first.behind)


async def test_conversation_that_was_deleted_takes_no_more_items(store):
    async with store.writing() as db:
        await conversations.create(db, "t", "conv", {}, [], 0)
        found = await conversations.find(db, "t", "conv")
        await forget(db, "conv")
        assert await conversations.append(db, found, numbered("a"), 1) is None
        assert (await save(db, "r", found)).thread == "r"
        assert await conversations.find(db, "t", "conv") is None


async def test_thread_is_marked_as_used_by_its_continuations(store):
    async with store.writing() as db:
        first = await save(db, "a", now=10)
        await save(db, "b", first.behind, now=20)
        assert await used(db, "a") == 20
        await save(db, "c", first.behind, now=30)
        assert (await used(db, "a"), await used(db, "c")) == (30, 30)


async def test_thread_paging_ends_although_an_id_is_there_twice(store):
    """A page behind a duplicate id begins with items that were not shown yet."""
    async with store.writing() as db:
        await responses.save(db, "t", {"id": "r", "output": []}, numbered("x", "a", "x"), None, 0)
        first = await responses.find(db, "t", "r")
        await save(db, "other", first.behind)
        await responses.save(db, "t", {"id": "s", "output": []}, numbered("b", "x", "c"), first.behind, 0)
        ranges = await item_lists.ranges(db, (await responses.find(db, "t", "s")).behind)

        async def behind(newest_first):
            place = await item_lists.find(db, "t", ranges, "x", newest_first=newest_first)
            return place, await item_lists.page(db, ranges, 9, newest_first=newest_first, behind=place)

        assert await item_lists.find(db, "t", [ItemRange("r", 1, 2)], "x") is None
        assert await behind(True) == (ListPosition("r", 0), [])
        assert await behind(False) == (ListPosition("s", 1), numbered("c"))


async def test_item_lookup_returns_the_newest_of_an_id(store):
    async with store.writing() as db:
        for now, (id, text) in enumerate([("a", "old"), ("b", "new")]):
            await responses.save(db, "t", {"id": id, "output": []}, [{"id": "x", "text": text}], None, now)
        assert await item_lists.by_id(db, "t", ["x", "y"]) == {"x": {"id": "x", "text": "new"}}


async def test_item_lookup_takes_more_ids_than_a_statement(store):
    ids = [f"item{number}" for number in range(1200)]
    async with store.writing() as db:
        await conversations.create(db, "t", "conv", {}, numbered(*ids), 0)
        assert await item_lists.by_id(db, "t", ids) == {id: {"id": id} for id in ids}


async def test_thread_size_is_the_sum_of_its_rows(store):
    """The size is in bytes of items and responses, also after deletions."""
    async with store.writing() as db:
        first = await save(db, "é")
        second = await save(db, "b", first.behind)
        await save(db, "c", first.behind)
        await conversations.create(db, "t", "conv", {}, numbered("x", "y"), 0)
        inside = await save(db, "d", await conversations.find(db, "t", "conv"))
        counted_size, kept = await counted(db)
        assert counted_size == kept > 0
        await responses.remove(db, second)
        await responses.remove(db, inside)
        await item_lists.remove(db, ListPosition("conv", 0))
        less = await counted(db)
        assert less[0] == less[1] < kept


async def test_conversation_keeps_the_items_of_a_deleted_response(store):
    async with store.writing() as db:
        await conversations.create(db, "t", "conv", {}, numbered("a"), 0)
        inside = await save(db, "r", await conversations.find(db, "t", "conv"))
        await responses.remove(db, inside)
        assert await responses.find(db, "t", "r") is None
        assert await item_lists.read(db, [(await conversations.find(db, "t", "conv")).items]) == numbered(
            "a", "r-in", "r-out"
        )


async def test_conversation_metadata_is_replaced(store):
    async with store.writing() as db:
        await conversations.create(db, "t", "conv", {"a": "b"}, [], 7)
        await conversations.set_metadata(db, "conv", {"c": "d"})
        found = await conversations.find(db, "t", "conv")
        assert found == StoredConversation("conv", "conv", 7, {"c": "d"}, 0)
        assert found.shown() == {"id": "conv", "object": "conversation", "created_at": 7, "metadata": {"c": "d"}}


LEASE = 100
MOVES = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["hold", "renew", "let go"]), st.integers(0, 80)), max_size=12
)


def test_conversation_has_one_holder_at_a_time(store_url):
    """The holder may renew; others get it after its release or its time."""
    database, numbers = Database(store_url), itertools.count()

    async def play(moves):
        conversation, holder, until, now = f"conv{next(numbers)}", None, 0, 1000
        async with database.writing() as db:
            await conversations.create(db, "t", conversation, {}, [], 0)
            for who, move, passed in moves:
                now += passed
                if move == "hold":
                    may = holder in (None, who) or until <= now
                    assert await conversations.acquire(db, conversation, who, now, LEASE) == may
                    holder, until = (who, now + LEASE) if may else (holder, until)
                elif move == "renew":
                    await conversations.renew(db, conversation, who, now, LEASE)
                    until = now + LEASE if holder == who else until
                else:
                    await conversations.release(db, conversation, who)
                    holder = None if holder == who else holder

    with asyncio.Runner() as runner:

        @settings(max_examples=examples(40), deadline=None)
        @given(MOVES)
        def check(moves):
            runner.run(play(moves))

        check()
        runner.run(database.close())


async def test_conversation_that_does_not_exist_cannot_be_held(store):
    async with store.writing() as db:
        assert not await conversations.acquire(db, "conv", "a", 0, LEASE)
