"""Stream the events of a job to a subscriber: first the stored ones, then the new ones."""

import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence

from gateway.endpoints.responses import log
from gateway.errors import StoreFailed
from gateway.server.jobs.tail import LogTail
from gateway.store import logs
from gateway.store.database import Database
from gateway.store.records import LogRow

_log = logging.getLogger("gateway")
_ROWS = 256  # at a time
_ALIVE = b": keep-alive\n\n"


async def subscribe(store: Database, id: str, tail: LogTail, after: int, seconds: float) -> AsyncGenerator[bytes]:
    """Yield its events, and [DONE] behind the last one; without that the stream ended early and may be resumed.

    seconds: of silence until a sign of life; 0: none is given.
    """
    tail.followers += 1
    try:
        while True:
            found = await _behind(store, id, tail, after)
            if rows := [*_together(found, after)]:
                yield b"".join(log.events_after(row.data, row.first, after) for row in rows)
                after = max(after, rows[-1].last)
            elif found or tail.over:
                break  # what comes next is not kept any more, or nothing comes
            elif not await tail.more(seconds):
                yield _ALIVE
        if tail.whole and after >= tail.last:
            yield log.DONE
    finally:
        tail.followers -= 1


async def _behind(store: Database, id: str, tail: LogTail, after: int) -> Sequence[LogRow]:
    rows = tail.behind(after)
    if rows is not None:
        return rows
    try:
        async with store.reading() as db:
            return await logs.read(db, id, after, _ROWS)
    except StoreFailed as error:
        _log.warning("the log of a response cannot be read: %s", error.__cause__)
        return ()


def _together(rows: Iterable[LogRow], after: int) -> Iterator[LogRow]:
    """Yield rows that follow each other without a gap."""
    for row in rows:
        if row.first > after + 1:
            return
        yield row
        after = max(after, row.last)
