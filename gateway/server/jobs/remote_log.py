"""Watch the log of another process's job in the store, for its subscribers here."""

import asyncio
import logging
import time
from contextlib import suppress

from gateway.api.responses import event_stream
from gateway.errors import StoreFailed
from gateway.server.jobs.log_tail import LogTail
from gateway.server.jobs.log_writer import JobContext
from gateway.store import event_logs, jobs
from gateway.store.records import LogRow

_log = logging.getLogger("gateway")
_ROWS = 256  # at a time
_OFTEN, _SELDOM = 0.2, 2.0  # seconds between reads, without and with notifications of the database


class RemoteLog:
    """The log of a job that runs in another process.

    newest: an event that is in the store; `tail` begins after it.
    """

    def __init__(self, context: JobContext, id: str, newest: int) -> None:
        self._context, self._id = context, id
        self.tail, self.users = LogTail(newest), 0
        self._news = asyncio.Event()
        self._every = _SELDOM if context.store.notifies else _OFTEN
        self._task = asyncio.create_task(self._look())

    def check_now(self) -> None:
        """Read new rows at once; called for a notification of the database."""
        self._news.set()

    def close(self) -> None:
        """Stop watching."""
        self._task.cancel()

    async def _look(self) -> None:
        while not await self._over():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._news.wait()
            self._news.clear()

    async def _over(self) -> bool:
        try:
            await self._read()
        except StoreFailed as error:
            _log.warning("the event log of a response cannot be read: %s", error.reason)
        except Exception:  # noqa: BLE001 - the log has it; the subscribers can resume
            _log.exception("the event log of a response cannot be read")
            self.tail.end(whole=False)
        return self.tail.over

    async def _read(self) -> None:
        """Read all new rows, and end the tail if the job is over."""
        while True:
            async with self._context.store.reading() as db:
                rows = await event_logs.read(db, self._id, self.tail.last, _ROWS)
                running = await jobs.job_state(db, self._id)
                newest = await event_logs.newest_event(db, self._id, int(time.time()))
            for row in rows:
                self.tail.add(_behind(row, self.tail.last))
            if not rows:
                break
        if not running:
            self.tail.end(whole=newest is not None)  # a deleted job has no log


def _behind(row: LogRow, after: int) -> LogRow:
    """Return the part of a row after event `after`: a packed log has a single row with all events."""
    return (
        row if row.first > after else LogRow(after + 1, row.last, event_stream.events_after(row.data, row.first, after))
    )
