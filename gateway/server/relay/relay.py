"""Relay one response: drive its pipeline over one backend, and find out when its status is certain.

undecided   no byte is sent: the response can still have an error status
committed   the client has status 200 and keep-alives, but no content
content     from the first content on
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from time import perf_counter
from typing import Any, Protocol

from gateway.config.schema import StreamSettings
from gateway.errors import GatewayError, Problem, UpstreamFailed, UpstreamUnavailable
from gateway.pipeline.pipeline import EndResponse, Pipeline, PipelineAction, RoundFailed, SendBytes, StoreResponse
from gateway.recording.recording import LONGEST_RUN
from gateway.server.http.client_connection import ResponseWriter, TryWrite
from gateway.server.observability import logs
from gateway.server.observability.request_record import RequestRecord
from gateway.server.observability.request_recorder import RequestRecorder
from gateway.server.upstream import DECLINED, HANDLED, WAKE, DataCallback, DataOutcome
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.upstream_call import UpstreamCall
from gateway.server.worker_thread import run_in_thread

_log = logging.getLogger("gateway")
StoreCallback = Callable[[dict[str, Any]], Awaitable[bool]]  # stores a response; returns False if the store fails
_MAX_EXCERPT = 300  # bytes of an invalid response, for the log
_LARGE = 4 << 10  # bytes that take tens of milliseconds to read at worst
_LONG = 512  # bytes of their lines, on average: many short chunks take less
_LAST_WAIT = 0.5  # seconds for the end of a body behind the last chunk: with it the connection can be kept


class AttemptSource(Protocol):
    """The calls of a response, by round and attempt.

    record: of the request; backend: that of the current round.
    next_call: starts the current round; call_after_failure: starts another attempt, None if there is no other.
    """

    record: RequestRecord

    @property
    def backend(self) -> Backend: ...
    def next_call(self) -> UpstreamCall: ...
    def call_after_failure(self, problem: Problem, retry_after: str | None) -> UpstreamCall | None: ...


class Relay:
    """Relay one response: `whole`; or `until_first_content`, `stream` and `end`.  The caller has to close it.

    pipeline: one that has started; store: stores the response.
    """

    _try_write: TryWrite  # of the writer of the stream

    def __init__(
        self, pipeline: Pipeline, attempts: AttemptSource, settings: StreamSettings, store: StoreCallback
    ) -> None:
        self._pipeline, self._attempts, self._settings, self._store = pipeline, attempts, settings, store
        self._record = attempts.record
        self._ended = False
        self._unstored: StoreResponse | None = None  # all is sent but the end, which waits for the store
        self._retry_after: str | None = None
        self._logged = False  # the problem, or there is nothing to log
        self._outcome_open = True  # the backend's health does not know the outcome of the round
        self._excerpt = b""
        self._bytes, self._lines = pipeline.prefilled, 0  # to parse for the next output
        self._pending: bytes | None = None  # output of the callback that could not be written at once
        self._last = b""  # output that is sent with the end
        self._silence = inf  # seconds without output after which a stream has a keep-alive
        self._call = attempts.next_call()

    @property
    def ended(self) -> bool:
        """True if no output follows what was returned."""
        return self._ended

    async def whole(self) -> bytes:
        """Return the whole response.  Raise UpstreamFailed for a failure, whatever came before it."""
        pieces = []
        while not self._ended:
            pieces.append(await self._next_output())
        self._raise_failure()
        return b"".join(pieces)

    async def until_first_content(self) -> bytes:
        """Wait for content, at most for `grace_seconds`; return what to send first.  Raise UpstreamFailed."""
        output = b""
        until = _now() + self._settings.grace_seconds
        while not (self._pipeline.begun or self._ended):
            output += await self._next_output(until - _now(), self._pipeline.begin_response)
            if _now() >= until:
                break
        if not self._pipeline.begun and (self._ended or self._unstored):
            self._raise_failure()
        begun = self._pipeline.begun or self._ended
        return output if begun else output + self._pipeline.begin_response()

    async def stream(self, writer: ResponseWriter) -> None:
        """Send all but the last piece: one per network read, and keep-alives in silence.  A failure is the last."""
        silence, keep_alive = float(self._settings.keepalive_seconds) or inf, self._pipeline.keep_alive
        self._silence, self._try_write, piece = silence, writer.try_write, b""
        while not self._ended:
            if piece and not writer.try_write(piece):
                await writer.write(piece)
            piece = await self._next_output(silence, keep_alive, self._on_data)
        self._last = piece

    async def end(self, writer: ResponseWriter) -> None:
        """Send the last piece and the end."""
        output, self._last = self._last, b""
        await writer.end(output)

    async def abort(self, problem: Problem, writer: ResponseWriter) -> None:
        """End the stream with a problem; store what has come, if the response is stored."""
        self._logged = True
        self._call.close()  # at once, as the rest may take long
        output, self._pending = self._pending or b"", None
        if not self._ended and not self._unstored:
            await writer.write(output + self._perform(self._pipeline.end(problem)))
        if self._unstored:
            await writer.write(await self._store_and_end(self._unstored))
        await self.end(writer)

    def close(self) -> None:
        """Release the backend: its connection is closed unless its response came to its end."""
        self._logged = True
        self._record.problem = self._pipeline.problem
        self._call.close()

    def _on_data(self, data: bytes, now: float) -> DataOutcome:
        """Handle data while the task waits.  The upstream connection calls this; one chunk needs no task."""
        pipeline = self._pipeline
        if self._outcome_open or not (decode := pipeline.single_chunk_decoder) or (events := decode(data)) is None:
            return DECLINED
        if not (output := pipeline.encode_events(events)):
            return self._on_unseen_data(now)
        if pipeline.problem or not self._try_write(output):
            self._pending = output
            return WAKE
        self._record.pace.chunk_received(now, True)
        return HANDLED

    def _on_unseen_data(self, now: float) -> DataOutcome:
        """Handle data that gives the client nothing, such as hidden reasoning; after a while it gets a keep-alive."""
        problem, pace = self._pipeline.problem, self._record.pace
        if not (problem or pace.unseen_chunk_received(now, True, self._silence)):
            return HANDLED
        self._pending = b"" if problem else self._pipeline.keep_alive()
        return WAKE

    async def _next_output(
        self,
        seconds: float = inf,
        on_silence: Callable[[], bytes] = bytes,
        callback: DataCallback | None = None,
    ) -> bytes:
        """Return the output for the backend's next data, or that of `on_silence` after so many seconds without any."""
        if self._unstored:
            return await self._store_and_end(self._unstored)
        try:
            wait = min(seconds, _LAST_WAIT) if self._pipeline.done else seconds
            readable = await self._call.ready(wait, callback)
            if not (readable or self._pipeline.done):
                return on_silence()
            output, more = await self._read_output() if readable else (b"", False)
        except GatewayError as error:
            self._retry_after, self._logged = error.retry_after, isinstance(error, UpstreamFailed | UpstreamUnavailable)
            fail, problem = self._pipeline.fail, error.problem
            return self._perform(await run_in_thread(fail, problem) if self._is_large else fail(problem))
        if more and not self._pipeline.problem:
            if self._outcome_open and self._pipeline.round_has_content:
                self._report_outcome()
            return output
        close = self._pipeline.close
        actions = await run_in_thread(close) if self._is_large else close()
        self._report_outcome()
        return output + self._perform(actions)

    async def _read_output(self) -> tuple[bytes, bool]:
        """Return the output for the data, and whether more may come."""
        output, self._pending = self._pending, None
        if output is None:
            if not (data := self._call.read()):
                return b"", False
            if not self._excerpt:
                self._excerpt = data[:_MAX_EXCERPT]
            self._bytes, self._lines = self._bytes + len(data), self._lines + data.count(b"\n")
            feed = self._pipeline.feed
            output = await run_in_thread(feed, data) if self._is_large else feed(data)
            if output:
                self._bytes, self._lines = len(data) - data.rfind(b"\n") - 1, 0
        if not self._pipeline.problem:
            pace, begun, now = self._record.pace, self._pipeline.begun, perf_counter()
            if output or self._silence == inf:
                pace.chunk_received(now, begun)
            elif pace.unseen_chunk_received(now, begun, self._silence):
                output = self._pipeline.keep_alive()
        return output, not self._call.over

    @property
    def _is_large(self) -> bool:
        """True if much data came in few long lines: a worker thread runs the next step of the pipeline."""
        return self._bytes > _LARGE and self._bytes > _LONG * self._lines

    def _report_outcome(self) -> None:
        self._outcome_open = False
        self._call.report_outcome(self._pipeline.problem)

    def _perform(self, actions: list[PipelineAction]) -> bytes:
        """Return the last output of a round; the end of a response that is stored follows behind the store."""
        self._log_problem()
        output = b""
        for action in actions:
            match action:
                case SendBytes():
                    output += action.data
                case EndResponse():
                    self._ended = True
                case RoundFailed():
                    output += self._retry_or_end()
                case StoreResponse():
                    self._unstored = action
                case _:  # another round
                    self._switch_call(self._attempts.next_call())
        return output

    def _retry_or_end(self) -> bytes:
        """Start another attempt, as the client has nothing of the round; without one, return the end."""
        problem, retry_after = self._pipeline.problem, self._retry_after
        assert problem
        if call := self._attempts.call_after_failure(problem, retry_after):
            self._switch_call(call)
            return b""
        return self._perform(self._pipeline.end_after_failure())

    def _switch_call(self, call: UpstreamCall) -> None:
        self._call.close()
        self._call, self._excerpt, self._retry_after, self._logged = call, b"", None, False
        self._outcome_open, self._bytes, self._lines = True, self._pipeline.prefilled, 0

    async def _store_and_end(self, action: StoreResponse) -> bytes:
        self._ended, self._unstored = True, None
        self._record.stored = await self._store(action.record)
        return self._perform(self._pipeline.end_after_storing(stored=self._record.stored))

    def _log_problem(self) -> None:
        """Log a problem of the backend once; the text of a model stays out of the log."""
        problem = self._pipeline.problem
        if not problem or problem.status < 500 or self._logged:
            return
        self._logged = True
        backend = self._attempts.backend
        excerpt = b"" if self._pipeline.begun else backend.mask_key(self._excerpt)
        _log.warning("backend %s: %s", backend.name, problem.code, extra={"request_id": self._record.id})
        logs.content.info("backend %s: %s %r", backend.name, problem.message, excerpt)

    def _raise_failure(self) -> None:
        if problem := self._pipeline.problem:
            raise UpstreamFailed(problem, self._retry_after)


def _now() -> float:
    return asyncio.get_running_loop().time()


class RecordedRelay(Relay):
    """A Relay that records the chunks it reads, decodes and writes in one step; a chunk has one time.

    Such a chunk costs little more than without a recording: the relay keeps what came and what went out, and the
    entries are made when a page asks for them.
    """

    _try_write_unrecorded: TryWrite  # of the writer of the stream

    def __init__(
        self,
        pipeline: Pipeline,
        attempts: AttemptSource,
        settings: StreamSettings,
        store: StoreCallback,
        recorder: RequestRecorder,
    ) -> None:
        super().__init__(pipeline, attempts, settings, store)
        self._recording = recorder.recording

    async def stream(self, writer: ResponseWriter) -> None:
        """Send all but the last piece, as a Relay does."""
        self._try_write_unrecorded = writer.try_write_unrecorded
        await super().stream(writer)

    def _on_data(self, data: bytes, now: float) -> DataOutcome:
        """Handle data as a Relay does, and record it.  The writer records output that the task sends."""
        pipeline = self._pipeline
        if self._outcome_open or not (decode := pipeline.single_chunk_decoder) or (events := decode(data)) is None:
            return DECLINED
        if not (output := pipeline.encode_events(events)):
            outcome = self._on_unseen_data(now)
            self._recording.keep_unseen(now, data, events)
            return outcome
        if pipeline.problem or not self._try_write_unrecorded(output):
            self._pending = output
            self._recording.keep_unseen(now, data, events)
            return WAKE
        chunks = self._recording.chunks
        self._record.pace.chunk_received(now, True)
        chunks += now, data, events, output
        if len(chunks) >= LONGEST_RUN:
            self._recording.settle()
        return HANDLED


def open_relay(pipeline: Pipeline, attempts: AttemptSource, settings: StreamSettings, store: StoreCallback) -> Relay:
    """Return the relay of a response, which is recorded if its request is."""
    if recorder := attempts.record.recorder:
        return RecordedRelay(pipeline, attempts, settings, store, recorder)
    return Relay(pipeline, attempts, settings, store)
