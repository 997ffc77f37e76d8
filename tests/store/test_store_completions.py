"""Test stored chat completions: lookup, lists, metadata and deletion."""

import pytest
from sqlalchemy import func, select

from gateway.store import chat_completions, item_lists
from gateway.store.records import CompletionFilter
from gateway.store.tables import items, labels

MESSAGES = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}]
MADE = [  # id, created, model, metadata
    ("a", 10, "m", {"user": "1", "kind": "x"}),
    ("d", 20, "n", {"user": "1"}),
    ("c", 20, "m", None),
    ("b", 5, "m", {"user": "2", "kind": "x"}),
    ("long", 30, "x" * 300, {"k" * 64: "v" * 512}),
]


def completion(id, created=1, model="m", metadata=None):
    return {
        "id": id,
        "created": created,
        "model": model,
        "metadata": metadata,
        "choices": [{"message": {"content": "Hi"}}],
    }


@pytest.fixture
async def full(store):
    async with store.writing() as db:
        for made in MADE:
            await chat_completions.save(db, "t", completion(*made), MESSAGES, 0)
        await chat_completions.save(db, "other", completion("foreign"), [], 0)
    return store


async def test_stored_completion_is_returned_as_saved(full):
    async with full.reading() as db:
        found = await chat_completions.find(db, "t", "a")
        assert found.body == completion(*MADE[0])
        rows = await item_lists.page(db, [found.messages], 20, newest_first=False)
        assert rows == [{**message, "id": f"a-{place}"} for place, message in enumerate(MESSAGES)]
        after = await item_lists.find(db, "t", [found.messages], "a-0")
        assert await item_lists.page(db, [found.messages], 20, newest_first=False, behind=after) == rows[1:]


async def test_stored_completion_is_hidden_from_other_tenants(full):
    async with full.reading() as db:
        assert await chat_completions.find(db, "", "a") is None
        assert [one.id for one in await chat_completions.page(db, "other", CompletionFilter(), 9)] == ["foreign"]


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (CompletionFilter(), ["b", "a", "c", "d", "long"]),
        (CompletionFilter(model="m"), ["b", "a", "c"]),
        (CompletionFilter(model=""), []),
        (CompletionFilter(metadata={"user": "1"}), ["a", "d"]),
        (CompletionFilter(metadata={"user": "1", "kind": "x"}), ["a"]),
        (CompletionFilter(model="n", metadata={"user": "1"}), ["d"]),
        (CompletionFilter(metadata={"user": "3"}), []),
        (CompletionFilter(metadata={"1": "user"}), []),
        (CompletionFilter(model="x" * 300, metadata={"k" * 64: "v" * 512}), ["long"]),
        (CompletionFilter(model="x" * 301), []),
        (CompletionFilter(metadata={'"': "\0"}), []),
    ],
)
async def test_stored_completions_are_filtered_and_paged_in_both_orders(full, wanted, ids):
    async with full.reading() as db:
        for newest_first, expected in ((False, ids), (True, ids[::-1])):
            found, behind = [], None
            while page := await chat_completions.page(db, "t", wanted, 2, newest_first=newest_first, behind=behind):
                found += [one.id for one in page]
                behind = page[-1]
            assert found == expected


async def test_stored_completion_metadata_is_replaced(full):
    async with full.writing() as db:
        found = await chat_completions.find(db, "t", "a")
        changed = await chat_completions.set_metadata(db, found, {"user": "9"})
        assert changed == await chat_completions.find(db, "t", "a")
        assert changed.body == {**found.body, "metadata": {"user": "9"}}
        assert [
            one.id for one in await chat_completions.page(db, "t", CompletionFilter(metadata={"user": "9"}), 9)
        ] == ["a"]
        assert [
            one.id for one in await chat_completions.page(db, "t", CompletionFilter(metadata={"user": "1"}), 9)
        ] == ["d"]
        await chat_completions.set_metadata(db, changed, {})
        assert await db.scalar(select(func.count()).select_from(labels).where(labels.c.completion == "a")) == 0


async def test_stored_completion_is_deleted_with_its_messages(full):
    async with full.writing() as db:
        await chat_completions.remove(db, "a")
        assert await chat_completions.find(db, "t", "a") is None
        for table, column in ((items, items.c.thread), (labels, labels.c.completion)):
            assert await db.scalar(select(func.count()).select_from(table).where(column == "a")) == 0
        assert len(await chat_completions.page(db, "t", CompletionFilter(), 9)) == len(MADE) - 1
