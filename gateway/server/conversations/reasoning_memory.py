"""Remember reasoning that a tenant's clients do not send back: restore it in requests, and store it from responses.

A failure of the store is logged and never fails a request.
"""

import logging
import time
from collections.abc import Collection, Sequence
from typing import ClassVar

from gateway.errors import StoreFailed
from gateway.request import Request
from gateway.server.http.client_connection import ResponseWriter
from gateway.store import reasoning_memory
from gateway.store.database import Database
from gateway.transforms import EventFilter
from gateway.transforms.reasoning_memory import ReasoningCapture, find_missing_reasoning, restore_reasoning
from gateway.warnings import Warnings

_log = logging.getLogger("gateway")


class NoReasoningMemory:
    """No memory: clients have to send back the reasoning that the model is to get.

    reads_messages: `restore` needs all messages of a request.
    filters: capture the reasoning of a response from the events of its rounds.
    """

    reads_messages: ClassVar[bool] = False
    filters: Sequence[EventFilter] = ()

    async def restore(self, request: Request, _: Warnings, *, all_turns: bool = True) -> Request:
        """Return the request with the reasoning of earlier messages; without `all_turns` only that of the last turn."""
        return request

    def flush_before(self, writer: ResponseWriter) -> ResponseWriter:
        """Return a writer that stores captured reasoning before it writes a piece, as clients respond at once.

        If a cancellation interrupts that and the response continues, the held piece is written first.
        """
        return writer

    async def save(self) -> None:
        """Store the captured reasoning."""


class ReasoningMemory(NoReasoningMemory):
    """The memory for one request: call `restore` first, the other methods for its response."""

    reads_messages = True

    def __init__(self, store: Database, tenant: str) -> None:
        self._store, self._tenant = store, tenant
        self._used: Collection[str] = ()

    async def restore(self, request: Request, ledger: Warnings, *, all_turns: bool = True) -> Request:
        """Return the request with the reasoning found in the store, and note the warnings."""
        self._listener = ReasoningCapture(request.messages)
        self.filters = (self._listener,)
        lacks = find_missing_reasoning(request.messages, all_turns=all_turns)
        if not lacks:
            return request
        try:
            async with self._store.reading() as db:
                found = await reasoning_memory.find(db, self._tenant, {key for one in lacks for key in one.keys})
        except StoreFailed as error:
            _log.warning("reasoning could not be looked up: %s", error.reason)
            return request
        self._used = found.keys()
        return restore_reasoning(request, lacks, found, ledger)

    def flush_before(self, writer: ResponseWriter) -> ResponseWriter:
        """Return a writer that stores captured reasoning before it writes a piece."""
        return _SavingWriter(self, writer)

    @property
    def behind(self) -> bool:
        """True if there is reasoning that is not stored yet."""
        return bool(self._listener.captured)

    async def save(self) -> None:
        """Store the captured reasoning, and mark the restored one as used; log a failure of the store."""
        items = self._listener.captured
        if not items:
            return
        now = int(time.time())
        try:
            async with self._store.writing() as db:
                await reasoning_memory.save(db, self._tenant, items, now)
                await reasoning_memory.touch(db, self._tenant, self._used, now)
        except StoreFailed as error:
            _log.warning("reasoning could not be stored: %s", error.reason)
        items.clear()


class _SavingWriter:
    """A ResponseWriter that stores reasoning before it writes."""

    def __init__(self, memory: ReasoningMemory, writer: ResponseWriter) -> None:
        self._memory, self._writer = memory, writer
        self._held = b""  # a piece that was not passed on

    def try_write(self, piece: bytes) -> bool:
        return not (self._memory.behind or self._held) and self._writer.try_write(piece)

    def try_write_unrecorded(self, piece: bytes) -> bool:
        return not (self._memory.behind or self._held) and self._writer.try_write_unrecorded(piece)

    async def write(self, piece: bytes) -> None:
        await self._writer.write(await self._kept(piece))

    async def end(self, piece: bytes) -> None:
        await self._writer.end(await self._kept(piece))

    async def _kept(self, piece: bytes) -> bytes:
        self._held += piece
        await self._memory.save()
        held, self._held = self._held, b""
        return held
