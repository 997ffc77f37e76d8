"""Manage the batches of this process: claim, hold and stop them.

Each gateway of a store claims batches that no process holds: new ones, and those of a process that has died.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.types import ASGIApp

from gateway.api.batches import Batch
from gateway.config import Config
from gateway.errors import StoreFailed
from gateway.server.batches.batch_run import BatchContext, BatchLost, BatchRun
from gateway.server.ids import new_id
from gateway.server.jobs.log_writer import Lease
from gateway.server.observability.logs import survive
from gateway.store import batches
from gateway.store.database import Database
from gateway.store.file_store import FileStore

_log = logging.getLogger("gateway")
_HELD = 1.0  # seconds between two renewals of the leases, which also read cancellations
_ORPHANS = 5  # renewals between two searches for batches without a process
_MAX = 4  # batches of a process at a time


class BatchManager:
    """The batches of a process, within `running`."""

    def __init__(self, app: ASGIApp, store: Database, files: FileStore, config: Config) -> None:
        lease, limits = Lease(new_id("gateway_")), config.limits
        self._context = BatchContext(app, store, files, lease, limits.batch_lines, limits.body_bytes)
        self._drain_seconds = config.server.drain_seconds
        self._runs: dict[str, BatchRun] = {}
        self._tasks = set[asyncio.Task[None]]()
        self._news, self._over, self._stopping = asyncio.Event(), False, False

    def wake(self) -> None:
        """Look at the store at once: a batch was created or cancelled here."""
        self._news.set()

    @asynccontextmanager
    async def running(self, stopping: asyncio.Event) -> AsyncIterator[None]:
        """Run batches within the block, until `stopping` is set."""
        holding, ending = asyncio.create_task(self._hold_for_ever()), asyncio.create_task(self._end(stopping))
        try:
            yield
        finally:
            stopping.set()
            await ending
            self._over = True
            self.wake()
            await holding

    async def _end(self, stopping: asyncio.Event) -> None:
        """Wait for the stop; then let lines end for `drain_seconds`, and cancel the rest."""
        await stopping.wait()
        self._stopping = True
        for run in self._runs.values():
            run.pause()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._drain_seconds)
        for run in self._runs.values():
            run.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _hold_for_ever(self) -> None:
        rounds = -1  # the first round is number 0
        while not self._over:
            woken, rounds = self._news.is_set(), rounds + 1
            self._news.clear()
            with survive("the renewal of batches"), suppress(StoreFailed):  # the code that needs the store reports it
                for id, run in [*self._runs.items()]:
                    await self._hold(id, run)
                if (woken or rounds % _ORPHANS == 0) and not self._stopping:
                    await self._claim()
            with suppress(TimeoutError):
                async with asyncio.timeout(_HELD):
                    await self._news.wait()

    async def _hold(self, id: str, run: BatchRun) -> None:
        async with self._context.store.writing() as db:
            batch = await batches.renew(db, self._context.batch_lease(), id)
        run.update(batch)  # which means nothing to a run that has ended meanwhile

    async def _claim(self) -> None:
        store, lease, room = self._context.store, self._context.batch_lease(), _MAX - len(self._runs)
        if not (room and store.exists()):
            return
        async with store.reading() as db:
            due = await batches.has_due(db, lease.now)
        if due:
            async with store.writing() as db:
                found = await batches.claim(db, lease, room)
            for tenant, batch in found:
                self._begin(tenant, batch)

    def _begin(self, tenant: str, batch: Batch) -> None:
        run = self._runs[batch.id] = BatchRun(self._context, tenant, batch)
        task = asyncio.create_task(self._run(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, run: BatchRun) -> None:
        id = run.batch.id
        try:
            await run.run()
            if run.is_interrupted:
                async with self._context.store.writing() as db:
                    await batches.release(db, id, self._context.lease.holder)
        except BatchLost:
            pass  # another process continues it
        except StoreFailed as error:
            _log.warning("batch %s is interrupted, and continues later: %s", id, error)
        except Exception:  # noqa: BLE001 - the next process gets the batch
            _log.exception("batch %s is interrupted, and continues later", id)
        finally:
            del self._runs[id]
            self.wake()
