"""Keep the encoded past of stored chains in memory, so that a turn reads, decodes and encodes the new items only.

The store stays the source: in each turn it tells whether the items of a kept past still exist.  Other processes may
extend a chain or delete from it at any time.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, json

from gateway.api.responses.stored_past import SettledHistory, settle_history
from gateway.request import EncodedPast
from gateway.server.worker_thread import MANY, run_in_thread
from gateway.store import files, item_lists
from gateway.store.records import Item, ItemRange
from gateway.transforms.past_messages import FileContents, convert_past, named_files
from gateway.transforms.stored_files import FileReference

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

_MAX_BYTES = 32 << 20
_SHARE = 8  # a past takes at most this part of the bytes
_DECODED = 4  # times the bytes of an item, for its objects
_MIN_ITEMS = 40  # it costs little to read fewer ones again
# Reads the files of a tenant.  The stack counts their memory; the mapping has the bytes of the files in the kept past.
ReadFiles = Callable[[Sequence[FileReference], str, AsyncExitStack, Mapping[str, int]], Awaitable[FileContents | None]]


class PastRange(Struct, frozen=True):
    """A range of a chain.  count: its items, if single ones may be removed; else None."""

    range: ItemRange
    count: int | None


class KeptPast(Struct, frozen=True):
    """The history of a chain up to the end of these ranges.  size: the memory that it takes, in bytes."""

    ranges: tuple[PastRange, ...]
    history: SettledHistory
    size: int


class LoadedHistory(Struct, frozen=True):
    """The items of a chain behind its kept past, or all of them.

    ranges: of the whole chain; past: that before the items.
    """

    items: Sequence[Item]
    ranges: tuple[PastRange, ...] = ()
    past: EncodedPast | None = None


class PastCache:
    """The pasts of the chains that were used last, up to this many bytes; one for each thread.

    read_files: reads the files of the chains; None: a chain with files is read in each turn.
    min_items: so is a shorter chain.
    """

    def __init__(
        self,
        read_files: ReadFiles | None = None,
        max_bytes: int = _MAX_BYTES,
        min_items: int = _MIN_ITEMS,
    ) -> None:
        self._read_files = read_files
        self._max_bytes, self._min_items, self._bytes = max_bytes, min_items, 0
        self._kept: dict[str, KeptPast] = {}

    async def load(self, db: "AsyncConnection", tenant: str, chain: Sequence[ItemRange]) -> LoadedHistory:
        """Read the items behind the kept past of a chain.  Raises ItemsMissing as `item_lists.read` does."""
        if sum(one.end for one in chain) < self._min_items:
            return LoadedHistory(await item_lists.read(db, chain))
        kept = self._find(chain)
        if kept and not await _exists(db, tenant, kept):
            kept = None
        ranges, items = (list(kept.ranges), [*kept.history.open]) if kept else ([], list[Item]())
        for one in chain[max(len(ranges) - 1, 0) :]:
            last = ranges.pop() if ranges and ranges[-1].range.thread == one.thread else None
            start = last.range.end if last else one.first
            added = await item_lists.read(db, [ItemRange(one.thread, start, one.end)])
            ranges.append(PastRange(one, await _count(db, last, one, len(added))))
            items += added
        return LoadedHistory(items, tuple(ranges), kept.history.past if kept else None)

    async def settle(self, tenant: str, loaded: LoadedHistory, given: str | Sequence[Item]) -> SettledHistory | None:
        """Return the history of a chain before an input, and keep it; None if all its items have to be read."""
        if not loaded.ranges:
            return None
        async with AsyncExitStack() as stack:
            contents = await self._contents(tenant, loaded, stack)
            how = loaded.past, loaded.items, given, partial(convert_past, contents)
            settled = await run_in_thread(settle_history, *how) if loaded.items else settle_history(*how)
        self._drop(loaded.ranges[-1].range.thread)
        if settled:
            size = settled.past.size + _DECODED * len(json.encode(settled.open))
            self._keep(KeptPast(loaded.ranges, settled, size))
        return settled

    async def _contents(self, tenant: str, loaded: LoadedHistory, stack: AsyncExitStack) -> FileContents | None:
        """Return the contents of the files that the items name.

        stack: counts their memory.
        """
        if not self._read_files:
            return None
        parts = sum(len(content) for item in loaded.items if isinstance(content := item.get("content"), list))
        references = await run_in_thread(named_files, loaded.items) if parts > MANY else named_files(loaded.items)
        return await self._read_files(references, tenant, stack, loaded.past.files.sizes if loaded.past else {})

    def _find(self, chain: Sequence[ItemRange]) -> KeptPast | None:
        """Return the longest kept past that the chain begins with."""
        found = (self._kept.get(one.thread) for one in reversed(chain))
        return next((kept for kept in found if kept and _begins(chain, kept)), None)

    def _keep(self, kept: KeptPast) -> None:
        if kept.size > self._max_bytes // _SHARE:
            return
        self._kept[kept.ranges[-1].range.thread] = kept
        self._bytes += kept.size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, thread: str) -> None:
        if kept := self._kept.pop(thread, None):
            self._bytes -= kept.size


def _begins(chain: Sequence[ItemRange], kept: KeptPast) -> bool:
    """Return True if the chain begins with the ranges of the past; the last one may go on."""
    *before, last = [one.range for one in kept.ranges]
    return before == [*chain[: len(before)]] and last.end <= chain[len(before)].end


async def _exists(db: "AsyncConnection", tenant: str, kept: KeptPast) -> bool:
    """Return True if the store has all items and files of the past."""
    for one in kept.ranges:
        if await item_lists.has_erased(db, tenant, one.range):
            return False
        if one.count is not None and await item_lists.count(db, one.range) != one.count:
            return False
    return await files.has_all(db, tenant, kept.history.past.files.ids, int(time.time()))


async def _count(db: "AsyncConnection", last: PastRange | None, one: ItemRange, added: int) -> int | None:
    """Return the items of a range with `added` new ones; last: the kept part of it."""
    if last:
        return None if last.count is None else last.count + added
    return added if await item_lists.is_of_conversation(db, one.thread) else None
