"""One upstream call: its timeouts, and waits that end without ending the call."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import closing, suppress
from math import inf
from time import perf_counter, time
from types import MappingProxyType
from typing import Any, Protocol

from msgspec.structs import replace

from gateway.backends.openai import error_mapping
from gateway.errors import Problem, UpstreamError, UpstreamFailed, UpstreamTimeout
from gateway.server.http.content_decoder import decode_beginning
from gateway.server.observability import logs
from gateway.server.observability.request_record import RequestRecord
from gateway.server.upstream import DataCallback, PendingPost, UpstreamResponse
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.slots import QueueIdentity, Slot
from gateway.warnings import safe_name

_log = logging.getLogger("gateway")
_EXCERPT = 300  # bytes of an error's body that the log shows
_REFUSAL_LIMIT = 1 << 20  # bytes of an error's body that are read
_REFUSAL_SECONDS = 5.0  # timeout for reading it


_NOBODY = QueueIdentity()


class UpstreamCall(Protocol):
    """The interface of an upstream call."""

    def ready(self, seconds: float = inf, callback: DataCallback | None = None, /) -> Awaitable[bool]:
        """Wait until `read` has data; return False after `seconds`, without ending the call.

        callback: gets data that arrives meanwhile, see DataOutcome.  Raises UpstreamError; the failure is reported
        already.
        """

    def read(self) -> bytes:
        """Return the data since the last call, b"" at the end; call it only after `ready` returned True.

        Raises UpstreamError; the failure is reported already.
        """

    @property
    def over(self) -> bool:
        """True if all data was read.  False if it was not, or if only another `read` can tell."""

    def report_outcome(self, problem: Problem | None) -> None:
        """Report the outcome to the backend's health: None for a response that began or ended well."""

    def close(self) -> None:
        """Release the slot and the connection."""


class HttpUpstreamCall:
    """An upstream call over HTTP; the code that creates it has to close it.

    set_content_type: called with the content type of a good response, before its first byte.
    path: "" for the chat path of the backend; identity: the tenant in its queue; record: the record of the request.
    headers: those of the client that the backend gets; set before the first `ready`.
    """

    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        backend: Backend,
        body: bytes,
        set_content_type: Callable[[str], None],
        path: str = "",
        identity: QueueIdentity = _NOBODY,
        record: RequestRecord | None = None,
    ) -> None:
        self._backend, self._timeouts, self._set_content_type = backend, backend.timeouts, set_content_type
        self._slot = Slot(backend.limiter, identity)
        self._response: UpstreamResponse | None = None  # only a good one
        self._start_deadlines()
        self._path, self._body = path or backend.dialect.path, body
        self._recorder = (
            record.recorder.record_call(backend.name, self._path, body) if record and record.recorder else None
        )
        self._trace_step = record.trace.attempt(backend.settings, self._path) if record and record.trace else None
        self._post: PendingPost | None = None  # once a slot is acquired
        self._record = record

    def ready(self, seconds: float = inf, callback: DataCallback | None = None, /) -> Awaitable[bool]:
        """Wait for a slot, for the headers and for data; return False after `seconds`.

        Raises UpstreamUnavailable without a slot, UpstreamTimeout, UpstreamFailed for an error status, or another
        UpstreamError.
        """
        if (response := self._response) and response.handed_at is not None:
            self._deadline = min(response.handed_at + self._timeouts.idle, self._total_deadline)
            if seconds < self._deadline - perf_counter():
                return response.ready(seconds, callback, self._total_deadline)
        return self._wait_slot_and_data(seconds)

    async def _wait_slot_and_data(self, seconds: float) -> bool:
        until = perf_counter() + seconds
        if not (self._slot.is_acquired or await self._acquire_slot(seconds)):
            return False
        limit = self._deadline
        post = self._post = self._post or self._send()
        try:
            while not self._is_readable(post):
                if not await post.response.ready(min(until, limit) - perf_counter()):
                    if until < limit:
                        return False
                    raise self._timeout()
            if post.response.status != 200:
                await self._read_error(post.response)
        except UpstreamFailed:
            raise  # its outcome is reported already
        except UpstreamError as error:
            raise self._record_and_name(error) from None
        return True

    def read(self) -> bytes:
        """Return the data since the last call, b"" at the end; raises the UpstreamError that ended the response."""
        assert self._response
        try:
            data = self._response.take()
        except UpstreamError as error:
            raise self._record_and_name(error) from None
        recorder = self._recorder
        if recorder and (recorder.request_recorder.current_call != recorder.call or not data):
            recorder.read(data)
        return data

    @property
    def over(self) -> bool:
        """True if all data was read; always False while the call is recorded, as the recorder needs the last `read`."""
        return not self._recorder and self._response is not None and self._response.over

    def report_outcome(self, problem: Problem | None) -> None:
        """Report a problem of the server as a failure, all else as a success."""
        if problem and problem.status >= 500:
            self._record_failure(problem)
        else:
            self._slot.record_success()

    def close(self) -> None:
        """Release the slot and the connection.  The connection is closed unless the response is complete."""
        self._slot.release()
        if self._trace_step:
            self._trace_step.end()
            self._trace_step = None
        if self._post:
            self._post.close()

    def _record_and_name(self, error: UpstreamError) -> UpstreamError:
        """Record a failure, and return it with the name of the backend.  Clients do not learn its address."""
        problem, name = error.problem, f"Backend '{self._backend.name}'"
        error.problem = replace(problem, message=problem.message.replace("The backend", name, 1))
        self._record_failure(error.problem)
        return error

    def _record_failure(self, problem: Problem) -> None:
        self._slot.record_failure()
        self._backend.failed(problem)
        if self._trace_step:
            self._trace_step.error = problem.code

    async def _acquire_slot(self, seconds: float) -> bool:
        taken = await self._slot.wait(seconds)
        self._start_deadlines()
        return taken

    def _timeout(self) -> UpstreamTimeout:
        """Return the error of the deadline that has passed."""
        name, times = self._backend.name, self._timeouts
        if self._deadline == self._total_deadline:
            return UpstreamTimeout(f"Backend '{name}' was not done after {times.total:g} s (timeouts.total).")
        key = "first_byte" if self._deadline == self._first_byte_deadline else "idle"
        return UpstreamTimeout(f"Backend '{name}' sent nothing for {getattr(times, key):g} s (timeouts.{key}).")

    def _start_deadlines(self) -> None:
        """Start the timeouts for the first byte and for the whole response."""
        now = perf_counter()
        self._total_deadline = now + self._timeouts.total
        self._deadline = self._first_byte_deadline = min(now + self._timeouts.first_byte, self._total_deadline)

    def _is_readable(self, post: PendingPost) -> bool:
        """Return True if there is data, or a response whose headers announce an error."""
        if self._response:
            return self._response.is_readable
        if not post.headers_received():
            return False
        response = post.response
        if self._trace_step:
            self._trace_step.status = response.status
        if response.status != 200:
            return True
        if post.repeated and self._record:
            self._record.ledger.add("repaired", "connection")
        self._response, type = response, response.content_type
        if self._recorder:
            self._recorder.record_headers(type, self._since_connected(response))
        self._set_content_type(type)
        return response.is_readable

    def _since_connected(self, response: UpstreamResponse) -> float | None:
        """Return the seconds since the connection of the response was made; None if it was open before."""
        return None if response.connected_at is None else perf_counter() - response.connected_at

    def _send(self) -> PendingPost:
        if self._recorder:
            self._recorder.slot_acquired()
        headers = {**self.headers, **self._trace_step.headers} if self._trace_step else self.headers
        return self._backend.post(self._path, self._body, headers)

    async def _read_error(self, response: UpstreamResponse) -> None:
        body, until = b"", perf_counter() + _REFUSAL_SECONDS
        with closing(response), suppress(UpstreamError):  # the status is known; a partial body is enough
            while (
                len(body) < _REFUSAL_LIMIT
                and await response.ready(until - perf_counter())
                and (data := response.take())
            ):
                body += data
        encoding = response.headers.get("content-encoding", "").lower()  # a proxy compresses errors of its own
        decoded = decode_beginning(body, encoding, _REFUSAL_LIMIT)
        unread = safe_name(encoding) if body and not decoded else ""
        raise self._record_refusal(response.status, response.headers, decoded, self._since_connected(response), unread)

    def _record_refusal(
        self, status: int, headers: Mapping[str, str], body: bytes, since_connected: float | None, encoding: str = ""
    ) -> UpstreamFailed:
        """Record an error response, and return its error.  encoding: that of a body that cannot be decoded."""
        if self._recorder:
            self._recorder.record_error(status, headers, body, since_connected)
        body = self._backend.mask_key(body)
        problem = self._unsupported_path_problem(status, error_mapping.problem_from_status(status, body, encoding))
        wait = error_mapping.stated_wait(headers, time())
        if problem.code == "model_not_found":
            self._backend.doubt_list()
        self._backend.failed(problem)
        if self._trace_step:
            self._trace_step.error = problem.code
        self._slot.record_status(status, wait, clients_fault=problem.status < 500)
        if problem.status >= 500:
            name, id = self._backend.name, self._record.id if self._record else ""
            _log.warning("backend %s returned HTTP %d", name, status, extra={"request_id": id})
            logs.content.info("backend %s: %r", self._backend.name, body[:_EXCERPT])
        return UpstreamFailed(problem, wait)

    def _unsupported_path_problem(self, status: int, problem: Problem) -> Problem:
        """Return the problem for an API that the server lacks, which is no failure of the server; else `problem`."""
        if self._path == self._backend.dialect.path or status not in (404, 405) or problem.code != "upstream_error":
            return problem
        return Problem(
            400, f"Backend '{self._backend.name}' has no endpoint {self._path}.", "unsupported_value", "model"
        )


class DeferredCall:
    """An upstream call that a coroutine prepares, with the interface of the call itself.

    coming: started at once; returns the call.  Its errors are raised by `ready`.
    """

    def __init__(self, coming: Coroutine[Any, Any, UpstreamCall]) -> None:
        self._coming = asyncio.create_task(coming)
        self._clock = asyncio.get_running_loop().time

    async def ready(self, seconds: float = inf, callback: DataCallback | None = None, /) -> bool:
        """Wait for the call, then for its data; return False after `seconds` in all."""
        until = self._clock() + seconds
        await asyncio.wait((self._coming,), timeout=None if seconds == inf else max(seconds, 0))
        if not self._coming.done():
            return False
        return await self._coming.result().ready(until - self._clock(), callback)

    def read(self) -> bytes:
        """Return the data of the call."""
        return self._coming.result().read()

    @property
    def over(self) -> bool:
        """True if all data of the call was read."""
        return self._coming.result().over

    def report_outcome(self, problem: Problem | None) -> None:
        """Report the outcome of the call."""
        self._coming.result().report_outcome(problem)

    def close(self) -> None:
        """Cancel the preparation, or close the call."""
        if not self._coming.cancel() and not self._coming.cancelled() and not self._coming.exception():
            self._coming.result().close()
