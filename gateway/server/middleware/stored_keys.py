"""Keep the API keys of the store in memory, up to date within a second.

A request reads a dict only.  PostgreSQL notifies of a change; a small query finds it in SQLite, and in PostgreSQL
after a lost notification.  If the store fails, the known keys stay in use.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress

from pydantic import ValidationError

from gateway.config.stored_keys import StoredApiKey
from gateway.errors import StoreFailed, Unauthorized
from gateway.server.observability.logs import survive
from gateway.store import api_keys
from gateway.store.database import Database
from gateway.store.records import ApiKeyRow

_OFTEN, _SELDOM = 0.5, 5.0  # seconds between two queries, without and with notifications
_log = logging.getLogger("gateway")


class StoredKeys:
    """The API keys of a store: `following` keeps them up to date.

    hidden: names of keys of the configuration, which hide stored ones; clock: Unix seconds.
    """

    def __init__(self, store: Database, hidden: Collection[str], clock: Callable[[], float] = time.time) -> None:
        self._store, self._hidden, self._clock = store, hidden, clock
        self._by_digest: dict[str, tuple[StoredApiKey, float]] = {}
        self._by_name: dict[str, StoredApiKey] = {}
        self._version: int | None = None
        self._reading, self._changed, self._failed = asyncio.Lock(), asyncio.Event(), False

    async def find(self, digest: str) -> StoredApiKey | None:
        """Return the key with this digest, or None.

        Raises Unauthorized if it is no longer valid, and StoreFailed if the keys have never been read.
        """
        await self._ensure_read()
        found = self._by_digest.get(digest)
        if not found:
            return None
        key, until = found
        if (now := self._clock()) >= until:
            raise Unauthorized(f"API key '{key.name}' {key.invalidity(digest, now)}. Ask the operator for a new one.")
        return key

    async def named(self, name: str) -> StoredApiKey | None:
        """Return the key of this name, also a revoked one.  Raises StoreFailed if the keys have never been read."""
        await self._ensure_read()
        return self._by_name.get(name)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Keep the keys up to date within the block."""
        listening = self._store.listen(api_keys.CHANNEL, lambda _: self._changed.set())
        tasks = [asyncio.create_task(self._follow()), asyncio.create_task(listening)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)  # the caller closes the store next

    async def refresh(self) -> None:
        """Read the keys that have changed.  Raises StoreFailed."""
        async with self._reading:
            async with self._store.reading() as db:
                rows = await api_keys.read(db, self._version or 0)
            if rows:
                self._take(rows)
            self._version = max((row.version for row in rows), default=self._version or 0)

    async def _ensure_read(self) -> None:
        if self._version is None:
            await self.refresh()

    async def _follow(self) -> None:
        while True:
            with survive("the reading of stored API keys"):
                await self._try_refresh()
            with suppress(TimeoutError):
                async with asyncio.timeout(_SELDOM if self._store.notifies else _OFTEN):
                    await self._changed.wait()
            self._changed.clear()

    async def _try_refresh(self) -> None:
        try:
            await self.refresh()
        except StoreFailed as error:
            if not self._failed:
                _log.warning("the stored API keys cannot be read, the known ones stay in use: %s", error.reason)
            self._failed = True
        else:
            self._failed = False

    def _take(self, rows: Iterable[ApiKeyRow]) -> None:
        for row in rows:
            self._by_name.pop(row.name, None)
            if key := self._parsed(row):
                self._by_name[row.name] = key
        self._by_digest = {
            digest: (key, until) for key in self._by_name.values() for digest, until in key.lifetimes().items()
        }

    def _parsed(self, row: ApiKeyRow) -> StoredApiKey | None:
        """Return the key of a row; None if it is not in use."""
        if row.name in self._hidden:
            _log.warning("the stored API key '%s' is not in use: auth.keys has one of this name", row.name)
            return None
        try:
            return api_keys.parse(row.body)
        except ValidationError:
            _log.error("the stored API key '%s' is refused: this release does not know all of its fields", row.name)
            return None
