"""Run a response without a waiting client: the job takes the client's place and writes the response to its log."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request as HttpRequest
from starlette.types import Message, Scope

from gateway.api.responses import event_stream, storable_body
from gateway.config import Config, ModelSettings
from gateway.errors import CANCELLED, GatewayError, Problem, StoreFailed
from gateway.events import Failure
from gateway.pipeline.pipeline import ResponseEncoder
from gateway.server.jobs.log_tail import LogTail
from gateway.server.jobs.log_writer import JobContext, JobLost
from gateway.server.observability.request_record import record_of
from gateway.server.relay.model_request import ModelRequest
from gateway.server.relay.responder import Responder
from gateway.server.relay.responses_request import ResponsesRequest
from gateway.server.relay.retry_policy import RetryPolicy
from gateway.server.tools import Toolset
from gateway.store import event_logs, jobs, responses
from gateway.store.records import LogRow, NewJob

_WELL = ("completed", "incomplete")
_OURS = b"x-gateway-"
_T = TypeVar("_T")


class JobRequest(ModelRequest):
    """The request of a job: the job accepts, encodes and stores the response."""

    def __init__(self, original: ResponsesRequest, job: "BackgroundJob") -> None:
        super().__init__(original.request, original.ledger, original.memory, original.pdfs, original.sticky)
        self.conversation, self.compaction = original.conversation, original.compaction
        self.pipelines, self.room, self._original, self._job = original.pipelines, original.room, original, job

    def encoder(self, model: ModelSettings) -> ResponseEncoder:
        return self._job.encoder(model)

    async def store(self, record: dict[str, Any]) -> None:
        await self._job.store(record)

    def toolset(self, model: ModelSettings) -> Toolset | None:
        return self._original.toolset(model)

    async def accept(self, headers: Callable[[], dict[str, str]]) -> bool:
        return await self._job.accept(headers)

    async def on_tools_start(self) -> None:
        await self._job.mark_tools_running()


class BackgroundJob:
    """A response that outlives the connection of its client: `open` it, then `run` it.

    accepted: the headers of its response, or the error of a job that was not accepted.  Once accepted, its client knows
    its id.
    tail: the events for subscribers; status: the final status, as soon as it is stored.
    ends: the end of the response is being stored, so the job can no longer be cancelled.
    """

    def __init__(self, context: JobContext, tenant: str, request: ResponsesRequest, events_sent: int = 0) -> None:
        self._context, self._tenant, self._request = context, tenant, request
        self._events_sent = events_sent
        self._logged = 0  # bytes
        self.id, self.tail = request.identity.id, LogTail(events_sent - 1)
        self.background, self.streamed = request.params.background, request.params.streamed
        self.accepted: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self.accepted.add_done_callback(lambda it: it.cancelled() or it.exception())  # marks the error as read
        self.status = ""
        self._left = asyncio.Event()
        self.ends = self._lost = False

    @property
    def has_subscribers(self) -> bool:
        """True if a subscriber follows the job, or a client waits for its acceptance."""
        return self.tail.followers > 0 or not self.accepted.done()

    @property
    def queued_response(self) -> dict[str, Any]:
        """The Response object as it was accepted."""
        return self._request.created_events[0]

    @property
    def well(self) -> bool:
        """True if the response has ended as completed or incomplete."""
        return self.status in _WELL

    async def open(self, request: bytes) -> None:
        """Store the job with its request, so that another process can repeat it; raise StoreFailed.

        The write shares a transaction with others and ends even if this call is cancelled.  The job is removed then.
        """
        now, lease = self._context.lease.times()
        wanted = None if self.background else now + self._context.resume_seconds * 1000
        holder, body = self._context.lease.holder, storable_body(request)
        new = NewJob(self._tenant, self.id, body, holder, now, lease, wanted)
        try:
            await _uninterrupted(self._request.open_job(new))
        except asyncio.CancelledError:
            await self._discard()
            raise

    async def run(self, scope: Scope, targets: RetryPolicy, config: Config) -> None:
        """Run the response; raise GatewayError if the job is not accepted.

        The log reports later failures to subscribers.
        """
        record, request = record_of(scope), JobRequest(self._request, self)
        with suppress(JobLost):
            try:
                await Responder(HttpRequest(scope, self._receive), request, targets, config).run(self._send)
            except GatewayError as error:
                error.problem = record.problem = self._request.localizer()(error.problem)
                await self._fail(error.problem, request, targets)
                if not self.accepted.done():
                    raise
            else:
                if not self.ends:
                    record.problem = CANCELLED
                    await self._fail(CANCELLED, request, targets)

    async def archive_log(self) -> None:
        """Pack or expire the log, once it is complete and the response is stored; raise StoreFailed."""
        if self.tail.whole and self.status and self.streamed:
            await self._context.archive_log(self.id, background=self.background)

    def cancel(self) -> None:
        """End the job as cancelled, unless its end is already being stored."""
        self._left.set()

    def mark_lost(self) -> None:
        """Store nothing more, as another process has the job.  The caller cancels its task next."""
        self._lost = True

    # ASGI: the client of the request

    async def _receive(self) -> Message:
        await self._left.wait()
        if self.ends:
            await asyncio.Event().wait()  # for ever: the end is being stored and must not be interrupted
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if not self.accepted.done():
                ours = [header for header in message["headers"] if header[0].startswith(_OURS)]
                self.accepted.set_result({name.decode(): value.decode() for name, value in ours})
        else:
            await self._append(message["body"])

    # Callbacks of the request

    async def accept(self, headers: Callable[[], dict[str, str]]) -> bool:
        """Accept the job after all checks; the client of a background job waits no longer."""
        if self.background and not self.accepted.done():
            self.accepted.set_result(headers())
            await self._append(self._request.created_events[1])
        return self.accepted.done()

    def encoder(self, model: ModelSettings) -> ResponseEncoder:
        """Return the encoder of the events that are not sent yet."""
        return self._request.encoder_after(self._events_sent, model)

    async def mark_tools_running(self) -> None:
        """Store that tools run, so that no other process repeats the job.  Raise JobLost."""
        async with self._context.store.writing() as db:
            if not await jobs.renew_leases(db, self._context.lease.holder, *self._context.lease.times(), [self.id]):
                raise JobLost
            await jobs.mark_acting(db, self.id)

    async def store(self, record: dict[str, Any]) -> None:
        """Store the end of the response.  Raise JobLost if another process has the job.

        The write shares a transaction with others and ends even if this call is cancelled: later writes for the job
        follow it.
        """
        self.ends = True
        if self._lost or not await _uninterrupted(self._request.finish_job(record, self._context.lease.holder)):
            raise JobLost
        self.status = record["status"]

    # The log

    async def _append(self, data: bytes) -> None:
        """Log whole frames, if any; [DONE] marks the last ones and is not stored in the log."""
        if self._lost:
            raise JobLost
        if not data:
            return
        last, data = data.endswith(event_stream.DONE), data.removesuffix(event_stream.DONE)
        row = LogRow(self._events_sent, self._events_sent + event_stream.count_events(data) - 1, data)
        self._events_sent = row.last + 1
        over = last and bool(self.status)  # if the response could not be stored, another process recovers the job
        if self.streamed:
            await self._context.log_writer.write(self.id, self.tail, row, last=over)
            await self._bound(len(data))
        elif over:
            await self._context.log_writer.write(self.id, self.tail, None, last=True)
        if last:
            self.tail.end(whole=True)

    async def _bound(self, added: int) -> None:
        """Remove the older half of a log that has grown too long."""
        self._logged += added
        if self._logged > self._context.most_bytes:
            self._logged = self._context.most_bytes // 2
            with suppress(StoreFailed):  # a later call may succeed
                async with self._context.store.writing() as db:
                    await event_logs.trim(db, self.id, self._logged)

    # Failures

    async def _fail(self, problem: Problem, request: ModelRequest, targets: RetryPolicy) -> None:
        """Store a failure that the job could not report itself."""
        if not self.accepted.done():
            await self._discard()
            return
        encoder = self.encoder(targets.served.settings)
        output = encoder.start() + encoder.encode((Failure(problem),))
        record = encoder.stored_object()
        assert record, "what outlives its client is stored"
        await self._append(output)
        await self._append(encoder.close(stored=await request.store_or_warn(record)))

    async def _discard(self) -> None:
        """Remove a job that was never accepted."""
        with suppress(StoreFailed):  # recovery in another process removes it
            async with self._context.store.writing() as db:
                if await jobs.renew_leases(db, self._context.lease.holder, *self._context.lease.times(), [self.id]):
                    await responses.forget(db, self.id)


async def _uninterrupted(work: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of the work; a cancelled caller waits for its end first."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        task.exception()  # marks the error as read
        raise
    finally:
        del task  # the traceback of its error has this frame: a cycle with the request
