"""Collect what the parser of one choice finds, as events for the client.

One chunk of a model may become thousands of pieces of a text: `join_pieces` joins them.
"""

from collections import deque
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from gateway.events import Event, Logprob, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallStart
from gateway.formats.reader import TextReader
from gateway.pipeline.tool_calls import ParserSettings, ToolCallTracker

_SEEN = 64 << 10  # characters at the end of a text that are searched for tool calls in other formats
_PIECES = 256  # the maximum of pieces that hold the end of a text


class ChoiceOutput:
    """The ParserOutput of one choice.

    events: the events that the client has not received.
    calls: the tool calls of the choice; they append to `events`.
    waits: the client gets nothing before the end.
    limited: the token limit cut the response.
    thought: the number of characters of reasoning.
    """

    def __init__(self, index: int, settings: ParserSettings, ids: set[str], *, waits: bool) -> None:
        self._index, self._ledger, self._tools = index, settings.ledger, bool(settings.context.tools)
        self.events: list[Event] = []
        self.calls = ToolCallTracker(index, settings, ids, self.events)
        self.tool_args = self.calls.args
        self.waits = waits
        self.limited = False
        self.thought = 0
        self._alignment: LogprobAligner | None = None  # None unless the text has log-probabilities
        self._read: TextReader  # of the text with log-probabilities
        self._shown = ""  # the last text that the format has found
        self._parts = False  # a tool call stands between that text and the next one
        self._seen: list[str] = []  # the end of the text, if tools were offered
        self._pieces = 0  # the number of its pieces that are not joined yet

    # called by the format's parser

    def text(self, text: str) -> None:
        """Add text of the message."""
        shown = self._parted(text) if self._parts else text
        self._shown = shown
        if self._tools:
            self._seen.append(text)
            self._pieces += 1
            if self._pieces > _PIECES:
                self._pieces, self._seen = 0, ["".join(self._seen)[-_SEEN:]]
        if self._alignment:
            taken = self._alignment.take(self._read.offset, len(text))
            self.events.append(TextDelta(self._index, shown, taken))
        else:
            self.events.append(TextDelta(self._index, shown))

    def _parted(self, text: str) -> str:
        """Return the text after a tool call, separated from the text before the call."""
        self._parts = False
        return text if text[:1].isspace() else f"\n{text}"

    def reasoning(self, text: str) -> None:
        """Add reasoning."""
        self.thought += len(text)
        self.events.append(ReasoningDelta(self._index, text))

    def tool_start(self, name: str, id: str = "") -> None:
        """Start a tool call."""
        self._parts = not self._shown[-1:].isspace() and bool(self._shown)
        self.calls.start(ToolCallStart(self._index, 0, id, name), in_text=True)

    def tool_end(self) -> None:
        """End the open tool call."""
        self.calls.end(closed=True)

    def incomplete_call(self, text: str) -> None:
        """Take the beginning of a tool call without a name: useless if the token limit cut it, else text."""
        if self.limited:
            self._ledger.add("truncated", "tool_calls")
        else:
            self.text(text)

    def note_dropped(self, what: str) -> None:
        """Warn about something that was left out."""
        self._ledger.add("dropped", what)

    def thought_end(self, tag: str) -> None:
        """Turn all text so far into reasoning, if none of it has been sent."""
        self._ledger.add("repaired", "content")
        if not self.waits:
            self._parts = not self._shown[-1:].isspace()
            return
        self._drop_logprobs()
        self.events[:] = [ReasoningDelta(e.choice, e.text) if type(e) is TextDelta else e for e in self.events]
        self.thought += sum([len(event.text) for event in self.events if type(event) is ReasoningDelta])
        self._shown = ""
        self._seen.clear()

    def note_unread(self, format: str) -> None:
        """Warn about a tool call in a format that was not read."""
        self._ledger.add("unread", f"tool_calls={format}")

    # called by the ChoiceNormalizer

    def add_unparsed(self, event: TextDelta, *, searched: bool) -> None:
        """Add text that no format reads.  searched: it may be searched for tool calls."""
        self.events.append(event)
        if searched:
            self._seen.append(event.text)

    @property
    def text_end(self) -> str:
        """The end of the text, to search for tool calls."""
        return "".join(self._seen)[-_SEEN:]

    @property
    def unsent_text(self) -> str:
        """The text that the client has not received."""
        return "".join([event.text for event in self.events if type(event) is TextDelta])

    def take_back_text(self) -> list[Event]:
        """Remove the text that the client has not received, and return the other events behind its beginning."""
        first = next(i for i, event in enumerate(self.events) if type(event) is TextDelta)
        after = [event for event in self.events[first:] if type(event) is not TextDelta]
        self._drop_logprobs()
        del self.events[first:]
        self._shown = ""
        return after

    def _drop_logprobs(self) -> None:
        """Warn if the text that has not been sent has log-probabilities."""
        if any(event.logprobs for event in self.events if type(event) is TextDelta):
            self._ledger.add("dropped", "logprobs")

    def align(self, event: TextDelta, read: TextReader) -> bool:
        """Keep the log-probabilities of a text before `read` gets it; return True if the text had any so far."""
        if event.logprobs and not self._alignment:
            self._alignment, self._read = LogprobAligner(read.received_characters), read
        if self._alignment:
            self._alignment.feed(event.text, event.logprobs)
        return self._alignment is not None

    def end_alignment(self) -> None:
        """Add the log-probabilities of tokens without visible text, at the end of a text."""
        alignment, self._alignment = self._alignment, None
        if not alignment:
            return
        rest, inside = alignment.rest(self._read.offset), self.calls.open
        if rest and not inside:
            self.events.append(TextDelta(self._index, "", rest))
        if alignment.dropped or (rest and inside):
            self._ledger.add("dropped", "logprobs")


def join_pieces(events: list[Event], start: int = 0, *, calls_only: bool = False) -> None:
    """Replace consecutive texts, reasoning or arguments, from this position on, by one event each.

    Text with log-probabilities and signed reasoning stay unchanged.

    calls_only: texts and reasoning stay unchanged, too.
    """
    if len(events) > start + 1:
        runs = [(key, [*run]) for key, run in groupby(events[start:], _call_of if calls_only else _text_of)]
        events[start:] = [event for key, run in runs for event in (run if key is None else [_joined(run)])]


def _call_of(event: Event) -> int | None:
    return event.call if isinstance(event, ToolArgsDelta) else None


def _text_of(event: Event) -> tuple[type[Event], int] | None:
    """Return a key that pieces of one text share; None for events that are not joined."""
    if isinstance(event, ToolArgsDelta):
        return ToolArgsDelta, event.call
    if isinstance(event, TextDelta):
        return None if event.logprobs else (TextDelta, event.choice)
    if isinstance(event, ReasoningDelta):
        return None if event.signature else (ReasoningDelta, event.choice)
    return None


def _joined(run: list[Any]) -> Event:
    first: Any = run[0]
    whole: Event = first
    if len(run) > 1 and isinstance(first, ToolArgsDelta):
        whole = replace(first, json="".join([piece.json for piece in run]))
    elif len(run) > 1:
        whole = replace(first, text="".join([piece.text for piece in run]))
    return whole


class LogprobAligner:
    """Keep log-probabilities by the offset of their text, while a parser decides which text the client gets.

    `feed` takes text with its entries, and `take` returns the entries of shown text.  Entries of markers and of
    arguments are dropped.

    fed: the number of characters before the first entries.
    dropped: entries of text that was not shown were dropped.
    """

    def __init__(self, fed: int) -> None:
        self._fed = fed  # characters so far
        self._waiting: deque[tuple[int, int, Logprob]] = deque()  # start and end in the text, entry
        self.dropped = False

    def feed(self, text: str, entries: Sequence[Logprob]) -> None:
        """Add the next text with its entries."""
        start, self._fed = self._fed, self._fed + len(text)
        for entry in entries:
            end = min(start + len(entry.token), self._fed)
            self._waiting.append((start, end, entry))
            start = end

    def take(self, end: int, length: int) -> tuple[Logprob, ...]:
        """Return the entries of the text of this length that ends at offset `end`."""
        return self._pop(end - length, end)

    def rest(self, offset: int) -> tuple[Logprob, ...]:
        """Return the entries of tokens without visible text, at the end of a text that was read up to `offset`."""
        return self._pop(offset, self._fed + 1)

    def _pop(self, begin: int, end: int) -> tuple[Logprob, ...]:
        taken: list[Logprob] = []
        while self._waiting and self._waiting[0][0] < end:
            start, stop, entry = self._waiting.popleft()
            if stop > begin or start >= begin:
                taken.append(entry)
            else:
                self.dropped = True
        return tuple(taken)
