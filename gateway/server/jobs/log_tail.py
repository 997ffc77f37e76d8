"""Keep the newest rows of a job's log, and stream a log to its subscribers: stored rows first, then new ones."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence

from gateway.api.responses import event_stream
from gateway.errors import StoreFailed
from gateway.store import event_logs
from gateway.store.database import Database
from gateway.store.records import LogRow

_MAX = 1 << 20  # bytes
_log = logging.getLogger("gateway")
_ROWS = 256  # at a time
_ALIVE = b": keep-alive\n\n"


class LogTail:
    """The newest rows of a job's log, up to 1 MiB.

    last: the number of the newest event, -1 for none; followers: the number of subscribers here.
    over: no event will be added; whole: the log is over and has its last event.
    """

    def __init__(self, last: int = -1) -> None:
        self._rows: deque[LogRow] = deque()
        self._size = 0
        self._news = asyncio.get_running_loop().create_future()
        self.last, self.followers = last, 0
        self.over = self.whole = False

    def add(self, row: LogRow) -> None:
        """Add a row and wake the subscribers; drop the oldest rows beyond 1 MiB."""
        self._rows.append(row)
        self._size += len(row.data)
        while self._size > _MAX and len(self._rows) > 1:
            self._size -= len(self._rows.popleft().data)
        self.last = row.last
        self._tell()

    def end(self, *, whole: bool) -> None:
        """Mark the log as over and wake the subscribers; only the first call counts."""
        if not self.over:
            self.over, self.whole = True, whole
            self._tell()

    def behind(self, number: int) -> Sequence[LogRow] | None:
        """Return the rows with the events after `number`; None if the first of them is no longer here."""
        if number >= self.last:
            return ()
        if not self._rows or self._rows[0].first > number + 1:
            return None
        found: deque[LogRow] = deque()
        for row in reversed(self._rows):
            if row.last <= number:
                break
            found.appendleft(row)
        return found

    async def wait_for_more(self, seconds: float) -> bool:
        """Wait until a row is added or the log is over; return False after `seconds`, 0 for no limit."""
        done, _ = await asyncio.wait((self._news,), timeout=seconds or None)
        return bool(done)

    def _tell(self) -> None:
        """Wake the tasks that wait now; later ones wait for the next row."""
        self._news.set_result(None)
        self._news = asyncio.get_running_loop().create_future()


async def subscribe(store: Database, id: str, tail: LogTail, after: int, seconds: float) -> AsyncGenerator[bytes]:
    """Yield the events after number `after`, and [DONE] after the last one.

    Without [DONE] the stream has ended early and can be resumed.
    seconds: of silence before a keep-alive comment; 0: none is sent.
    """
    tail.followers += 1
    try:
        while True:
            found = await _behind(store, id, tail, after)
            if rows := [*_together(found, after)]:
                yield b"".join(event_stream.events_after(row.data, row.first, after) for row in rows)
                after = max(after, rows[-1].last)
            elif found or tail.over:
                break  # the next rows are no longer kept, or none will come
            elif not await tail.wait_for_more(seconds):
                yield _ALIVE
        if tail.whole and after >= tail.last:
            yield event_stream.DONE
    finally:
        tail.followers -= 1


async def _behind(store: Database, id: str, tail: LogTail, after: int) -> Sequence[LogRow]:
    rows = tail.behind(after)
    if rows is not None:
        return rows
    try:
        async with store.reading() as db:
            return await event_logs.read(db, id, after, _ROWS)
    except StoreFailed as error:
        _log.warning("the event log of a response cannot be read: %s", error.reason)
        return ()


def _together(rows: Iterable[LogRow], after: int) -> Iterator[LogRow]:
    """Yield rows that follow each other without a gap."""
    for row in rows:
        if row.first > after + 1:
            return
        yield row
        after = max(after, row.last)
