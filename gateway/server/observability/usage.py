"""Sum the usage of finished requests by key, model and day, add it to the store, and report it.

A request costs one update of a dict.  The sums go to the store once a second, and wait after a failed write.
`gateway usage` and GET /admin/usage have the report.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import date
from typing import Any, get_args

from msgspec import Struct

from gateway.errors import BadRequest, StoreFailed
from gateway.server.observability.request_record import RequestRecord
from gateway.store import usage_sums
from gateway.store.database import Database
from gateway.store.records import UsageColumn, UsagePlace, UsageSums

_EVERY, _AGAIN = 1.0, 5.0  # seconds between two writes, and before a failed one is repeated
_LAST = 5.0  # seconds for the last write
_MAX = 10_000  # sums that wait for a write
_DAY = 86_400
_log = logging.getLogger("gateway")
NOT_KEPT = "The store keeps no usage. Set store.url in the configuration, and leave store.usage at true."
_DAYS = 30  # of a report whose first day is not given
_COLUMNS: tuple[UsageColumn, ...] = get_args(UsageColumn)
_EPOCH = date(1970, 1, 1).toordinal()


class UsageKeeper:
    """The usage of a process that the store does not have yet.  clock: Unix seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._open: list[Database | None] = []  # of each generation of the application, the newest last
        self._store: Database | None = None  # of the newest one
        self._sums: dict[UsagePlace, UsageSums] = {}
        self._pending, self._writing = asyncio.Event(), asyncio.Lock()
        self._failed = self._full = False

    def count(self, record: RequestRecord) -> None:
        """Count a finished request, unless no backend got it."""
        if not self._store or not record.backend:
            return
        place = int(self._clock()) // _DAY, record.key, record.model
        sums = self._sums.get(place) or self._added(place)
        used = record.usage()
        sums.requests += 1
        sums.input_tokens += used.prompt
        sums.cached_tokens += used.cached
        sums.output_tokens += used.completion
        sums.milliseconds += round(1000 * (record.ended - record.arrived))

    @asynccontextmanager
    async def writing_to(self, store: Database | None) -> AsyncIterator[None]:
        """Add usage to this store within the block, and the rest at its end; None: no usage is kept.

        The block that began last decides for all requests of the process.
        """
        self._open.append(store)
        self._store = store
        task = asyncio.create_task(self._write_for_ever(store)) if store else None
        try:
            yield
        finally:
            self._open.remove(store)
            self._store = self._open[-1] if self._open else None
            if store and task:
                await self._end(store, task)

    async def flush(self) -> None:
        """Write the sums now."""
        if self._store:
            await self._write(self._store)

    def _added(self, place: UsagePlace) -> UsageSums:
        """Return new sums for a place; if too many wait, they are not kept."""
        sums = UsageSums()
        if len(self._sums) < _MAX:
            self._sums[place] = sums
            self._pending.set()
        elif not self._full:
            self._full = True
            _log.error("usage is lost: %d sums of keys, models and days wait for the store", _MAX)
        return sums

    async def _write_for_ever(self, store: Database) -> None:
        while True:
            await self._pending.wait()
            await asyncio.sleep(_AGAIN if self._failed else _EVERY)
            if self._store is store:
                await self._write(store)

    async def _write(self, store: Database) -> None:
        async with self._writing:
            sums, self._sums = self._sums, {}
            self._pending.clear()
            if not sums:
                return
            try:
                async with store.writing() as db:
                    await usage_sums.add(db, sums)
            except StoreFailed as error:
                self._restore(sums)
                self._report(error)
            except asyncio.CancelledError:
                self._restore(sums)
                raise
            except Exception:  # noqa: BLE001 - a repetition would fail as well
                _log.exception("usage is lost: the store refuses it")
            else:
                self._failed = self._full = False

    def _restore(self, sums: dict[UsagePlace, UsageSums]) -> None:
        """Keep sums that were not written, with those that came meanwhile."""
        newer, self._sums = self._sums, sums
        for place, more in newer.items():
            sums.setdefault(place, UsageSums()).add(more)
        self._pending.set()

    def _report(self, error: StoreFailed) -> None:
        if not self._failed:
            _log.warning("usage cannot be written, it waits for the store: %s", error.reason)
        self._failed = True

    async def _end(self, store: Database, task: asyncio.Task[None]) -> None:
        """End the task of a store between two writes, and write the rest unless a newer store gets it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST):
                async with self._writing:
                    task.cancel()
                if not self._store:
                    await self._write(store)
        task.cancel()
        await asyncio.wait([task])
        if self._sums and not self._store:
            requests = sum(sums.requests for sums in self._sums.values())
            _log.error("the usage of %d requests is lost: the store failed until the end", requests)
            self._sums.clear()


class UsageQuery(Struct, frozen=True):
    """The usage that an operator wants: from one day to another (UTC), both included, by these columns."""

    since: date
    until: date
    by: tuple[UsageColumn, ...]

    @property
    def days(self) -> tuple[int, int]:
        """The first and the last day, in days since 1970-01-01."""
        return self.since.toordinal() - _EPOCH, self.until.toordinal() - _EPOCH


def parse_query(since: str | None, until: str | None, by: Sequence[str], today: date) -> UsageQuery:
    """Return the query of these parameters: by default the last 30 days, by key.  Raises BadRequest."""
    last = _day("until", until) if until is not None else today
    first = _day("since", since) if since is not None else date.fromordinal(max(1, last.toordinal() - _DAYS + 1))
    if first > last:
        raise BadRequest(f"'since' ({first}) is after 'until' ({last}).", code="invalid_value", param="since")
    return UsageQuery(first, last, tuple(dict.fromkeys(map(_column, by))) or ("key",))


def usage_report(query: UsageQuery, rows: Iterable[tuple[Sequence[Any], UsageSums]]) -> dict[str, Any]:
    """Return the report as JSON.  rows: values of the columns, and their sums."""
    data, total = [], UsageSums()
    for values, sums in rows:
        total.add(sums)
        shown = {name: shown_value(name, value) for name, value in zip(query.by, values, strict=True)}
        data.append(shown | _amounts(sums))
    head = {"object": "usage", "since": str(query.since), "until": str(query.until), "by": query.by}
    return {**head, "data": data, "total": _amounts(total)}


def _day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        message = f"'{name}' should be a date like 2026-01-31, not '{text}'."
        raise BadRequest(message, code="invalid_value", param=name) from None


def _column(text: str) -> UsageColumn:
    for column in _COLUMNS:
        if text == column:
            return column
    raise BadRequest(f"'by' should be day, key or model, not '{text}'.", code="invalid_value", param="by")


def shown_value(name: UsageColumn, value: Any) -> str | None:  # noqa: ANN401 - a number of a day, or a name
    """Return the value of a column for people: a date, or a name; None for a request without a key."""
    if name == "day":
        return str(date.fromordinal(value + _EPOCH))
    return value or None


def _amounts(sums: UsageSums) -> dict[str, float]:
    return {
        "requests": sums.requests,
        "input_tokens": sums.input_tokens,
        "cached_tokens": sums.cached_tokens,
        "output_tokens": sums.output_tokens,
        "seconds": sums.milliseconds / 1000,
    }
