"""Responses that are not stored: others go on from them as long as their connection lasts.

Of each lane it is the latest.  What is stored is found in the store, as ever, and what a response of here goes on from
may be there, too: only what the store does not have is kept here.
"""

from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from gateway.api.responses import ResponseDraft
from gateway.errors import StoreFailed
from gateway.server.conversations.stored_context import Predecessor, StoredContext, StoredObject, input_items
from gateway.server.websocket.messages import StreamId
from gateway.store.database import Database
from gateway.warnings import Warnings

_WELL = ("completed", "incomplete")


class ResponseChain(Struct, frozen=True):
    """The history up to a response.

    root: the response in the store that it begins behind; turns: the items of each turn since then, as JSON.
    """

    root: str | None = None
    turns: tuple[bytes, ...] = ()

    def items(self) -> list[dict[str, Any]]:
        return [item for turn in self.turns for item in json.decode(turn)]

    @property
    def size(self) -> int:
        return sum(map(len, self.turns))


class RecentResponses:
    """most_bytes: of all of them; beyond that the oldest are forgotten."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._latest: dict[StreamId, tuple[str, ResponseChain]] = {}  # by lane: an id, and what was said up to there

    def find(self, id: str | None) -> ResponseChain | None:
        return next((chain for known, chain in self._latest.values() if known == id), None)

    def add(self, lane: StreamId, id: str, chain: ResponseChain) -> None:
        self._latest.pop(lane, None)
        self._latest[lane] = id, chain
        while sum(chain.size for _, chain in self._latest.values()) > self._most_bytes:
            del self._latest[next(iter(self._latest))]

    def forget(self, lane: StreamId, id: str | None) -> None:
        """Forget the response that a failed one continued in its own stream."""
        if lane in self._latest and self._latest[lane][0] == id:
            del self._latest[lane]


class ConnectionContext(StoredContext):
    """For one request in a lane."""

    can_store = True

    def __init__(self, store: Database, tenant: str, recent: RecentResponses, lane: StreamId) -> None:
        super().__init__(store, tenant)
        self._recent, self._lane = recent, lane
        self._chain = ResponseChain()

    async def save_response(
        self, draft: ResponseDraft, origin: Predecessor, ledger: Warnings, record: StoredObject
    ) -> None:
        if not (record["store"] or origin.conversation):
            await self._remember(draft, origin, record)
            return
        try:
            await super().save_response(draft, origin, ledger, record)
        except StoreFailed:
            await self._remember(draft, origin, record)
            raise

    async def _found(self, draft: ResponseDraft) -> Predecessor:
        self._chain = self._recent.find(draft.previous) or ResponseChain(draft.previous)
        stored = await super()._found(replace(draft, previous=self._chain.root))
        items = self._chain.items()
        context = replace(stored.context, before=[*stored.context.before, *items])
        return replace(stored, context=context, unstored=items)

    async def _remember(self, draft: ResponseDraft, origin: Predecessor, record: StoredObject) -> None:
        """A response of a conversation is gone on from in that."""
        if record["status"] in _WELL and not origin.conversation:
            turn = json.encode([*await input_items(draft, origin), *record["output"]])
            self._recent.add(self._lane, record["id"], replace(self._chain, turns=(*self._chain.turns, turn)))
