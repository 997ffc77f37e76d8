"""What is stored, as the answering of a question sees it: what a response goes on from, and keeping the answer."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.endpoints.responses import Context, Draft
from gateway.endpoints.responses.stored import told_apart
from gateway.errors import BadRequest, NotFound
from gateway.server.ids import new_id
from gateway.store import completions, conversations, responses, threads
from gateway.store.conversations import Conversation
from gateway.store.database import Database, StoreFailed
from gateway.store.threads import Broken, Item, Place

_LEASE = 30.0  # seconds that a conversation stays locked when its process dies

Record = dict[str, Any]


class Origin(Struct, frozen=True):
    """What a response goes on from: what was said there, and the place behind it; None if it begins anew."""

    context: Context
    behind: Place | None = None
    conversation: Conversation | None = None


class State:
    """What is stored of one tenant, for one request."""

    def __init__(self, store: Database, tenant: str) -> None:
        self._store, self._tenant = store, tenant
        self._holder = new_id("hold_")

    @asynccontextmanager
    async def origin(self, draft: Draft) -> AsyncIterator[Origin]:
        """Raises BadRequest or NotFound for what is not there; holds the conversation until the end of the block."""
        if draft.conversation:
            async with self._held(draft.conversation):
                yield await self._found(draft)
        else:
            yield await self._found(draft)

    async def keep_response(self, draft: Draft, origin: Origin, record: Record) -> None:
        """Store the answer with its question; all of it, or raise StoreFailed.

        One that failed is no part of its conversation, which others may go on from as soon as anybody hears the end.
        """
        known, now = origin.context, int(time.time())
        items = told_apart(draft.input(known.items), known.before, new_id)
        conversation = origin.conversation if record["status"] in ("completed", "incomplete") else None
        async with self._store.writing() as db:
            if origin.conversation:
                await conversations.let_go(db, origin.conversation.id, self._holder)
            if record["store"]:
                await responses.save(db, self._tenant, record, items, conversation or origin.behind, now)
            elif conversation:
                await conversations.append(db, conversation, [*items, *record["output"]], now)

    async def keep_completion(self, record: Record, messages: list[Item]) -> None:
        async with self._store.writing() as db:
            await completions.save(db, self._tenant, record, messages, int(time.time()))

    async def _found(self, draft: Draft) -> Origin:
        if not (draft.previous or draft.conversation or draft.references):
            return Origin(Context())
        async with self._store.reading() as db:
            items = await threads.by_id(db, self._tenant, draft.references) if draft.references else {}
            if draft.previous:
                behind = await self._previous(db, draft.previous)
                before = await _said_before(db, behind, draft.previous)
                return Origin(Context(before, items), behind)
            if draft.conversation:
                found = await conversations.find(db, self._tenant, draft.conversation)
                if not found:
                    raise no_conversation(draft.conversation, "conversation")
                return Origin(Context(await threads.read(db, [found.items]), items), found.behind, found)
        return Origin(Context((), items))

    async def _previous(self, db: AsyncConnection, id: str) -> Place:
        if not (kept := await responses.find(db, self._tenant, id)):
            raise _no_response(id)
        return kept.behind

    @asynccontextmanager
    async def _held(self, id: str) -> AsyncIterator[None]:
        if not await self._hold(id):
            raise locked("conversation")
        renewing = asyncio.create_task(self._renew(id))
        try:
            yield
        finally:
            renewing.cancel()
            with suppress(StoreFailed):  # then the lease ends by itself
                async with self._store.writing() as db:
                    await conversations.let_go(db, id, self._holder)

    async def _hold(self, id: str) -> bool:
        async with self._store.writing() as db:
            if not await conversations.find(db, self._tenant, id):
                raise no_conversation(id, "conversation")
            return await conversations.hold(db, id, self._holder, *_lease())

    async def _renew(self, id: str) -> None:
        while True:
            await asyncio.sleep(_LEASE / 3)
            with suppress(StoreFailed):  # the next time may be early enough
                async with self._store.writing() as db:
                    await conversations.renew(db, id, self._holder, *_lease())


class Reading(State):
    """For those who add nothing: a conversation is not held, and may grow meanwhile."""

    @asynccontextmanager
    async def origin(self, draft: Draft) -> AsyncIterator[Origin]:
        yield await self._found(draft)


def _lease() -> tuple[int, int]:
    """Now, and for how long from now: milliseconds."""
    return int(time.time() * 1000), int(_LEASE * 1000)


async def _said_before(db: AsyncConnection, behind: Place, id: str) -> list[Item]:
    try:
        return await threads.read(db, await threads.ranges(db, behind))
    except Broken:
        raise _no_response(id) from None


def _no_response(id: str) -> BadRequest:
    message = f"Previous response with id '{id}' not found."
    return BadRequest(message, code="previous_response_not_found", param="previous_response_id")


def no_conversation(id: str, param: str | None = None) -> NotFound:
    return NotFound(f"Conversation with id '{id}' not found.", param=param)


def locked(param: str | None = None) -> BadRequest:
    message = "Another process is currently operating on this conversation. Please retry in a few seconds."
    return BadRequest(message, code="conversation_locked", param=param)
