"""Manage the jobs of this process: start, hold, follow and cancel them, and end them with the process.

A RemoteLog watches the log of another process's job in the store, for its subscribers here.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from math import inf
from typing import Any

from starlette.types import Scope

from gateway.api.responses import event_stream
from gateway.config import Config
from gateway.errors import STOPPED, GatewayError, Problem, StoreFailed, UpstreamUnavailable
from gateway.server.ids import new_id
from gateway.server.jobs.job import BackgroundJob
from gateway.server.jobs.log_tail import LogTail
from gateway.server.jobs.log_writer import CHANNEL, JobContext, JobLost, Lease, LogWriter
from gateway.server.jobs.recovery import fail_job, recover_job
from gateway.server.observability.logs import survive
from gateway.server.observability.request_record import RESPONSES, set_record
from gateway.server.observability.telemetry import Telemetry
from gateway.server.relay.responses_request import ResponseIdentity, ResponsesRequest
from gateway.server.relay.retry_policy import RetryPolicy
from gateway.store import event_logs, jobs, records
from gateway.store.database import Database
from gateway.store.records import LogRow

_ROWS = 256  # at a time
_OFTEN, _SELDOM = 0.2, 2.0  # seconds between reads, without and with notifications of the database
_log = logging.getLogger("gateway")
_HELD = 1.0  # seconds between two renewals of the leases, which also read cancellations
_ORPHANS = 5  # renewals between two searches for jobs without a process
_MAX = 16  # jobs claimed at a time
_MAX_WAIT = 0.1  # seconds between two looks at a job that is to end
_WISH = "!"  # before a job's id in a notification: its process has to read the job's state
_DELETED = Problem(404, "This response was deleted, or its events have expired.")
_SCOPE: Scope = {"type": "http", "headers": []}  # of a request without a client

JobInput = tuple[ResponsesRequest, RetryPolicy]
# Parse the stored request of a job again; resources of the request go into the stack.
RebuildRequest = Callable[[records.StoredJob, ResponseIdentity, AsyncExitStack], Awaitable[JobInput]]


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
        if not running and newest is None:
            number = self.tail.last + 1
            self.tail.add(LogRow(number, number, event_stream.error_event(_DELETED, number)))
        if not running:
            self.tail.end(whole=True)


def _behind(row: LogRow, after: int) -> LogRow:
    """Return the part of a row after event `after`: a packed log has a single row with all events."""
    return (
        row if row.first > after else LogRow(after + 1, row.last, event_stream.events_after(row.data, row.first, after))
    )


class JobManager:
    """The jobs of a process; usable within `running`.

    rebuild: parses the stored request of a job that is taken over from another process.
    """

    def __init__(self, store: Database, config: Config, rebuild: RebuildRequest, telemetry: Telemetry) -> None:
        lease, settings = Lease(new_id("gateway_")), config.responses
        self._context = JobContext(store, lease, LogWriter(store, lease), settings.resume_seconds, settings.log_bytes)
        self.store, self._holder, self._config, self._rebuild = store, lease.holder, config, rebuild
        self._telemetry = telemetry
        self._running: dict[str, BackgroundJob] = {}
        self._watches: dict[str, RemoteLog] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._others: set[asyncio.Task[None]] = set()
        self._soon, self._stopping = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Event]:
        """Run the jobs within the block; the yielded event stops them.

        Once it is set, running jobs have `drain_seconds` to end.
        """
        listening = self.store.listen(CHANNEL, self._on_notification)
        beside = [*map(asyncio.create_task, (self._context.log_writer.run(), self._hold_for_ever(), listening))]
        ending = asyncio.create_task(self._end())
        try:
            yield self._stopping
        finally:
            self._stopping.set()
            await ending
            await asyncio.gather(*self._others, return_exceptions=True)
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)  # the caller closes the store next

    async def _end(self) -> None:
        """Wait for the stop; then let jobs end for `drain_seconds`, and stop the rest."""
        await self._stopping.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.server.drain_seconds):
                await self.wait_idle()
        await self._stop()

    async def wait_idle(self) -> None:
        """Return when no job runs here."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def _stop(self) -> None:
        """End all jobs at once: another process repeats the jobs that have sent no output."""
        running, self._running = self._running, {}
        for job in running.values():
            self._lose(job)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.gather(*map(self._hand_over, running.values()))
        for watch in self._watches.values():
            watch.tail.end(whole=False)

    # Start

    async def start(
        self, scope: Scope, raw: bytes, tenant: str, job_input: JobInput, held: AsyncExitStack
    ) -> BackgroundJob | None:
        """Start the job for a request and return it; it takes over the resources in `held`.

        Return None if the store fails or the gateway stops: the caller then responds without a job.  A background
        request raises StoreFailed or UpstreamUnavailable instead.
        """
        job = BackgroundJob(self._context, tenant, job_input[0])
        try:
            if self._stopping.is_set():
                raise UpstreamUnavailable("The gateway is stopping.")
            await job.open(raw)
        except (StoreFailed, UpstreamUnavailable):
            if job.background:
                raise
            return None
        self._begin(job, scope, job_input[1], held.pop_all())
        return job

    def _begin(self, job: BackgroundJob, scope: Scope, targets: RetryPolicy, held: AsyncExitStack) -> None:
        self._running[job.id] = job
        self._tasks[job.id] = self._beside(self._run(job, scope, targets, held))

    async def _run(self, job: BackgroundJob, scope: Scope, targets: RetryPolicy, held: AsyncExitStack) -> None:
        try:
            async with held:
                await job.run(scope, targets, self._config)
        except Exception as error:
            if job.accepted.done():
                raise
            job.accepted.set_exception(error)
        finally:
            job.accepted.cancel()
            del self._tasks[job.id]
            with suppress(KeyError):  # missing if it is being handed over
                self._running.pop(job.id).tail.end(whole=False)
        with suppress(StoreFailed):  # an unpacked log only takes more room
            await job.archive_log()

    # Follow, cancel and delete

    @asynccontextmanager
    async def open_log(self, id: str, newest: int) -> AsyncIterator[LogTail]:
        """Yield the log of a job of any process; `newest`: the last event in the store, or an earlier one."""
        if job := self._running.get(id):
            yield job.tail
            return
        if not (watch := self._watches.get(id)):
            watch = self._watches[id] = RemoteLog(self._context, id, newest)
        watch.users += 1
        try:
            yield watch.tail
        finally:
            watch.users -= 1
            if not watch.users:
                watch.close()
                del self._watches[id]

    async def cancel(self, tenant: str, id: str) -> None:
        """Cancel a job; return when it has ended in any way.  Raises StoreFailed."""
        async with self.store.writing() as db:
            found = await jobs.cancel(db, tenant, id)
            await jobs.notify(db, CHANNEL, [_WISH + id])
        if job := self._running.get(id):
            job.cancel()
        while found:
            await self._adopt([id])
            await asyncio.sleep(_MAX_WAIT)
            async with self.store.reading() as db:
                found = await jobs.job_state(db, id) is not None

    # Leases

    async def _hold_for_ever(self) -> None:
        """Renew the leases, and adopt jobs without a process.

        After a failure of the store, other processes get the time of a lease to renew theirs before any job is adopted.
        """
        now, patient, rounds = asyncio.get_running_loop().time, 0.0, count()
        while True:
            looks = next(rounds) % _ORPHANS == 0 and now() >= patient and not self._stopping.is_set()
            with survive("the renewal of leases"):
                try:
                    if self._running or self._watches:
                        await self._hold()
                    if looks and await self._orphaned():
                        await self._adopt()
                except StoreFailed:  # the code that needs the store reports it
                    patient = now() + self._context.lease.seconds
            with suppress(TimeoutError):
                async with asyncio.timeout(_HELD):
                    await self._soon.wait()
            self._soon.clear()

    async def _hold(self) -> None:
        """Renew the leases and note jobs with subscribers; stop jobs that were taken, cancelled or abandoned."""
        opened = dict(self._running)
        now, lease = self._context.lease.times()
        if wanted := {id for id, job in opened.items() if job.has_subscribers} | self._watches.keys():
            async with self.store.writing() as db:
                await jobs.extend_wanted_until(db, wanted, now + self._context.resume_seconds * 1000)
        async with self.store.writing() as db:
            held = await jobs.renew_leases(db, self._holder, now, lease, opened)
        for id, job in opened.items():
            if id not in held:
                if not job.ends:
                    self._lose(job)
            elif held[id].cancelled or (held[id].wanted_until or inf) < now:
                job.cancel()

    def _on_notification(self, text: str) -> None:
        """Handle a notification: a job's log has grown, or a job of this process was cancelled."""
        if watch := self._watches.get(text):
            watch.check_now()
        elif text.removeprefix(_WISH) in self._running and text.startswith(_WISH):
            self._soon.set()

    def _lose(self, job: BackgroundJob) -> None:
        job.mark_lost()
        if task := self._tasks.get(job.id):
            task.cancel()

    # Take over, hand over

    async def _orphaned(self) -> bool:
        if not self.store.exists():
            return False
        async with self.store.reading() as db:
            return await jobs.has_due(db, self._context.lease.times()[0])

    async def _adopt(self, ids: Sequence[str] | None = None) -> None:
        """Claim jobs without a process; a job that runs here and was renewed late simply continues."""
        async with self.store.writing() as db:
            found = await jobs.claim(db, self._holder, *self._context.lease.times(), _MAX, ids)
        for one in found:
            if one.id not in self._running:
                self._beside(self._take_over(one))

    async def _take_over(self, found: records.StoredJob) -> None:
        with suppress(StoreFailed, JobLost):  # its lease expires, and it is claimed again
            begun = await recover_job(self._context, found, LogTail())
            if begun is None:
                return
            identity = ResponseIdentity(found.id, begun.created)
            try:
                async with AsyncExitStack() as held:
                    request, targets = await self._rebuild(found, identity, held)
                    job = BackgroundJob(self._context, found.tenant, request, begun.events_sent)
                    job.accepted.set_result({})  # its client may know its id
                    self._begin(job, self._observed(found, request, held), targets, held.pop_all())
            except StoreFailed:
                raise
            except GatewayError as error:
                await fail_job(self._context, found, LogTail(), error.problem)

    def _observed(self, found: records.StoredJob, request: ResponsesRequest, held: AsyncExitStack) -> Scope:
        """Return the scope of a request without a client, with a record that holds the status 200."""
        record, scope = self._telemetry.begin(new_id("req_"), RESPONSES), {**_SCOPE}
        held.callback(record.release)
        record.key, record.ledger, record.usage, record.status = found.tenant, request.ledger, request.usage, 200
        set_record(scope, record)
        return scope

    async def _hand_over(self, job: BackgroundJob) -> None:
        with suppress(StoreFailed, JobLost):  # its lease expires instead
            async with self.store.writing() as db:
                await jobs.release(db, job.id, self._holder)
                found = await jobs.claim(db, self._holder, *self._context.lease.times(), 1, [job.id])
            for one in found:
                if await recover_job(self._context, one, job.tail, STOPPED) is not None:
                    async with self.store.writing() as db:
                        await jobs.release(db, job.id, self._holder)
        job.tail.end(whole=False)

    def _beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._others.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("a response failed", exc_info=error)
