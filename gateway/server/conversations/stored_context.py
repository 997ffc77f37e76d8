"""Load the stored context of a request, and store its response."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from gateway.api.responses import InputContext, ResponseDraft, ResponseParams
from gateway.api.responses.stored_items import with_unique_ids
from gateway.api.responses.stored_past import leaves_past
from gateway.errors import BadRequest, NotFound, StoreFailed
from gateway.server.conversations.past_cache import LoadedHistory, PastCache
from gateway.server.ids import new_id
from gateway.server.worker_thread import MANY, run_in_thread
from gateway.store import chat_completions, conversations, item_lists, jobs, responses
from gateway.store.database import Database
from gateway.store.records import (
    FinishedJob,
    FinishedResponse,
    Item,
    ItemRange,
    ItemsMissing,
    ListPosition,
    NewJob,
    NewResponse,
    OpenedResponse,
    StoredConversation,
)
from gateway.warnings import Warnings, header_text

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_LEASE = 30.0  # seconds that a conversation stays locked after its process has died
StoredObject = dict[str, Any]


class Predecessor(Struct, frozen=True):
    """The history that a response continues.

    behind: the position after the history in the store; None without a history.
    unstored: the last items of the history, if the store does not have them.
    """

    context: InputContext
    behind: ListPosition | None = None
    conversation: StoredConversation | None = None
    unstored: Sequence[Item] = ()


class _History(Struct, frozen=True):
    """The stored items of a predecessor; behind, conversation: as of `Predecessor`."""

    loaded: LoadedHistory
    behind: ListPosition | None = None
    conversation: StoredConversation | None = None


class StoredContext:
    """The stored data of one tenant, for one request.

    can_store: `save_response` also gets responses with `store: false`.
    pasts: the encoded pasts of chains; None: all items are read.
    """

    can_store: ClassVar[bool] = False

    def __init__(self, store: Database, tenant: str, pasts: PastCache | None = None) -> None:
        self._store, self.tenant, self._pasts = store, tenant, pasts
        self._holds = False  # a conversation is locked

    def check_room(self) -> None:
        """Raise StoreFailed if so many writes wait for the store that a further response must not begin."""
        self._store.queue.check_room()

    async def load_predecessor(self, draft: ResponseDraft, id: str, held: AsyncExitStack) -> Predecessor:
        """Return the history of a request, and lock its conversation.  Raises BadRequest or NotFound for unknown ids.

        id: of the new response, which holds the lock; held: gets the lock.
        """
        if draft.conversation:
            await held.enter_async_context(self._held(draft.conversation, id))
        return await self._found(draft)

    async def save_response(
        self, draft: ResponseDraft, origin: Predecessor, ledger: Warnings, record: StoredObject
    ) -> None:
        """Store the response with its input and its warnings, in one transaction; raise StoreFailed."""
        record = responses.warned(record, header_text(", ".join(ledger.listed())))
        items, now = [*origin.unstored, *await input_items(draft, origin)], int(time.time())
        if record["store"] and not origin.behind:
            await self._store.write_grouped(responses.begin, NewResponse(self.tenant, record, items, now))
            return

        async def save(db: "AsyncConnection") -> None:
            conversation = await _left(db, origin, record)
            if record["store"]:
                await responses.save(db, self.tenant, record, items, conversation or origin.behind, now)
            elif conversation:
                await conversations.append(db, conversation, [*items, *record["output"]], now)

        await self._store.run_writing(save)
        self._holds = False

    def can_outlive_client(self, params: ResponseParams, resume_seconds: int) -> bool:
        """Return True if the response may continue without its client."""
        resumed = resume_seconds and params.streamed and params.echo["store"]
        return params.background or bool(resumed)

    async def open_response(self, draft: ResponseDraft, origin: Predecessor, body: StoredObject, job: NewJob) -> None:
        """Store a response that is in progress, with its input and its job; raise StoreFailed."""
        self.check_room()
        items = [*origin.unstored, *await input_items(draft, origin)]
        new = OpenedResponse(NewResponse(self.tenant, body, items, int(time.time()), origin.behind), job)
        if origin.behind:
            await self._store.run_writing(lambda db: jobs.open(db, [new]))
        else:
            await self._store.write_grouped(jobs.open, new)

    async def finish_response(self, origin: Predecessor, ledger: Warnings, record: StoredObject, holder: str) -> bool:
        """Store the end of an opened response, with its warnings; return False if this holder does not have its job."""
        record, id = responses.warned(record, header_text(", ".join(ledger.listed()))), record["id"]
        now = int(time.time())
        if not origin.behind:
            ended = FinishedJob(FinishedResponse(self.tenant, record, now), holder)
            return id in await self._store.write_grouped(jobs.finish, ended)

        async def finish(db: "AsyncConnection") -> bool:
            if not await jobs.lock(db, holder, [id]):
                return False
            return await responses.finish(db, self.tenant, record, await _left(db, origin, record), now)

        return await self._store.run_writing(finish)

    async def save_completion(self, record: StoredObject, messages: list[Item]) -> None:
        """Store a chat completion with its messages; raise StoreFailed."""
        async with self._store.writing() as db:
            await chat_completions.save(db, self.tenant, record, messages, int(time.time()))

    async def _found(self, draft: ResponseDraft) -> Predecessor:
        if not (draft.previous or draft.conversation or draft.references):
            return Predecessor(InputContext())
        if draft.references:
            async with self._store.reading() as db:
                items = await item_lists.by_id(db, self.tenant, draft.references)
                found = await self._history(db, draft, None)
            context = InputContext(found.loaded.items, items)
        elif self._pasts and leaves_past(draft.body):
            found, context = await self._found_past(draft, self._pasts)
        else:
            found = await self._store.run_reading(lambda db: self._history(db, draft, None))
            context = InputContext(found.loaded.items)
        return Predecessor(context, found.behind, found.conversation)

    async def _found_past(self, draft: ResponseDraft, pasts: PastCache) -> "tuple[_History, InputContext]":
        """Return the history, with its encoded past if it has one."""
        found = await self._store.run_reading(lambda db: self._history(db, draft, pasts))
        if settled := await pasts.settle(self.tenant, found.loaded, draft.body["input"]):
            return found, InputContext(settled.open, past=settled.past)
        if found.loaded.past:  # the items follow it, and the past is dropped now
            found = await self._store.run_reading(lambda db: self._history(db, draft, None))
        return found, InputContext(found.loaded.items)

    async def _history(self, db: "AsyncConnection", draft: ResponseDraft, pasts: PastCache | None) -> "_History":
        if draft.previous:
            return await self._previous(db, draft.previous, pasts)
        if draft.conversation:
            found = await conversations.find(db, self.tenant, draft.conversation)
            if not found:
                raise conversation_not_found(draft.conversation, "conversation")
            return _History(await self._loaded(db, [found.items], pasts), found.behind, found)
        return _History(LoadedHistory([]))

    async def _previous(self, db: "AsyncConnection", id: str, pasts: PastCache | None) -> "_History":
        """Return the position after a response, and the items up to it.

        The incomplete last item of a failed response is left out: a model must not continue from a broken sentence.
        """
        if not (kept := await responses.find(db, self.tenant, id)):
            raise _no_response(id)
        if (status := kept.body["status"]) in ("queued", "in_progress"):
            message = f"Previous response with id '{id}' is not complete: its status is '{status}'. Retry when it is."
            raise BadRequest(message, param="previous_response_id")
        failed = status in ("failed", "cancelled")
        try:
            ranges = await item_lists.ranges(db, kept.behind)
            loaded = await self._loaded(db, ranges, None if failed else pasts)
        except ItemsMissing:
            message = f"Previous response with id '{id}' continues a response that was deleted."
            raise BadRequest(message, code="previous_response_not_found", param="previous_response_id") from None
        if failed and kept.end > kept.output and loaded.items[-1].get("status") == "incomplete":
            return _History(LoadedHistory(loaded.items[:-1]), ListPosition(kept.thread, kept.end - 1))
        return _History(loaded, kept.behind)

    async def _loaded(
        self, db: "AsyncConnection", ranges: Sequence[ItemRange], pasts: PastCache | None
    ) -> LoadedHistory:
        if pasts:
            return await pasts.load(db, self.tenant, ranges)
        return LoadedHistory(await item_lists.read(db, ranges))

    @asynccontextmanager
    async def _held(self, id: str, holder: str) -> AsyncIterator[None]:
        if not await self._hold(id, holder):
            raise conversation_locked_error("conversation")
        self._holds = True
        renewing = asyncio.create_task(self._renew(id, holder))
        try:
            yield
        finally:
            renewing.cancel()
            if self._holds:
                await self._let_go(id, holder)

    async def _let_go(self, id: str, holder: str) -> None:
        with suppress(StoreFailed):  # the lease expires by itself
            async with self._store.writing() as db:
                if not await jobs.job_state(db, holder):  # otherwise the job's next process needs the lock, too
                    await conversations.release(db, id, holder)

    async def _hold(self, id: str, holder: str) -> bool:
        async with self._store.writing() as db:
            if not await conversations.find(db, self.tenant, id):
                raise conversation_not_found(id, "conversation")
            return await conversations.acquire(db, id, holder, *_lease())

    async def _renew(self, id: str, holder: str) -> None:
        while True:
            await asyncio.sleep(_LEASE / 3)
            with suppress(StoreFailed):  # a later renewal may succeed
                async with self._store.writing() as db:
                    await conversations.renew(db, id, holder, *_lease())


class ReadOnlyContext(StoredContext):
    """The context for requests that store nothing: a conversation is not locked, and may grow meanwhile."""

    def check_room(self) -> None:
        """Do nothing: nothing is written."""

    async def load_predecessor(self, draft: ResponseDraft, _: str, __: AsyncExitStack) -> Predecessor:
        """Return the history of a request without a lock."""
        return await self._found(draft)

    def can_outlive_client(self, params: ResponseParams, _: int) -> bool:
        """Return False."""
        return False


async def input_items(draft: ResponseDraft, origin: Predecessor) -> list[Item]:
    """Return the items of the input as they are stored; many are built in the worker thread."""
    before = origin.context.before
    items = draft.input(origin.context.items)
    if len(items) + len(before) < MANY:
        return with_unique_ids(items, before, new_id)
    return await run_in_thread(with_unique_ids, items, before, new_id)


async def _left(db: "AsyncConnection", origin: Predecessor, record: StoredObject) -> StoredConversation | None:
    """Release the conversation of a response; return None if the response is no part of it.

    A failed response is no part of it.  After the end is visible, other requests may continue the conversation.
    """
    if not origin.conversation:
        return None
    await conversations.release(db, origin.conversation.id, record["id"])
    return origin.conversation if record["status"] in ("completed", "incomplete") else None


def _lease() -> tuple[int, int]:
    """Return the current time, and the duration of the lease, in milliseconds."""
    return int(time.time() * 1000), int(_LEASE * 1000)


def _no_response(id: str) -> BadRequest:
    message = f"Previous response with id '{id}' not found."
    return BadRequest(message, code="previous_response_not_found", param="previous_response_id")


def conversation_not_found(id: str, param: str | None = None) -> NotFound:
    """Return the error for an unknown conversation."""
    return NotFound(f"Conversation with id '{id}' not found.", param=param)


def conversation_locked_error(param: str | None = None) -> BadRequest:
    """Return the error for a conversation that another request holds."""
    message = "Another process is currently operating on this conversation. Please retry in a few seconds."
    return BadRequest(message, code="conversation_locked", param=param)
