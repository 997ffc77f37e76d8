"""Turn the rounds of one request into bytes for the client.

Pure.  It returns the actions that its caller has to take, and takes none itself.  Retries, background mode and
WebSocket are callers of the same Pipeline.  A round runs at a backend, or runs the gateway's own tools in between.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Protocol

from msgspec import Struct

from gateway.errors import Problem
from gateway.events import Event, ExtraField, Failure, Usage
from gateway.request import Request


class SendBytes(Struct, frozen=True):
    """Send these bytes to the client."""

    data: bytes


class StartCall(Struct, frozen=True):
    """Start the upstream call of a round."""

    request: Request


class RoundFailed(Struct, frozen=True):
    """Report that the round failed before the client received anything of it.

    The caller calls `start` again, or `end_after_failure`.
    """

    problem: Problem


class StoreResponse(Struct, frozen=True):
    """Store the whole response before the client receives its end, then call `end_after_storing`."""

    record: dict[str, Any]


class EndResponse(Struct, frozen=True):
    """End the response."""


_Member = tuple[int | None, bool, str]  # its choice, True within the choice's message, its name
_NON_CONTENT = frozenset((Usage, ExtraField, Failure))
_NOTHING = Usage(0, 0)
_FEW = 3  # events that are encoded one by one, because grouping them by type costs more

PipelineAction = SendBytes | StartCall | RoundFailed | StoreResponse | EndResponse
SingleChunkDecoder = Callable[[bytes], Sequence[Event] | None]  # None: the data has to go through `feed`


class ResponseEncoder(Protocol):
    """Encode events for the client of one API.  Usage is the sum of all rounds; the last one holds."""

    def start(self) -> bytes:
        """Return the bytes before the first content."""

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the bytes for consecutive events of one type, at least one.

        The output does not depend on how the events are grouped.
        """

    def keep_alive(self) -> bytes:
        """Return bytes that keep the connection open."""

    def stored_object(self) -> dict[str, Any] | None:
        """Return the object to store at the end; None for nothing."""

    def close(self, *, stored: bool) -> bytes:
        """Return the last bytes.

        stored: the response is stored.
        """


class RoundSource(Protocol):
    """Source of a round's events: an UpstreamReader, a FanOut, or the tools that run at the gateway."""

    def set_content_type(self, content_type: str) -> None:
        """Take the content type of the upstream's response, before its first data."""

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of the data."""

    def close(self) -> list[Event]:
        """Return the last events of a body that has ended."""

    def fail(self, problem: Problem) -> list[Event]:
        """Return the last events of a body that broke off."""

    @property
    def usage(self) -> Usage:
        """The usage so far, estimated if the backend has not counted it."""

    @property
    def single_chunk_decoder(self) -> SingleChunkDecoder | None:
        """A decoder for data that is one more chunk of the last form, valid until the next `feed`; else None."""

    @property
    def done(self) -> bool:
        """True if the backend has announced the end, and only the end of the body is missing."""


class Pipeline:
    """Run the rounds of one response.

    Order of calls: start, then per round set_content_type, any number of feed, and close or fail.  After a
    StoreResponse, end_after_storing follows.

    open_round: returns the source of a new round.
    next_request: called once after each round that ended well; returns the next round's request, None after the last.
    localize: returns a failure as the client gets it.
    begun: the client has received content.
    round_has_content: the client has received content of this round.  Without it, a failed round may be repeated.
    problem: the failure of the round; the client receives it only at the end of the response.
    single_chunk_decoder: the first half of `feed_one`, valid until the next `feed`; `encode_events` is the second.
    """

    def __init__(
        self,
        request: Request,
        open_round: Callable[[Request], RoundSource],
        encoder: ResponseEncoder,
        next_request: Callable[[], Request | None] = lambda: None,
        localize: Callable[[Problem], Problem] = lambda problem: problem,
    ) -> None:
        self._request, self._open_round, self._encoder = request, open_round, encoder
        self._next_request, self._localize = next_request, localize
        self._spent: Usage | None = None  # of the rounds before
        self._counted: Usage | None = None  # of this round, once the backend has sent it
        self._early: dict[_Member, ExtraField] = {}  # before the first content of the round
        self._running = False
        self._started = False
        self.single_chunk_decoder: SingleChunkDecoder | None = None
        self.begun = False
        self.round_has_content = False
        self.problem: Problem | None = None

    def start(self) -> None:
        """Start a round."""
        self.problem, self._counted, self._running, self.round_has_content = None, None, True, False
        self._early.clear()  # a round that failed without content says nothing about the response
        self._upstream, self.single_chunk_decoder = self._open_round(self._request), None

    @property
    def prefilled(self) -> int:
        """The characters of the client's last message that the round may parse before its first text."""
        return self._request.prefill_size

    def add_usage(self, usage: Usage) -> None:
        """Count usage before the first round, such as that of a compaction."""
        self._spent = _with(self._spent, usage)

    @property
    def usage(self) -> Usage:
        """The tokens so far; estimated if a round goes on or broke off before the backend counted them."""
        return _with(self._spent, self._round_usage) if self._running else self._spent or _NOTHING

    @property
    def _round_usage(self) -> Usage:
        return self._counted or self._upstream.usage

    def set_content_type(self, content_type: str) -> None:
        """Take the content type of the upstream's response."""
        self._upstream.set_content_type(content_type)

    def begin_response(self) -> bytes:
        """Return the bytes before the first content, at the first call only."""
        started, self._started = self._started, True
        return b"" if started else self._encoder.start()

    def keep_alive(self) -> bytes:
        """Return bytes that keep the client's connection open."""
        return self._encoder.keep_alive()

    @property
    def done(self) -> bool:
        """True if the backend has announced the end of the round.

        The caller then closes the round without waiting for the end of the body.
        """
        return self._running and self._upstream.done

    def feed(self, data: bytes) -> bytes:
        """Return the client's data for the upstream's data."""
        if self.single_chunk_decoder and (output := self.feed_one(data)) is not None:
            return output
        events = self._upstream.feed(data)
        self.single_chunk_decoder = self._upstream.single_chunk_decoder
        return self.encode_events(events) if events else b""

    def feed_one(self, data: bytes) -> bytes | None:
        """Return the client's data for one more chunk of the last form; None, without effect, for other data."""
        events = self.single_chunk_decoder(data) if self.single_chunk_decoder else None
        return None if events is None else self.encode_events(events)

    def forget_form(self) -> None:
        """Decode the next chunk as if no chunk of its form had come before."""
        self.single_chunk_decoder = None

    def fail(self, problem: Problem) -> list[PipelineAction]:
        """End a round that broke off; the content received before is delivered first."""
        return self._finish_round(self.encode_events(self._upstream.fail(problem)))

    def close(self) -> list[PipelineAction]:
        """End a round whose body has ended: end the response, or start the next round."""
        return self._finish_round(self.encode_events(self._upstream.close()))

    def end(self, problem: Problem) -> list[PipelineAction]:
        """End the response for this reason, without further attempts; deliver the content received so far."""
        if self.problem:  # the last round has failed, and the next one has not begun
            self.problem = problem
            return self._finish_response(b"")
        return self._finish_response(self.encode_events(self._upstream.fail(problem)))

    def end_after_failure(self) -> list[PipelineAction]:
        """End the response after a RoundFailed, without a further attempt."""
        return self._finish_response(b"")

    def end_after_storing(self, *, stored: bool) -> list[PipelineAction]:
        """End the response after a StoreResponse.

        stored: the response is stored.
        """
        return [SendBytes(self._encoder.close(stored=stored)), EndResponse()]

    def _finish_round(self, last: bytes) -> list[PipelineAction]:
        failed_without_content = self.problem if not self.round_has_content else None
        # Without content, tokens that the backend did not count are not estimated.
        if used := self._counted if failed_without_content else self._round_usage:
            self._spent = _with(self._spent, used)
        self._counted, self._running = None, False
        if not self.problem and (request := self._next_request()):
            self._request = request
            self.start()
            return [SendBytes(last), StartCall(request)]
        if failed_without_content:
            return [SendBytes(last), RoundFailed(failed_without_content)]
        return self._finish_response(last)

    def _finish_response(self, last: bytes) -> list[PipelineAction]:
        last += self._encode_early()
        if self.problem:
            last += self._encoder.encode((Failure(self._localize(self.problem)),))
        record = self._encoder.stored_object()
        if record is None:
            return [SendBytes(last + self._encoder.close(stored=False)), EndResponse()]
        return [SendBytes(last), StoreResponse(record)]

    def encode_events(self, events: Sequence[Event]) -> bytes:
        """Return the client's data for events of the round."""
        # The usual case of a stream.
        if len(events) == 1 and self.round_has_content and type(events[0]) not in _NON_CONTENT:
            return self._encoder.encode(events)
        if len(events) > _FEW:
            return self._encode_runs(events)
        output = b""
        for event in events:
            if type(event) in _NON_CONTENT:
                output += self._encode_non_content(event)
                continue
            if not self.round_has_content:
                output += self._begin_content()
            output += self._encoder.encode((event,))
        return output

    def _encode_runs(self, events: Iterable[Event]) -> bytes:
        """Encode many events: consecutive events of one type together."""
        items: list[bytes] = []
        for kind, run in groupby(events, type):
            if kind in _NON_CONTENT:
                items += map(self._encode_non_content, run)
                continue
            if not self.round_has_content:
                items.append(self._begin_content())
            items.append(self._encoder.encode([*run]))
        return b"".join(items)

    def _begin_content(self) -> bytes:
        """Note that there is content, and return the bytes before it."""
        self.begun = self.round_has_content = True
        early = self._encode_early()  # the first frame has them
        return self.begin_response() + early

    def _encode_early(self) -> bytes:
        """Encode the members that came before the first content."""
        early, self._early = self._early, {}
        return b"".join([self._encoder.encode((event,)) for event in early.values()])

    def _can_wait(self, extra: ExtraField) -> bool:
        """Return True for the first value of a member before the content of the round."""
        return not (self.round_has_content or extra.is_sent_at_once or _member(extra) in self._early)

    def _encode_non_content(self, event: Event) -> bytes:
        """Encode an event other than content."""
        if isinstance(event, Usage):
            self._counted = event
            return self._encoder.encode((_with(self._spent, event),))
        if isinstance(event, Failure):
            self.problem, self.single_chunk_decoder = event.problem, None
            return b""
        if isinstance(event, ExtraField) and self._can_wait(event):
            self._early[_member(event)] = event
            return b""
        if isinstance(event, ExtraField) and event.inside and not self.round_has_content:
            return self._begin_content() + self._encoder.encode((event,))  # a further delta, as of an audio
        output = self._encode_early() + self._encoder.encode((event,))
        return output and self.begin_response() + output


def _member(extra: ExtraField) -> _Member:
    return extra.choice, extra.inside, extra.name


def _with(spent: Usage | None, usage: Usage) -> Usage:
    """Return the usage with that of the rounds before."""
    return spent + usage if spent else usage
