"""Keep responses that are not stored, so that later requests of their connection can continue them.

Each stream keeps its latest response.  A response may continue one in the store: only items that the store does not
have are kept here.
"""

from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from gateway.api.responses import ResponseDraft
from gateway.errors import StoreFailed
from gateway.server.conversations.past_cache import PastCache
from gateway.server.conversations.stored_context import Predecessor, StoredContext, StoredObject, input_items
from gateway.server.websocket.messages import StreamId
from gateway.store.database import Database
from gateway.warnings import Warnings

_WELL = ("completed", "incomplete")


class ResponseChain(Struct, frozen=True):
    """The history up to a response.

    root: the stored response that it continues; turns: the items of each turn since then, as JSON.
    """

    root: str | None = None
    turns: tuple[bytes, ...] = ()

    def items(self) -> list[dict[str, Any]]:
        """Return the items of all turns."""
        return [item for turn in self.turns for item in json.decode(turn)]

    @property
    def size(self) -> int:
        """The bytes of all turns."""
        return sum(map(len, self.turns))


class RecentResponses:
    """The latest response of each stream of a connection.

    most_bytes: of all histories; beyond that the oldest are removed.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._latest: dict[StreamId, tuple[str, ResponseChain]] = {}  # by stream: an id, and the history up to it

    def find(self, id: str | None) -> ResponseChain | None:
        """Return the history up to a response; None if it is not kept."""
        return next((chain for known, chain in self._latest.values() if known == id), None)

    def add(self, stream_id: StreamId, id: str, chain: ResponseChain) -> None:
        """Keep the latest response of a stream."""
        self._latest.pop(stream_id, None)
        self._latest[stream_id] = id, chain
        while sum(chain.size for _, chain in self._latest.values()) > self._most_bytes:
            del self._latest[next(iter(self._latest))]

    def forget(self, stream_id: StreamId, id: str | None) -> None:
        """Forget the response that a failed one continued in its own stream."""
        if stream_id in self._latest and self._latest[stream_id][0] == id:
            del self._latest[stream_id]


class ConnectionContext(StoredContext):
    """The stored and the kept context for one request in a stream."""

    can_store = True

    def __init__(
        self, store: Database, tenant: str, pasts: PastCache, recent: RecentResponses, stream_id: StreamId
    ) -> None:
        super().__init__(store, tenant, pasts)
        self._recent, self._stream_id = recent, stream_id
        self._chain = ResponseChain()

    async def save_response(
        self, draft: ResponseDraft, origin: Predecessor, ledger: Warnings, record: StoredObject
    ) -> None:
        """Store the response, or keep it for the connection if it is not to be stored or the store fails."""
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
        if items := self._chain.items():
            self._pasts = None  # the items follow the past
        stored = await super()._found(replace(draft, previous=self._chain.root))
        context = replace(stored.context, before=[*stored.context.before, *items])
        return replace(stored, context=context, unstored=items)

    async def _remember(self, draft: ResponseDraft, origin: Predecessor, record: StoredObject) -> None:
        """Keep a response, unless it belongs to a conversation, which continues in the store."""
        if record["status"] in _WELL and not origin.conversation:
            turn = json.encode([*await input_items(draft, origin), *record["output"]])
            self._recent.add(self._stream_id, record["id"], replace(self._chain, turns=(*self._chain.turns, turn)))
