"""Write the logs of all jobs of this process: rows that come while one transaction runs share the next one.

Subscribers get a row after it is stored, so a process that takes over knows all that clients have seen. If the store
fails they get it all the same, and it is stored as soon as that is possible.
"""

import asyncio
import logging
import time
from collections.abc import Collection

from msgspec import Struct

from gateway.errors import StoreFailed
from gateway.server.jobs.log_tail import LogTail
from gateway.store import event_logs, jobs
from gateway.store.database import Database
from gateway.store.records import LogRow

SECONDS = 15.0  # a process that does not say for so long that it lives is dead
_log = logging.getLogger("gateway")
CHANNEL = "gateway_jobs"  # where processes tell each other which job there is news of
_MOST_LATE = 32 << 20  # bytes that wait for a store that fails
_AGAIN = 1.0  # seconds until it is tried again


class Lease(Struct, frozen=True):
    """holder: this process, by a name that no other has."""

    holder: str
    seconds: float = SECONDS

    def times(self) -> tuple[int, int]:
        """Now, and for how long from now: milliseconds."""
        return int(time.time() * 1000), int(self.seconds * 1000)


class JobLost(Exception):
    """Another process has taken the job, or it was deleted."""


class LogWrite(Struct, eq=False):
    """A write for a job: a row, unless the job has no subscribers; `last`: and its end.

    done: whether the job is still ours.
    """

    id: str
    tail: LogTail
    row: LogRow | None
    last: bool
    done: asyncio.Future[bool]

    def set_done(self, ours: bool) -> None:
        """Report that it was written, as far as possible; the waiting task may have gone."""
        if ours and self.row:
            self.tail.add(self.row)
        if not self.done.done():
            self.done.set_result(ours)


class LogWriter:
    def __init__(self, store: Database, lease: Lease) -> None:
        self._store, self._lease = store, lease
        self._waiting: list[LogWrite] = []
        self._late: list[LogWrite] = []  # told, and not stored yet
        self._work = asyncio.Event()

    async def write(self, id: str, tail: LogTail, row: LogRow | None, *, last: bool = False) -> None:
        """Returns when it is stored, or cannot be for the time being; raises Lost."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(LogWrite(id, tail, row, last, done))
        self._work.set()
        if not await done:
            raise JobLost

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._work.wait()
            self._work.clear()
            batch, self._waiting = self._waiting, []
            try:
                ours = await self._stored([*self._late, *batch])
            except StoreFailed as error:
                self._put_off(batch, error)
                ours = {entry.id for entry in batch}
            else:
                self._late = []
            for entry in batch:
                entry.set_done(entry.id in ours)

    async def _stored(self, entries: list[LogWrite]) -> Collection[str]:
        """The jobs that are still ours; only theirs is stored."""
        async with self._store.writing() as db:
            held = await jobs.renew_leases(
                db, self._lease.holder, *self._lease.times(), {entry.id for entry in entries}
            )
            ours = [entry for entry in entries if entry.id in held]
            await event_logs.append(db, [(entry.id, entry.row) for entry in ours if entry.row])
            for entry in ours:
                if entry.last:
                    await jobs.end(db, entry.id, self._lease.holder)
            await jobs.notify(db, CHANNEL, held)
        return held

    def _put_off(self, batch: list[LogWrite], error: StoreFailed) -> None:
        if not self._late:
            _log.warning("events of responses cannot be stored at the moment: %s", error.__cause__)
        self._late += batch
        if sum(len(entry.row.data) for entry in self._late if entry.row) > _MOST_LATE:
            _log.warning("events of %d responses are lost: they cannot be resumed there", len(self._late))
            self._late = [LogWrite(one.id, one.tail, None, one.last, one.done) for one in self._late if one.last]
        asyncio.get_running_loop().call_later(_AGAIN, self._work.set)


class JobContext(Struct, frozen=True):
    """resume_seconds: how long a stream in the foreground goes on, and is kept, without its client.

    most_bytes: of a log; beyond that its oldest events go.
    """

    store: Database
    lease: Lease
    scribe: LogWriter
    resume_seconds: int
    most_bytes: int

    async def archive_log(self, id: str, *, background: bool) -> None:
        """A log that nothing is added to any more: in the background it lasts; raises StoreFailed."""
        if background:
            await event_logs.pack(self.store, id)
            return
        async with self.store.writing() as db:
            await event_logs.expire(db, id, int(time.time()) + self.resume_seconds)
