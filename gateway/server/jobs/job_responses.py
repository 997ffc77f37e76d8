"""Build the responses about a job: its acceptance, or its events."""

import asyncio
from contextlib import aclosing, suppress

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.errors import UpstreamUnavailable
from gateway.server.http.client_connection import CancelOnDisconnect, JsonBytesResponse, send_event_stream
from gateway.server.jobs.job import BackgroundJob
from gateway.server.jobs.job_manager import JobManager
from gateway.server.jobs.log_tail import subscribe
from gateway.store.database import Database


class JobResponder:
    """Respond to the client that started a job.

    seconds: of silence before a keep-alive comment; 0: none is sent.
    """

    def __init__(self, job: BackgroundJob, store: Database, seconds: float) -> None:
        self._job, self._store, self._seconds = job, store, seconds

    async def run(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Send the response; return True at a good end.  Raise the failure of a job that is not accepted.

        A client that disconnects before it knows the job's id cancels the job.
        """
        try:
            with CancelOnDisconnect(scope, receive):
                return await self._send_response(scope, receive, send)
        except ClientDisconnect:
            if not self._job.accepted.done():
                self._job.cancel()
            return False

    async def _send_response(self, scope: Scope, receive: Receive, send: Send) -> bool:
        job = self._job
        await asyncio.wait((job.accepted,))
        if job.accepted.cancelled():
            raise UpstreamUnavailable("The gateway is stopping.")
        headers = job.accepted.result()
        if not job.streamed:
            await JsonBytesResponse(job.queued_response, headers=headers)(scope, receive, send)
            return True
        async with aclosing(subscribe(self._store, job.id, job.tail, -1, self._seconds)) as pieces:
            await send_event_stream(pieces, headers, send)
        return job.well


class JobEventsResponse(Response):
    """Stream the events after number `after`, then the new ones, to a client that resumes a stream.

    newest: the last event that is stored, or an earlier one.
    """

    def __init__(self, jobs: JobManager, id: str, after: int, newest: int, seconds: float) -> None:
        super().__init__()
        self._jobs, self._id, self._after, self._newest, self._seconds = jobs, id, after, newest, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        jobs, id = self._jobs, self._id
        with suppress(ClientDisconnect), CancelOnDisconnect(scope, receive):
            async with (
                jobs.open_log(id, self._newest) as tail,
                aclosing(subscribe(jobs.store, id, tail, self._after, self._seconds)) as pieces,
            ):
                await send_event_stream(pieces, {}, send)
