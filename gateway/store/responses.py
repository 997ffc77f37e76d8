"""Responses that are kept, and what they go on from."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import delete, exists, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store import threads
from gateway.store.conversations import Conversation
from gateway.store.tables import conversations, decode, encode, responses
from gateway.store.threads import Item, Place, Range


class Kept(Struct, frozen=True):
    """A response in the store: the ranges of its thread, and its object without the output."""

    id: str
    thread: str
    first: int
    output: int
    end: int
    body: dict[str, Any]

    @property
    def before(self) -> Place:
        """Where its own input begins."""
        return Place(self.thread, self.first)

    @property
    def behind(self) -> Place:
        """Where another response goes on."""
        return Place(self.thread, self.end)

    @property
    def own(self) -> Range:
        return Range(self.thread, self.first, self.end)


async def find(db: AsyncConnection, tenant: str, id: str) -> Kept | None:
    columns = (responses.c.id, responses.c.thread, responses.c.first, responses.c.output, responses.c.end)
    said = select(*columns, responses.c.body).where(responses.c.id == id, responses.c.tenant == tenant)
    row = (await db.execute(said)).one_or_none()
    return Kept(*row[:5], decode(row.body)) if row else None


async def whole(db: AsyncConnection, kept: Kept) -> dict[str, Any]:
    """The Response object as its client got it."""
    output = await threads.read(db, [Range(kept.thread, kept.output, kept.end)])
    return {**kept.body, "output": output}


async def effective_input(db: AsyncConnection, kept: Kept) -> list[Range]:
    """All that the model was given with it: the chain before it, and its own input; raises Broken as `ranges` does."""
    return await threads.ranges(db, Place(kept.thread, kept.output))


async def save(
    db: AsyncConnection,
    tenant: str,
    body: dict[str, Any],
    input: Sequence[Item],
    behind: Place | Conversation | None,
    now: int,
) -> None:
    """Keep a response and what it was asked, behind what it goes on from, or as a part of a conversation."""
    output: list[Item] = body["output"]
    added, rest = [*input, *output], encode({**body, "output": []})
    own = await _grow(db, behind, added, now, len(rest))
    if own is None:
        parent = behind.behind if isinstance(behind, Conversation) else behind
        at = await threads.begin(db, body["id"], tenant, now, parent)
        own = await threads.extend(db, at.thread, added, now, len(rest))
        assert own, "it has just begun"
    said = {"first": own.first, "output": own.first + len(input), "end": own.end, "body": rest}
    await db.execute(insert(responses).values(id=body["id"], tenant=tenant, thread=own.thread, **said))


async def _grow(
    db: AsyncConnection, behind: Place | Conversation | None, added: Sequence[Item], now: int, beside: int
) -> Range | None:
    """The items' range in the thread that it goes on from, if that can grow."""
    if isinstance(behind, Conversation):
        return await threads.extend(db, behind.thread, added, now, beside)
    return await threads.append(db, behind, added, now, beside) if behind else None


async def remove(db: AsyncConnection, kept: Kept) -> None:
    """Forget it and its items, which no chain goes on from any more; those of a conversation are its own and stay."""
    owned = await db.scalar(select(exists().where(conversations.c.thread == kept.thread)))
    gone = Range(kept.thread, kept.end, kept.end) if owned else kept.own
    await threads.erase(db, gone, len(encode(kept.body)))
    await db.execute(delete(responses).where(responses.c.id == kept.id))
