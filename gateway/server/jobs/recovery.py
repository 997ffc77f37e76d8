"""Recover jobs of dead processes: end them where they stopped, or repeat them if no client has seen any output."""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gateway.api.body import known
from gateway.api.responses import event_stream
from gateway.api.responses.event_stream import final_event
from gateway.api.responses.log_replay import LogReplay
from gateway.errors import CANCELLED, Problem
from gateway.server.jobs.log_tail import LogTail
from gateway.server.jobs.log_writer import JobContext, JobLost
from gateway.store import conversations, event_logs, jobs, responses
from gateway.store.records import LogRow, StoredJob, StoredResponse

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

DIED = Problem(500, "The gateway process that generated this response has stopped.", "server_error")
_TRIES = 3
_ROWS = 256  # at a time
_RUNNING = ("queued", "in_progress")


class RestartPoint(Struct, frozen=True):
    """The state of a response that is to be repeated.

    created: Unix seconds; events_sent: the number of events in its log.
    """

    created: int
    events_sent: int


async def recover_job(
    context: JobContext, job: StoredJob, tail: LogTail, problem: Problem = DIED
) -> RestartPoint | None:
    """End a job that this process has claimed, or return the point from which the caller has to repeat it.

    problem: the reason of the end, unless the job was cancelled.  Raises StoreFailed or JobLost.
    """
    await context.log_writer.write(job.id, tail, None)  # after all writes for the job that are pending in this process
    kept = await _found(context, job)
    fold = await _folded(context, kept)
    if kept.body["status"] not in _RUNNING:
        response = await _whole(context, kept)
        await _end(
            context,
            job,
            tail,
            kept,
            fold.next_event_number,
            b"" if fold.ended else final_event(response, fold.next_event_number),
        )
    elif fold.ended:
        await _finish(context, job, {**fold.ended, "store": True})
        await _end(context, job, tail, kept, fold.next_event_number, b"")
    elif not fold.has_output and not job.cancelled and kept.body["background"] and job.attempts <= _TRIES:
        return RestartPoint(kept.body["created_at"], fold.next_event_number)
    elif not fold.next_event_number and not kept.body["background"]:
        await _forget(context, job, kept)
    else:
        await _break_off(context, job, tail, kept, fold, CANCELLED if job.cancelled else problem)
    return None


async def fail_job(context: JobContext, job: StoredJob, tail: LogTail, problem: Problem) -> None:
    """End a job that could not be repeated; raises StoreFailed or JobLost."""
    kept = await _found(context, job)
    await _break_off(context, job, tail, kept, await _folded(context, kept), problem)


async def _break_off(
    context: JobContext, job: StoredJob, tail: LogTail, kept: StoredResponse, fold: LogReplay, problem: Problem
) -> None:
    """End a response in the usual order: log the closing events, store the response, log its last event."""
    first = fold.next_event_number
    record, output = fold.fail(problem)
    if row := _row(job, first, output):
        await context.log_writer.write(job.id, tail, row)
    await _finish(context, job, record)
    await _end(context, job, tail, kept, fold.next_event_number, fold.close(stored=True))


async def _found(context: JobContext, job: StoredJob) -> StoredResponse:
    async with context.store.reading() as db:
        kept = await responses.find(db, job.tenant, job.id)
    if not kept:
        raise JobLost
    return kept


async def _whole(context: JobContext, kept: StoredResponse) -> dict[str, Any]:
    async with context.store.reading() as db:
        return await responses.response_object(db, kept)


async def _folded(context: JobContext, kept: StoredResponse) -> LogReplay:
    fold = LogReplay(kept.body)
    while True:
        async with context.store.reading() as db:
            rows = await event_logs.read(db, kept.id, fold.next_event_number - 1, _ROWS)
        if not rows:
            return fold
        for row in rows:
            fold.feed(row.data)


async def _finish(context: JobContext, job: StoredJob, record: dict[str, Any]) -> None:
    """Store the final response, outside its conversation, which may have continued without it."""
    async with context.store.writing() as db:
        now = await _hold(context, job, record, db)
        finished = await responses.finish(db, job.tenant, record, None, now // 1000)
        assert finished, "no other process removes it now"


async def _forget(context: JobContext, job: StoredJob, kept: StoredResponse) -> None:
    async with context.store.writing() as db:
        await _hold(context, job, kept.body, db)
        await responses.forget(db, job.id)


async def _hold(context: JobContext, job: StoredJob, body: dict[str, Any], db: "AsyncConnection") -> int:
    """Renew the lease and release the conversation; return the current time in milliseconds.  Raises JobLost."""
    now, lease = context.lease.times()
    if not await jobs.renew_leases(db, context.lease.holder, now, lease, [job.id]):
        raise JobLost
    if conversation := body["conversation"]:
        await conversations.release(db, conversation["id"], job.id)
    return now


async def _end(
    context: JobContext, job: StoredJob, tail: LogTail, kept: StoredResponse, first: int, output: bytes
) -> None:
    """Log the last event, and archive the log."""
    await context.log_writer.write(job.id, tail, _row(job, first, output), last=True)
    tail.end(whole=True)
    await context.archive_log(job.id, background=kept.body["background"])


def _row(job: StoredJob, first: int, output: bytes) -> LogRow | None:
    """Return the last row of a log; None for a response without a stream."""
    if not output or not known(job.request).get("stream"):
        return None
    return LogRow(first, first + event_stream.count_events(output) - 1, output)
