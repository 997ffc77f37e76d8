"""Detect a round without content: only reasoning or nothing, or only the markup of an empty tool call.

Models end such rounds with `stop`, mostly after a tool result.  The policy `enforce.empty` decides whether the gateway
makes a further round.  That round continues the same response: the client keeps the reasoning that it has.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from gateway.errors import ENDS, Problem
from gateway.events import (
    BuiltinEvent,
    BuiltinItem,
    Event,
    ExtraField,
    Failure,
    Finish,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from gateway.pipeline.pipeline import RoundSource, SingleChunkDecoder
from gateway.request import Request
from gateway.transforms.output_validation import FailedOutput
from gateway.warnings import Warnings

SUBJECT = "empty"
_LONGEST = 256  # characters of empty markup
_TAG = r"(?:</?[^\s<>]{0,32}(?:tool|function)[^\s<>]?calls?[^\s<>]{0,32}>|\[/?TOOL_CALLS?\])"
_PART = r"(?:<[^\s<>]{0,96}|\[[/A-Z_]{0,12})"  # of a tag
_INSIDE = rf"(?:\s|{_TAG}|\{{\s*\}}|\[\s*\])*"
_NOTHING = re.compile(rf"\s*(?:{_TAG}{_INSIDE})?")
_PERHAPS_NOTHING = re.compile(rf"\s*(?:{_PART}|{_TAG}{_INSIDE}(?:{_PART}|\{{\s*|\[\s*)?)?")
_NON_CONTENT = Usage | ExtraField
_HOSTED = BuiltinItem | BuiltinEvent


class CallCountingSource(RoundSource, Protocol):
    """A source that counts the tool calls of its round, including those that run at the gateway."""

    @property
    def calls(self) -> int:
        """The number of tool calls so far."""


class EmptyRoundPolicy:
    """Hold back the text of a round while the round may be empty, and its end if it is.

    retries: an empty round is repeated.
    prefills: the backend continues reasoning at the end of the request.
    limit: characters of reasoning that the next request may end with.
    before: the empty round, if this one is the retry.
    settled: the round is not empty, or is over.
    useless: the round failed before the client received anything of it.
    failed: this round, if it is empty and will be repeated.
    """

    def __init__(
        self,
        request: Request,
        ledger: Warnings,
        before: FailedOutput | None,
        *,
        retries: bool,
        prefills: bool,
        limit: int,
    ) -> None:
        self._request, self._ledger, self._before = request, ledger, before
        self._retries, self._prefills, self._room = retries and not before, prefills, limit
        self._mark = ledger.savepoint()
        self._thoughts: list[str] = []
        self._text = ""
        self._held: list[Event] = []
        self._reasoning_sent = False  # the client has reasoning of this round
        self.settled = self.useless = False
        self.failed: FailedOutput | None = None

    def feed(self, event: Event, source: CallCountingSource) -> Iterable[Event]:
        """Return the events that the client may have now.

        source: the source of the event.
        """
        if self.settled or isinstance(event, _NON_CONTENT):
            self.settled = self.settled or _is_audio(event)
            return (event,)
        if isinstance(event, TextDelta):
            return self._on_text(event)
        if isinstance(event, Finish):
            return self._finish(event, source.calls)
        if isinstance(event, Failure):
            return self._fail(event)
        if isinstance(event, ReasoningDelta):
            self._on_reasoning(event)
        elif not isinstance(event, _HOSTED):
            self._settle()
        return self._released(event)

    def retry_request(self) -> Request:
        """Return the request for the retry."""
        thought = "".join(self._thoughts)
        if not (thought and self._prefills and self._room >= 0) or self._request.messages[-1]["role"] == "assistant":
            return self._request
        begun = {"role": "assistant", "content": "", "reasoning_content": thought}
        return replace(self._request, messages=(*self._request.messages, begun), fresh=False)

    def _on_reasoning(self, thought: ReasoningDelta) -> None:
        self._reasoning_sent = True
        self._room -= len(thought.text)
        if self._prefills and self._retries and self._room >= 0:
            self._thoughts.append(thought.text)

    def _on_text(self, text: TextDelta) -> Iterable[Event]:
        self._text += text.text
        if len(self._text) > _LONGEST or not _PERHAPS_NOTHING.fullmatch(self._text):
            self._settle()
            return self._released(text)
        if self._retries or self._before:
            self._held.append(text)
            return ()
        return (text,)

    def _finish(self, finish: Finish, calls: int) -> Iterable[Event]:
        if calls or not _NOTHING.fullmatch(self._text):
            self._settle()
        elif self._before:
            return self._first(self._before)
        elif finish.reason == "stop":
            if self._retries:
                entries = self._ledger.take(self._mark, "unenforced:")
                self.failed = FailedOutput((*self._held, finish), subject=SUBJECT, entries=entries)
                return ()
            self._ledger.add("unenforced", SUBJECT)
        return self._released(finish)

    def _fail(self, failure: Failure) -> Iterable[Event]:
        if not self._before or failure.problem in ENDS:
            return self._released(failure)
        self.useless = not self._reasoning_sent
        return self._first(self._before)

    def _first(self, before: FailedOutput) -> Iterable[Event]:
        """End the response as the empty round did."""
        self.settled = True
        self._ledger.add("unenforced", SUBJECT)
        self._ledger.put(before.entries)
        return before.events

    def _settle(self) -> None:
        self.settled = True
        if self._before:
            self._ledger.add("emulated", SUBJECT)

    def _released(self, event: Event) -> Iterable[Event]:
        held, self._held = self._held, []
        return (*held, event)


class MaybeEmptySource:
    """A RoundSource whose round may be empty."""

    def __init__(self, source: CallCountingSource, policy: EmptyRoundPolicy) -> None:
        self._source, self._policy = source, policy
        self.set_content_type = source.set_content_type

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of the data that the client may have now."""
        events = self._source.feed(data)
        return events if self._policy.settled else self._filtered(events)

    def close(self) -> list[Event]:
        """Return the last events of a round whose body has ended."""
        return self._filtered(self._source.close())

    def fail(self, problem: Problem) -> list[Event]:
        """Return the last events of a round that failed."""
        return self._filtered(self._source.fail(problem))

    @property
    def usage(self) -> Usage:
        """The usage of the round; zero if the client received nothing of it."""
        return Usage(0, 0) if self._policy.useless else self._source.usage

    @property
    def done(self) -> bool:
        """True if the backend has announced the end of the round."""
        return self._source.done

    @property
    def single_chunk_decoder(self) -> SingleChunkDecoder | None:
        """The decoder for one more chunk of the last form; None without such a form."""
        decode = self._source.single_chunk_decoder
        if self._policy.settled or not decode:
            return decode

        def decode_one(data: bytes) -> Sequence[Event] | None:
            events = decode(data)
            return events and self._filtered(events)

        return decode_one

    def _filtered(self, events: Sequence[Event]) -> list[Event]:
        return [passed for event in events for passed in self._policy.feed(event, self._source)]


def _is_audio(event: Event) -> bool:
    return isinstance(event, ExtraField) and event.inside and event.name == "audio"
