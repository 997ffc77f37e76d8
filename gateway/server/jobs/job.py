"""Run a response without a waiting client: the job is its own client, and writes the response to its log."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace
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
from gateway.server.relay.model_request import JobPlan, ModelRequest
from gateway.server.relay.responder import Responder
from gateway.server.relay.retry_policy import RetryPolicy
from gateway.store import event_logs, jobs, responses
from gateway.store.records import LogRow

_WELL = ("completed", "incomplete")
_OURS = b"x-gateway-"


class BackgroundJob:
    """`open`, then `run`; meanwhile others may `cancel` it, or say that it is `lost`.

    accepted: the headers of its answer, or why there will be none; from then on its client knows its id.
    tail: what followers get.  status: how it ended, as soon as that is stored.
    """

    def __init__(self, desk: JobContext, tenant: str, lasting: JobPlan, told: int = 0) -> None:
        self._desk, self._tenant, self._lasting = desk, tenant, lasting
        self._told = told  # events, by now
        self._logged = 0  # bytes
        self.id, self.tail = lasting.id, LogTail(told - 1)
        self.accepted: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self.accepted.add_done_callback(lambda it: it.cancelled() or it.exception())  # no caller may be left to ask
        self.status = ""
        self._left = asyncio.Event()
        self.ends = self._lost = False  # ends: from here on it is not to be broken off

    @property
    def streamed(self) -> bool:
        return self._lasting.streamed

    @property
    def has_subscribers(self) -> bool:
        """Return True if a subscriber follows it, or waits for its beginning."""
        return self.tail.followers > 0 or not self.accepted.done()

    @property
    def queued_response(self) -> dict[str, Any]:
        """The Response as it was accepted."""
        return self._lasting.queued

    @property
    def well(self) -> bool:
        return self.status in _WELL

    async def open(self, request: bytes) -> None:
        """Store that it has begun, with its request, for a process that repeats it; raise StoreFailed."""
        now, lease = self._desk.lease.times()
        wanted = None if self._lasting.background else now + self._desk.resume_seconds * 1000
        async with self._desk.store.writing() as db:
            await self._lasting.open(db)
            await jobs.begin(
                db, self._tenant, self.id, storable_body(request), self._desk.lease.holder, now, lease, wanted
            )

    async def run(self, scope: Scope, question: ModelRequest, ways: RetryPolicy, config: Config) -> None:
        """Raises a GatewayError if it is not to be accepted; all that happens afterwards is told to followers."""
        seen = record_of(scope)
        own = replace(
            question, store=self._keep, encoder=self._encoder, on_accepted=self._accept, on_tools_start=self._act
        )
        with suppress(JobLost):
            try:
                await Responder(HttpRequest(scope, self._receive), own, ways, config).run(self._send)
            except GatewayError as error:
                error.problem = seen.problem = question.localize_problem(error.problem)
                await self._broken(error.problem, own, ways)
                if not self.accepted.done():
                    raise
            else:
                if not self.ends:
                    seen.problem = CANCELLED
                    await self._broken(CANCELLED, own, ways)

    async def archive_log(self) -> None:
        """Pack its log, once it is written and stored as a whole; raise StoreFailed."""
        if self.tail.whole and self.status and self.streamed:
            await self._desk.archive_log(self.id, background=self._lasting.background)

    def cancel(self) -> None:
        """End it as cancelled, unless it is ending anyway."""
        self._left.set()

    def mark_lost(self) -> None:
        """Store nothing more, as another process has the job.  The end of its task follows."""
        self._lost = True

    # its client

    async def _receive(self) -> Message:
        await self._left.wait()
        if self.ends:
            await asyncio.Event().wait()  # for ever: what is being stored is not to be broken off
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if not self.accepted.done():
                ours = [header for header in message["headers"] if header[0].startswith(_OURS)]
                self.accepted.set_result({name.decode(): value.decode() for name, value in ours})
        else:
            await self._tell(message["body"])

    # its question

    async def _accept(self, head: Callable[[], dict[str, str]]) -> bool:
        """Accept the job after all checks; in the background the client waits no longer."""
        if self._lasting.background and not self.accepted.done():
            self.accepted.set_result(head())
            await self._tell(self._lasting.opening)
        return self.accepted.done()

    def _encoder(self, model: ModelSettings) -> ResponseEncoder:
        return self._lasting.encoder(model, self._told)

    async def _act(self) -> None:
        async with self._desk.store.writing() as db:
            if not await jobs.renew_leases(db, self._desk.lease.holder, *self._desk.lease.times(), [self.id]):
                raise JobLost
            await jobs.mark_acting(db, self.id)

    async def _keep(self, record: dict[str, Any]) -> None:
        self.ends = True
        if self._lost:
            raise JobLost
        async with self._desk.store.writing() as db:
            held = await jobs.renew_leases(db, self._desk.lease.holder, *self._desk.lease.times(), [self.id])
            if not held or not await self._lasting.finish(db, record):
                raise JobLost
        self.status = record["status"]

    # its log

    async def _tell(self, data: bytes) -> None:
        """Log whole frames, if any; they are the last if they end in [DONE], which followers get without the log."""
        if self._lost:
            raise JobLost
        if not data:
            return
        last, data = data.endswith(event_stream.DONE), data.removesuffix(event_stream.DONE)
        row = LogRow(self._told, self._told + event_stream.count_events(data) - 1, data)
        self._told = row.last + 1
        over = last and bool(self.status)  # where it could not be stored, the next process tries again
        if self.streamed:
            await self._desk.scribe.write(self.id, self.tail, row, last=over)
            await self._bound(len(data))
        elif over:
            await self._desk.scribe.write(self.id, self.tail, None, last=True)
        if last:
            self.tail.end(whole=True)

    async def _bound(self, added: int) -> None:
        """Half of a log that has grown too long goes, the older one."""
        self._logged += added
        if self._logged > self._desk.most_bytes:
            self._logged = self._desk.most_bytes // 2
            with suppress(StoreFailed):  # the next time may be early enough
                async with self._desk.store.writing() as db:
                    await event_logs.trim(db, self.id, self._logged)

    # failures

    async def _broken(self, problem: Problem, question: ModelRequest, ways: RetryPolicy) -> None:
        """Store a failure that the job could not report itself."""
        if not self.accepted.done():
            await self._discard()
            return
        endpoint = self._encoder(ways.served.settings)
        output = endpoint.start() + endpoint.encode(Failure(problem))
        record = endpoint.stored_object()
        assert record, "what outlives its client is stored"
        await self._tell(output)
        await self._tell(endpoint.close(kept=await question.kept(record)))

    async def _discard(self) -> None:
        """Remove a job that no client knows of."""
        with suppress(StoreFailed):  # the next process sees as much
            async with self._desk.store.writing() as db:
                if await jobs.renew_leases(db, self._desk.lease.holder, *self._desk.lease.times(), [self.id]):
                    await responses.forget(db, self.id)
