"""One request: rounds in, client bytes out.

Pure.  It tells its caller what to do next and never does it; retries, background mode and WebSocket are callers, or
other drivers, of the same Turn.  A round is one of a backend, or one of the gateway's own tools between two of those.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Protocol

from msgspec import Struct

from gateway.errors import Problem
from gateway.events import Event, ExtraField, Failure, Usage
from gateway.request import Request


class SendBytes(Struct, frozen=True):
    data: bytes


class StartCall(Struct, frozen=True):
    request: Request


class RoundFailed(Struct, frozen=True):
    """The round came to nothing, and nothing was told of it: `start` another, or `give_up`."""

    problem: Problem


class StoreResponse(Struct, frozen=True):
    """The whole answer, to be stored before the client hears that it is over; then `kept` goes on."""

    record: dict[str, Any]


class EndResponse(Struct, frozen=True):
    pass


_APART = frozenset((Usage, ExtraField, Failure))
_NOTHING = Usage(0, 0)
_FEW = 3  # events, of which it would cost more to see which are of one type

PipelineAction = SendBytes | StartCall | RoundFailed | StoreResponse | EndResponse
Lone = Callable[[bytes], Sequence[Event] | None]  # what data means; None where it has to be fed


class ResponseEncoder(Protocol):
    """A dialect out: how a client is told what happens.  Usage is the sum of all rounds, the last one holds.

    encode: takes events that follow one another and are of one type, at least one; how many at a time makes no
        difference.
    record: what is to be stored of the answer, None for nothing; close: the end, and whether that has been done.
    """

    def start(self) -> bytes: ...
    def encode(self, *events: Event) -> bytes: ...
    def keep_alive(self) -> bytes: ...
    def stored_object(self) -> dict[str, Any] | None: ...
    def close(self, *, kept: bool) -> bytes: ...


class RoundSource(Protocol):
    """Where a round's events come from: an UpstreamReader, a FanOut of them, or the tools that run at the gateway.

    lone: a short way for data that is one payload more like the last, if there is such a way until the next `feed`.
    done: it has said that this was all; what is missing is the end of its body.
    """

    def answered(self, content_type: str) -> None: ...
    def feed(self, data: bytes) -> list[Event]: ...
    def close(self) -> list[Event]: ...
    def fail(self, problem: Problem) -> list[Event]: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def feed_one(self) -> Lone | None: ...
    @property
    def done(self) -> bool: ...


class Pipeline:
    """start, then per round answered, feed* and close or fail; kept.

    again: what to ask after a round that came to its end, if that was not the last; asked once for each round.
    begun: the client has been given content; spoken: by this round.  One that has not is no end if it fails.
    problem: why the round failed, if it did; the client is told of it at the end only.
    """

    def __init__(
        self,
        request: Request,
        open_round: Callable[[Request], RoundSource],
        endpoint: ResponseEncoder,
        again: Callable[[], Request | None] = lambda: None,
    ) -> None:
        self._request, self._open_round, self._endpoint, self._again = request, open_round, endpoint, again
        self._spent = _NOTHING  # of the rounds before
        self._counted: Usage | None = None  # of this one, once it is told
        self._running = False
        self._started = False
        self._lone: Lone | None = None
        self.begun = False
        self.round_has_content = False
        self.problem: Problem | None = None

    def start(self) -> list[PipelineAction]:
        self.problem, self._counted, self._running, self.round_has_content = None, None, True, False
        self._upstream, self._lone = self._open_round(self._request), None
        return [StartCall(self._request)]

    def add_usage(self, usage: Usage) -> None:
        """Count what was used on the way to the first round."""
        self._spent += usage

    @property
    def usage(self) -> Usage:
        """Tokens by now; where they were not counted, as the round goes on or broke off, they are estimated."""
        return self._spent + self._round_usage if self._running else self._spent

    @property
    def _round_usage(self) -> Usage:
        return self._counted or self._upstream.usage

    def answered(self, content_type: str) -> None:
        self._upstream.answered(content_type)

    def begin_response(self) -> bytes:
        """The head of the answer, if it did not go out yet."""
        started, self._started = self._started, True
        return b"" if started else self._endpoint.start()

    def keep_alive(self) -> bytes:
        return self._endpoint.keep_alive()

    @property
    def done(self) -> bool:
        """The round that goes on has said that this was all: it is to be closed, whether its body ends or not."""
        return self._running and self._upstream.done

    def feed(self, data: bytes) -> bytes:
        """Return the client's data for the upstream's data."""
        if self._lone and (output := self.feed_one(data)) is not None:
            return output
        events = self._upstream.feed(data)
        self._lone = self._upstream.feed_one
        return self._encode_events(events) if events else b""

    def feed_one(self, data: bytes) -> bytes | None:
        """The same of a chunk that comes alone, amid others of its form; None of anything else, and nothing is done."""
        events = self._lone(data) if self._lone else None
        return None if events is None else self._encode_events(events)

    def fail(self, problem: Problem) -> list[PipelineAction]:
        """The round broke off; what it had sent is delivered first."""
        return self._finish_round(self._encode_events(self._upstream.fail(problem)))

    def close(self) -> list[PipelineAction]:
        """The round is over: end the turn, or go on with another."""
        return self._finish_round(self._encode_events(self._upstream.close()))

    def end(self, problem: Problem) -> list[PipelineAction]:
        """End the response for this reason, without further attempts; deliver what had arrived."""
        if self.problem:  # one round has failed, and the other has not begun
            self.problem = problem
            return self._finish_response(b"")
        return self._finish_response(self._encode_events(self._upstream.fail(problem)))

    def end_after_failure(self) -> list[PipelineAction]:
        """Nothing else is tried after a round that Failed."""
        return self._finish_response(b"")

    def kept(self, *, well: bool) -> list[PipelineAction]:
        """The answer has been stored, or could not be."""
        return [SendBytes(self._endpoint.close(kept=well)), EndResponse()]

    def _finish_round(self, last: bytes) -> list[PipelineAction]:
        failed_at_once = (
            self.problem and not self.round_has_content
        )  # then the backend has done nothing that was of use
        if used := self._counted if failed_at_once else self._round_usage:
            self._spent += used
        self._counted, self._running = None, False
        if not self.problem and (request := self._again()):
            self._request = request
            return [SendBytes(last), *self.start()]
        if self.problem and not self.round_has_content:
            return [SendBytes(last), RoundFailed(self.problem)]
        return self._finish_response(last)

    def _finish_response(self, last: bytes) -> list[PipelineAction]:
        if self.problem:
            last += self._endpoint.encode(Failure(self.problem))
        record = self._endpoint.stored_object()
        if record is None:
            return [SendBytes(last + self._endpoint.close(kept=False)), EndResponse()]
        return [SendBytes(last), StoreResponse(record)]

    def _encode_events(self, events: Sequence[Event]) -> bytes:
        if (
            len(events) == 1 and self.round_has_content and type(events[0]) not in _APART
        ):  # almost always where chunks come alone
            return self._endpoint.encode(events[0])
        if len(events) > _FEW:
            return self._encode_runs(events)
        output = b""
        for event in events:
            if type(event) in _APART:
                output += self._encode_non_content(event)
                continue
            if not self.round_has_content:
                output += self._begin_content()
            output += self._endpoint.encode(event)
        return output

    def _encode_runs(self, events: Iterable[Event]) -> bytes:
        """The same of many: those that follow one another and are of one type are told together."""
        items: list[bytes] = []
        for kind, run in groupby(events, type):
            if kind in _APART:
                items += map(self._encode_non_content, run)
                continue
            if not self.round_has_content:
                items.append(self._begin_content())
            items.append(self._endpoint.encode(*run))
        return b"".join(items)

    def _begin_content(self) -> bytes:
        """There is content; what the client gets before it."""
        self.begun = self.round_has_content = True
        return self.begin_response()

    def _encode_non_content(self, event: Event) -> bytes:
        """Encode an event that is no content."""
        if isinstance(event, Usage):
            self._counted = event
            return self._endpoint.encode(self._spent + event)
        if isinstance(event, Failure):
            self.problem, self._lone = event.problem, None
            return b""
        output = self._endpoint.encode(event)
        return output and self.begin_response() + output
