"""Hold the objects that all jobs of a process share."""

import time

from msgspec import Struct

from gateway.server.jobs.lease import Lease
from gateway.server.jobs.scribe import LogWriter
from gateway.store import logs
from gateway.store.database import Database


class JobContext(Struct, frozen=True):
    """resume_seconds: how long a stream in the foreground goes on, and is kept, without its client.

    most_bytes: of a log; beyond that its oldest events go.
    """

    store: Database
    lease: Lease
    scribe: LogWriter
    resume_seconds: int
    most_bytes: int

    async def put_away(self, id: str, *, background: bool) -> None:
        """A log that nothing is added to any more: in the background it lasts; raises StoreFailed."""
        if background:
            await logs.pack(self.store, id)
            return
        async with self.store.writing() as db:
            await logs.expire(db, id, int(time.time()) + self.resume_seconds)
