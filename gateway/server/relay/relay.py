"""The relay: drives one Turn over one backend, and knows when the status of the answer is certain.

undecided   nothing was said: an honest status is still possible
committed   the client has its 200 and keep-alives, but no content
content     from the first word on
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Protocol, TypeVar

from gateway.config.schema import StreamSettings
from gateway.errors import GatewayError, Problem, UpstreamFailed, UpstreamUnavailable
from gateway.pipeline.pipeline import EndResponse, Pipeline, PipelineAction, RoundFailed, SendBytes, StoreResponse
from gateway.server.http.response_writer import ResponseWriter, TryWrite
from gateway.server.observability import logs
from gateway.server.observability.request_record import RequestRecord
from gateway.server.upstream import DataCallback
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.upstream_call import UpstreamCall
from gateway.server.worker_thread import apart

_log = logging.getLogger("gateway")
StoreCallback = Callable[[dict[str, Any]], Awaitable[bool]]  # stores an answer; False if that cannot be done
_EXCERPT = 300  # bytes of an invalid response, for the log
_T = TypeVar("_T")
_LARGE = 4 << 10  # bytes that take tens of milliseconds to read at worst
_LONG = 512  # bytes of their lines, on average: many short chunks take less
_LAST_WAIT = 0.5  # seconds for the end of a body in which all has been said: with it the connection can be kept


class AttemptSource(Protocol):
    """Puts the rounds of a turn to backends.  backend: the one that has the round of now.

    seen: the request.  call: that round, put to it now; after: another attempt, if there is one after such a failure.
    """

    seen: RequestRecord

    @property
    def backend(self) -> Backend: ...
    def next_call(self) -> UpstreamCall: ...
    def call_after_failure(self, problem: Problem, retry_after: str | None) -> UpstreamCall | None: ...


class Relay:
    """Relay one response: `whole`, or `decide`, `pump` and `end`.  The code that makes it has to close it.

    turn: one that has started; keep: stores the answer.
    """

    _now: TryWrite  # where it is pumped to

    def __init__(self, turn: Pipeline, attempts: AttemptSource, times: StreamSettings, keep: StoreCallback) -> None:
        self._turn, self._attempts, self._times, self._keep = turn, attempts, times, keep
        self._seen = attempts.seen
        self._over = False
        self._unkept: StoreResponse | None = None  # all has been sent but that it is over
        self._retry_after: str | None = None
        self._quiet = False  # the log knows, or has nothing to be told
        self._unjudged = True  # it has not shown yet whether the backend answers
        self._excerpt = b""
        self._bytes = self._lines = 0  # that have come since the client was told something
        self._heard: bytes | None = None  # output that could not be written at once
        self._last = b""  # what is left to be told at the end
        self._call = attempts.next_call()

    async def whole(self) -> bytes:
        """The whole answer; raises what went wrong, whatever came before it."""
        pieces = []
        while not self._over:
            pieces.append(await self._next_output())
        self._raise_failure()
        return b"".join(pieces)

    async def until_first_content(self) -> bytes:
        """Wait for content, but no longer than the grace; return what to send first.  Raises what went wrong."""
        output = b""
        until = _now() + self._times.grace_seconds
        while not (self._turn.begun or self._over):
            output += await self._next_output(until - _now(), self._turn.begin_response)
            if _now() >= until:
                break
        if not self._turn.begun and (self._over or self._unkept):
            self._raise_failure()
        return output

    async def stream(self, outlet: ResponseWriter) -> None:
        """Send all but the last piece: one per network read, and keep-alives in silence.  A failure is the last."""
        silence, keep_alive = self._times.keepalive_seconds or inf, self._turn.keep_alive
        self._now, piece = outlet.now, b""
        while not self._over:
            if piece and not outlet.now(piece):
                await outlet.write(piece)
            piece = await self._next_output(silence, keep_alive, self._on_data)
        self._last = piece

    async def end(self, outlet: ResponseWriter) -> None:
        """With the last piece."""
        output, self._last = self._last, b""
        await outlet.end(output)

    async def abort(self, problem: Problem, outlet: ResponseWriter) -> None:
        """End it so: what had come is stored, as far as it is to be.  The last words, as far as they are missing."""
        self._quiet = True
        self._call.close()  # at once, whatever the rest takes
        output, self._heard = self._heard or b"", None
        if not self._over and not self._unkept:
            await outlet.write(output + self._perform(self._turn.end(problem)))
        if self._unkept:
            await outlet.write(await self._store_and_end(self._unkept))
        await self.end(outlet)

    def close(self) -> None:
        """Let go of the backend: at once, unless its answer came to its end."""
        self._quiet = True
        self._seen.problem = self._turn.problem
        self._call.close()

    def _on_data(self, data: bytes) -> bool | None:
        """Handle a chunk that arrives alone, without waking the waiting task."""
        output = None if self._unjudged else self._turn.feed_one(data)
        if output is None:
            return None
        if self._turn.problem or (output and not self._now(output)):
            self._heard = output
            return False
        self._seen.pace.chunk_received(begun=True)
        return True

    async def _next_output(
        self, seconds: float = inf, otherwise: Callable[[], bytes] = bytes, ear: DataCallback | None = None
    ) -> bytes:
        """Return the output for the backend's next data, or `otherwise` if it is silent for so long."""
        if self._unkept:
            return await self._store_and_end(self._unkept)
        try:
            there = await self._call.ready(min(seconds, _LAST_WAIT) if self._turn.done else seconds, ear)
            if not (there or self._turn.done):
                return otherwise()
            output, more = await self._read_output() if there else (b"", False)
        except GatewayError as error:
            self._retry_after, self._quiet = error.retry_after, isinstance(error, UpstreamFailed | UpstreamUnavailable)
            return self._perform(await self._apart(self._turn.fail, error.problem))
        if more and not self._turn.problem:
            if self._unjudged and self._turn.round_has_content:
                self._report_outcome()
            return output
        actions = await self._apart(self._turn.close)
        self._report_outcome()
        return output + self._perform(actions)

    async def _read_output(self) -> tuple[bytes, bool]:
        """Return the output for the data, and whether more may come."""
        output, self._heard = self._heard, None
        if output is None:
            if not (data := self._call.read()):
                return b"", False
            if not self._excerpt:
                self._excerpt = data[:_EXCERPT]
            self._bytes, self._lines = self._bytes + len(data), self._lines + data.count(b"\n")
            output = await self._apart(self._turn.feed, data)
            if output:
                self._bytes, self._lines = len(data) - data.rfind(b"\n") - 1, 0
        if not self._turn.problem:
            self._seen.pace.chunk_received(self._turn.begun)
        return output, not self._call.over

    async def _apart(self, work: Callable[..., _T], *args: object) -> _T:
        """Return what the turn makes of what has come; what is large, and in few pieces, is read apart."""
        large = self._bytes > _LARGE and self._bytes > _LONG * self._lines
        return await apart(work, *args) if large else work(*args)

    def _report_outcome(self) -> None:
        self._unjudged = False
        self._call.report_outcome(self._turn.problem)

    def _perform(self, actions: list[PipelineAction]) -> bytes:
        """Return the last output of a round, without the end of a response that has to be stored first."""
        self._log_problem()
        output = b""
        for action in actions:
            match action:
                case SendBytes():
                    output += action.data
                case EndResponse():
                    self._over = True
                case RoundFailed():
                    output += self._retry_or_end()
                case StoreResponse():
                    self._unkept = action
                case _:  # another round
                    self._switch_call(self._attempts.next_call())
        return output

    def _retry_or_end(self) -> bytes:
        """Nothing of it was told: another attempt, if there is one, or else its end."""
        problem, retry_after = self._turn.problem, self._retry_after
        assert problem
        if another := self._attempts.call_after_failure(problem, retry_after):
            self._switch_call(another)
            return b""
        return self._perform(self._turn.end_after_failure())

    def _switch_call(self, call: UpstreamCall) -> None:
        self._call.close()
        self._call, self._excerpt, self._retry_after, self._quiet = call, b"", None, False
        self._unjudged, self._bytes, self._lines = True, 0, 0

    async def _store_and_end(self, answer: StoreResponse) -> bytes:
        self._over, self._unkept = True, None
        self._seen.stored = await self._keep(answer.record)
        return self._perform(self._turn.kept(well=self._seen.stored))

    def _log_problem(self) -> None:
        """Tell the log once; what a model said stays out of it in any case."""
        problem = self._turn.problem
        if not problem or problem.status < 500 or self._quiet:
            return
        self._quiet = True
        backend = self._attempts.backend
        excerpt = b"" if self._turn.begun else backend.mask_key(self._excerpt)
        _log.warning("backend %s: %s", backend.name, problem.code)
        logs.content.info("backend %s: %s %r", backend.name, problem.message, excerpt)

    def _raise_failure(self) -> None:
        if problem := self._turn.problem:
            raise UpstreamFailed(problem, self._retry_after)


def _now() -> float:
    return asyncio.get_running_loop().time()
