"""Write the logs of all jobs of this process: rows that arrive during a transaction share the next one.

Subscribers get a row after it is stored, so a process that takes over knows all that clients have seen.  If the store
fails, subscribers get the row at once, and it is stored as soon as possible.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.errors import StoreFailed
from gateway.server.jobs.log_tail import LogTail
from gateway.store import event_logs, jobs
from gateway.store.database import Database
from gateway.store.records import LogRow

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

SECONDS = 15.0  # of a lease; a process that does not renew it for so long counts as dead
_log = logging.getLogger("gateway")
CHANNEL = "gateway_jobs"  # of notifications between processes: the ids of jobs with news
_MAX_LATE = 32 << 20  # bytes that wait while the store fails
_AGAIN = 1.0  # seconds until the next try


class Lease(Struct, frozen=True):
    """The lease of this process on its jobs.  holder: a unique name of the process."""

    holder: str
    seconds: float = SECONDS

    def times(self) -> tuple[int, int]:
        """Return the current time, and the duration of the lease, in milliseconds."""
        return int(time.time() * 1000), int(self.seconds * 1000)


class JobLost(Exception):
    """Another process has taken the job, or it was deleted."""


@dataclass(slots=True, eq=False)
class LogWrite:
    """A write to the log of a job.

    row: None for a response without a stream; last: the job ends.
    done: result True if this process still has the job.
    """

    id: str
    tail: LogTail
    row: LogRow | None
    last: bool
    done: asyncio.Future[bool]

    def set_done(self, ours: bool) -> None:
        """Report the result, and pass the row to the subscribers; the waiting task may have gone."""
        if ours and self.row:
            self.tail.add(self.row)
        if not self.done.done():
            self.done.set_result(ours)

    def fail(self, error: Exception) -> None:
        """Raise the error in the waiting task, which may have gone."""
        with suppress(asyncio.InvalidStateError):
            self.done.set_exception(error)


class LogWriter:
    """Write the logs of all jobs of a process, in shared transactions."""

    def __init__(self, store: Database, lease: Lease) -> None:
        self._store, self._lease = store, lease
        self._waiting: list[LogWrite] = []
        self._late: list[LogWrite] = []  # passed to subscribers, but not stored yet
        self._work = asyncio.Event()

    async def write(self, id: str, tail: LogTail, row: LogRow | None, *, last: bool = False) -> None:
        """Write a row; return when it is stored, or the store has failed.  Raises JobLost, or an unexpected error."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(LogWrite(id, tail, row, last, done))
        self._work.set()
        if not await done:
            raise JobLost

    async def run(self) -> None:
        """Write rows until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            batch, self._waiting = self._waiting, []
            try:
                ours = await self._stored([*self._late, *batch])
            except StoreFailed as error:
                self._put_off(batch, error)
                ours = {entry.id for entry in batch}
            except Exception as error:  # noqa: BLE001 - the jobs get it; a repetition would fail as well
                self._discard(batch, error)
                continue
            else:
                self._late = []
            for entry in batch:
                entry.set_done(entry.id in ours)

    async def _stored(self, entries: list[LogWrite]) -> Collection[str]:
        """Store the rows of jobs that this process still has; return the ids of these jobs."""
        holder, ids = self._lease.holder, {entry.id for entry in entries}

        async def store(db: "AsyncConnection") -> Collection[str]:
            held = await jobs.renew_leases(db, holder, *self._lease.times(), ids)
            ours = [entry for entry in entries if entry.id in held]
            await event_logs.append(db, [(entry.id, entry.row) for entry in ours if entry.row])
            if ended := [entry.id for entry in ours if entry.last]:
                await jobs.end(db, ended, holder)
            await jobs.notify(db, CHANNEL, held)
            return held

        return await self._store.run_writing(store)

    def _put_off(self, batch: list[LogWrite], error: StoreFailed) -> None:
        if not self._late:
            _log.warning("events of responses cannot be stored, the gateway tries again: %s", error.reason)
        self._late += batch
        if sum(len(entry.row.data) for entry in self._late if entry.row) > _MAX_LATE:
            self._report_loss()
            self._late = [LogWrite(one.id, one.tail, None, one.last, one.done) for one in self._late if one.last]
        asyncio.get_running_loop().call_later(_AGAIN, self._work.set)

    def _discard(self, batch: list[LogWrite], error: Exception) -> None:
        """Raise an unexpected error in the jobs that wait, and forget what waits for the store."""
        if self._late:
            self._report_loss()
        self._late = []
        for entry in batch:
            entry.fail(error)

    def _report_loss(self) -> None:
        _log.warning("events of %d responses are lost: clients cannot resume these responses", len(self._late))


class JobContext(Struct, frozen=True):
    """The shared objects and settings of all jobs of a process.

    resume_seconds: time that a foreground stream continues, and is kept, without its client.
    most_bytes: of a log; beyond that its oldest events are removed.
    """

    store: Database
    lease: Lease
    log_writer: LogWriter
    resume_seconds: int
    most_bytes: int

    async def archive_log(self, id: str, *, background: bool) -> None:
        """Pack a complete log of a background job, or set the expiry of another one; raise StoreFailed."""
        if background:
            await event_logs.pack(self.store, id)
            return
        async with self.store.writing() as db:
            await event_logs.expire(db, id, int(time.time()) + self.resume_seconds)
