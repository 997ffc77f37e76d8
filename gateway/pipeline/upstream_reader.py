"""Read one upstream round: its bytes in, normalized events out.  Knows no sockets, no clock, no client."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gateway import transforms
from gateway.backends.openai.decoder import ChatDecoder
from gateway.backends.openai.payload_values import is_complete_payload
from gateway.backends.openai.usage import estimate_tokens_from_characters, split_reasoning_tokens
from gateway.errors import Problem
from gateway.events import Event, ExtraField, Finish, TextDelta, Usage
from gateway.pipeline.format_mismatch import may_call
from gateway.pipeline.normalizer import Normalizer
from gateway.pipeline.tool_calls import ParserSettings
from gateway.sse import SSE, FrameDecoder, FrameTooLong, NDJSONDecoder
from gateway.transforms import EventFilter

_LOST = Problem(502, "The backend closed the connection before its response was complete.", "upstream_lost")
_MAX_SINGLE_CHUNK = 4 << 10  # bytes
_SHORT = 2 << 10  # bytes of chunks that are decoded one by one while no form is known
_STREAM = re.compile(rb"(?:data|event|id|retry)?:")  # the beginning of a stream of events
_DECIDED = 6  # bytes that show whether a body begins like one: the longest is `event:`
_PARTS = 3  # the events of a whole response that passes unchanged: usage, text and finish
_FITTING = ("stop", "length")  # the finish reasons of a text
_STREAMS: dict[str, Callable[[int], FrameDecoder]] = {"text/event-stream": SSE, "application/x-ndjson": NDJSONDecoder}


class UpstreamReader:
    """Read one round.

    Order of calls: set_content_type, any number of feed, then close (the body ended) or fail (it broke off).

    prompt_size: returns the characters of the prompt; called only if the backend does not count tokens.
    limit: bytes of one event, or of a whole body.
    """

    def __init__(
        self,
        decoder: ChatDecoder,
        settings: ParserSettings,
        prompt_size: Callable[[], int],
        filters: Sequence[EventFilter] = (),
        limit: int = 8 << 20,
    ) -> None:
        self._decoder, self._normalizer, self._ledger = decoder, Normalizer(settings), settings.ledger
        self._prompt_size, self._filters, self._limit = prompt_size, filters, limit
        self._frames: FrameDecoder | None = None  # None unless it is a stream
        self._body: BodyBuffer  # set unless it is a stream
        self._begun: bytes | None = None  # the beginning of a body while it may still be a stream
        self._settings = settings
        self._plain = not filters and not settings.format  # text passes unparsed and unfiltered

    def set_content_type(self, content_type: str) -> None:
        """Choose the framing by the Content-Type.

        Anything else is one whole JSON text, unless it begins like a stream.
        """
        if frames := _STREAMS.get(content_type.partition(";")[0].strip().lower()):
            self._frames = frames(self._limit)
        else:
            self._frames, self._body, self._begun = None, BodyBuffer(self._limit), b""

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of the data.

        Consecutive chunks that repeat a known form are decoded together, other payloads one by one.
        """
        frames, decoder = self._frames, self._decoder
        if not frames:
            return self._keep_body(data) if self._begun is None else self._begin_body(data)
        events: list[Event] = []
        at, end = 0, len(data)
        while at < end and not self._normalizer.failed:
            if frames.aligned and end <= self._limit:
                run, until = decoder.run(data, at, frames)
                if until > at:
                    events += self._events_of_repeats(run)
                    at = until
                    continue
            one_by_one = frames.aligned and (end - at <= _SHORT or decoder.repeats_settled)
            until = end if one_by_one else frames.next_boundary(data, at)
            events += self._events_of_payloads(frames.feed(data[at:until]))
            at = until
        return events

    @property
    def single_chunk_decoder(self) -> Callable[[bytes], Sequence[Event] | None] | None:
        """A decoder for one more chunk of the last form; None if there is no such form.

        It skips the framing and, for plain text, the normalizer.
        """
        if not self._frames or not self._frames.aligned or self._normalizer.failed:
            return None
        known = self._decoder.repeated_event
        if not known:
            return None
        decode = self._decoder.single_chunk_decoder(min(self._limit, _MAX_SINGLE_CHUNK))
        if self._plain and self._normalizer.passes_unchanged(known):
            return decode

        def decode_one(data: bytes) -> Sequence[Event] | None:
            events = decode(data)
            return events and self._normalize_run(events)

        return decode_one

    def close(self) -> list[Event]:
        """Return the last events of a body that has ended.

        The round fails unless the backend sent an end mark, a finish reason, or one whole body.
        """
        if not self._frames:
            return self._decode_body(self._body.close())
        events = self._remaining(self._frames)
        if self._decoder.empty:  # there was nothing, or only an end mark
            return events + self._flush_filters(self._normalizer.fail(self._decoder.no_choice_problem))
        if self.done or self._normalizer.has_finished():
            return events + self._flush_filters(self._close_normalizer())
        return events + self._flush_filters(self._normalizer.fail(_LOST))

    def fail(self, problem: Problem) -> list[Event]:
        """Return the last events of a body that broke off.

        The round fails unless the backend has finished all requested choices.
        """
        if not self._frames:
            return self._flush_filters(self._normalizer.fail(problem))
        events = self._remaining(self._frames)
        if self.done or self._normalizer.has_finished(self._decoder.n):
            return events + self.close()
        return events + self._flush_filters(self._normalizer.fail(problem))

    @property
    def done(self) -> bool:
        """True if the backend has sent its end mark."""
        return self._decoder.done

    @property
    def finished(self) -> bool:
        """True if the backend has given a finish reason for each choice that has begun."""
        return self._normalizer.has_finished()

    @property
    def calls(self) -> int:
        """The number of tool calls that have begun."""
        return self._normalizer.calls

    @property
    def usage(self) -> Usage:
        """The usage so far, as the backend has counted it, or estimated."""
        decoder = self._decoder
        return decoder.counted or Usage(
            estimate_tokens_from_characters(self._prompt_size()),
            decoder.completion_tokens or estimate_tokens_from_characters(decoder.decoded_characters),
        )

    def _begin_body(self, piece: bytes) -> list[Event]:
        """Keep the first bytes of a body, or read the stream: some servers send it without its Content-Type."""
        begun = ((self._begun or b"") + piece).lstrip()[:_DECIDED]
        if _STREAM.match(begun):
            self._frames, self._begun = SSE(self._limit), None
            return self.feed(self._body.close() + piece)
        self._begun = begun if len(begun) < _DECIDED else None
        return self._keep_body(piece)

    def _keep_body(self, piece: bytes) -> list[Event]:
        """Keep a piece of one whole body.  Return no events, except a failure if the body is too long."""
        try:
            self._body.append(piece)
        except FrameTooLong as error:
            return [*transforms.apply_filters(self._filters, self._normalizer.fail(error.problem))]
        return []

    def _decode_body(self, body: bytes) -> list[Event]:
        """Return the events of one whole body: mostly a text with its finish, which pass unchanged."""
        made = [] if self._normalizer.failed else self._decoder.decode_whole(body) + self._decoder.held_events()
        if self._plain and self._decoder.n == 1:
            others = [event for event in made if type(event) is not ExtraField]  # an ExtraField passes in any case
            if passes_unchanged(others, self._settings):
                return made
        events = [event for one in made for event in self._normalize(one)]
        if self._normalizer.is_empty:
            return events + self._flush_filters(self._normalizer.fail(self._decoder.no_choice_problem))
        return events + self._flush_filters(self._close_normalizer())

    def _remaining(self, frames: FrameDecoder) -> list[Event]:
        """Return the events of the last payload, if its empty line is missing, and those that the decoder held back.

        A payload that was cut is left out, so that it does not hide the reason of the end.
        """
        last = [] if frames.aligned else self._events_of_payloads(filter(is_complete_payload, frames.close()))
        return last + [event for raw in self._decoder.held_events() for event in self._normalize(raw)]

    def _flush_filters(self, last: Iterable[Event]) -> list[Event]:
        if not self._filters:
            return [*last]
        return [*transforms.apply_filters(self._filters, last), *transforms.close_filters(self._filters)]

    def _close_normalizer(self) -> Iterable[Event]:
        last = self._normalizer.close()
        if self._normalizer.failed:
            return last
        if not self._normalizer.has_finished(self._decoder.n):
            self._ledger.add("unenforced", "n")
        if self._decoder.lacks_logprobs and not any(entry.endswith(":logprobs") for entry in self._ledger.entries()):
            self._ledger.add("unenforced", "logprobs")
        return (*last, *self._estimate_usage())

    def _estimate_usage(self) -> Iterable[Usage]:
        """Return the usage that the backend did not count, of the response or of its reasoning."""
        usage, thought = self._decoder.counted, self._normalizer.thought
        if usage and (usage.reasoning or not thought or not self._decoder.estimates_reasoning):
            return ()
        self._ledger.add("estimated", "usage.reasoning_tokens" if usage else "usage")
        if not thought:
            return (self.usage,)
        return (split_reasoning_tokens(self.usage, thought, self._decoder.decoded_characters),)

    def _events_of_repeats(self, run: list[Event]) -> Sequence[Event]:
        """Return the output of events that differ only in their texts."""
        if not run or (self._plain and self._normalizer.passes_unchanged(run[0])):
            return run
        return self._normalize_run(run)

    def _normalize_run(self, run: Sequence[Event]) -> Sequence[Event]:
        """Return the output of such events if they do not pass unchanged."""
        events = self._normalizer.run(run)
        return transforms.apply_filters(self._filters, events) if self._filters else events

    def _events_of_payloads(self, payloads: Iterator[bytes]) -> list[Event]:
        decoder, normalizer = self._decoder, self._normalizer
        events: list[Event] = []
        try:
            for payload in payloads:
                if normalizer.failed:
                    break  # the rest of the data is ignored

                for raw in decoder.decode(payload):
                    events += self._normalize(raw)
                if decoder.done and normalizer.has_finished():
                    events += transforms.apply_filters(self._filters, normalizer.close())  # only usage may follow
        except FrameTooLong as error:
            events += transforms.apply_filters(self._filters, normalizer.fail(error.problem))
        return events

    def _normalize(self, raw: Event) -> Iterable[Event]:
        if self._plain and self._normalizer.passes_unchanged(raw):
            return (raw,)
        events = self._normalizer.feed(raw)
        return transforms.apply_filters(self._filters, events) if self._filters else events


def passes_unchanged(answer: Sequence[Event], settings: ParserSettings) -> bool:
    """Return True if a new Normalizer would return just these events of a whole body."""
    if len(answer) != _PARTS or settings.format or settings.context.echoed:
        return False
    usage, text, end = answer
    if type(usage) is not Usage or type(text) is not TextDelta or type(end) is not Finish:
        return False
    is_simple = bool(text.text) and not text.logprobs and end.reason in _FITTING
    if not (is_simple and text.choice == end.choice == 0):
        return False
    return not (settings.context.tools and may_call(text.text))


@dataclass(slots=True, eq=False)
class BodyBuffer:
    """Collect one whole body, which is one payload and mostly arrives in one piece."""

    _limit: int
    _pieces: list[bytes] = field(default_factory=list)
    _size: int = 0

    def append(self, piece: bytes) -> None:
        """Add a piece.  Raise FrameTooLong beyond the limit."""
        self._size += len(piece)
        if self._size > self._limit:
            raise FrameTooLong("a body", self._limit)
        self._pieces.append(piece)

    def close(self) -> bytes:
        """Return the whole body, and empty the buffer."""
        whole, self._size = b"".join(self._pieces), 0
        self._pieces.clear()
        return whole
