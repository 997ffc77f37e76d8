"""Normalize one choice of a response: its text through its parser, its tool calls in order, and one Finish."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from gateway.events import ContentEvent, Event, Finish, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallStart
from gateway.formats import FORMATS
from gateway.formats.markup import apart
from gateway.formats.parser import Format, FormatParser
from gateway.formats.reader import TextReader
from gateway.pipeline import format_mismatch
from gateway.pipeline.choice_output import ChoiceOutput, join_pieces
from gateway.pipeline.prefill import PrefillOutput
from gateway.pipeline.structured_calls import StructuredCalls
from gateway.pipeline.tool_calls import ParserSettings

_MAX = 8  # events of one delta that are not joined

_Words = TypeVar("_Words", TextDelta, ReasoningDelta)


class ChoiceNormalizer:
    """Take raw events, and return events in the order that events.py promises.

    reason: the backend's last finish reason, normalized; "" before the first one.
    plain: text passes unchanged, and nothing waits for it.
    straight: text goes directly to its parser.
    """

    def __init__(self, index: int, setting: ParserSettings, ids: set[str]) -> None:
        self._index, self._setting, self._context = index, setting, setting.context
        self._waits = setting.whole and (self._context.unopened or (setting.auto and bool(self._context.tools)))
        self._output = ChoiceOutput(index, setting, ids, waits=self._waits)
        self._out, self._calls = self._output.events, self._output.calls
        self._structured: StructuredCalls | None = None  # None until the backend sends a call
        self._passing: int | None = None  # the backend's index of the tool call whose next piece may pass unchanged
        self._passes: Callable[[str], bool]  # takes that piece, or returns False
        self._parse: FormatParser | None = None  # None while the backend's own events come
        self._apart = False  # the parser reads the backend's own reasoning
        self._gap: list[TextDelta] = []  # white space after that reasoning, before any text
        self._mute: list[TextDelta] = []  # log-probabilities that came without text
        self._echo = self._context.prefill if self._context.echoed else ""  # text that the backend will repeat
        self._has_text = False  # there was text
        self.plain = False
        self.straight = False
        self.reason = ""
        self._ended = False

    def feed(self, event: Event) -> list[Event]:
        """Return the events that the client may have now; none after the end."""
        if self.straight and type(event) is TextDelta and event.text and not event.logprobs:
            return self.read((event,))
        if type(event) is ToolArgsDelta and event.call == self._passing and self._passes(event.json):
            return [event]
        self.plain = self.straight = False
        self._passing = None
        if self._ended:
            return []
        if type(event) is TextDelta and not event.text:
            self._mute.append(event)
            return []
        if self._mute:
            self._place_mute(shown=type(event) is TextDelta)
        if type(event) is ToolArgsDelta:
            self._take_args(event)
        elif type(event) is ToolCallStart:
            self._calls.native = True
            self._of_backend().start(event, self)
        else:
            choice_event: Any = event  # any other event of a choice
            self._follow(choice_event)
        return self._taken()

    def _take_args(self, event: ToolArgsDelta) -> None:
        calls = self._of_backend()
        calls.args(event, self)
        if not self._waits and (passes := calls.passes(event.call)):
            self._passing, self._passes = event.call, passes

    def _of_backend(self) -> StructuredCalls:
        """Return the tool calls that the backend sends as calls."""
        self._structured = self._structured or StructuredCalls(self._index, self._setting, self._calls)
        return self._structured

    @property
    def calls(self) -> int:
        """The number of tool calls so far."""
        return self._calls.count

    @property
    def thought(self) -> int:
        """The number of characters of reasoning so far."""
        return self._output.thought

    def read(self, texts: Sequence[TextDelta]) -> list[Event]:
        """Return the events of deltas that have nothing but text.  Called only while `straight` is True."""
        parse, out = self._parse, self._out
        assert parse
        if len(texts) == 1:
            if not parse.feed(texts[0].text):
                self._join(0)
        else:
            self._read_run(texts, parse)
        if self._structured or self._waits:
            return self._taken()
        events = out.copy()
        out.clear()
        return events

    def _read_run(self, texts: Sequence[TextDelta], parse: FormatParser) -> None:
        """Feed several texts to the parser.  Only after a tool call do the boundaries between their events matter."""
        calls, out, place, straight = self._calls, self._out, 0, True
        for event in texts:
            if not parse.feed(event.text):
                straight = False
            if calls.count:
                join_pieces(out, place, calls_only=True)
                place = len(out)
        if not straight and len(out) > _MAX * len(texts):
            join_pieces(out)

    def finish(self, reason: str) -> None:
        """Keep one of the API's finish reasons: the last one counts, and content may follow it."""
        self.reason = reason

    def end(self) -> list[Event]:
        """End the choice, and return its last events.  A reason that does not fit the content is corrected."""
        if self._ended:
            return []
        reason, self._ended = self.reason or "stop", True
        self._output.limited = reason == "length"
        self._settle(cut=self._output.limited)
        if self._context.tools and not self._calls.count:
            self._look()
        if reason in ("stop", "tool_calls"):
            fitting = "tool_calls" if self._calls.count else "stop"
            if fitting != reason and (self._calls.native or not self._calls.count):
                self._setting.ledger.add("repaired", "finish_reason")
            reason = fitting
        self._out.append(Finish(self._index, reason))
        return self._taken()

    def fail(self) -> list[Event]:
        """Return the content received before the upstream failed, without a Finish unless the backend gave a reason."""
        if self.reason:
            return self.end()
        self._ended = True
        self._settle(cut=True)
        return self._taken()

    def _look(self) -> None:
        """Look for tool calls in another format: read them in text that has not been sent, else report them."""
        unsent = self._output.unsent_text
        if not (name := format_mismatch.format_of(self._output.text_end, self._setting.format, self._context)):
            return
        format = FORMATS[name].parse
        if format and self._setting.auto and format_mismatch.surely_calls(unsent, format, self._context):
            self._reread(format, unsent)
        else:
            self._output.unread(name)

    def _reread(self, format: Format, text: str) -> None:
        """Read the text that has not been sent in another format."""
        after = self._output.take_back_text()
        self._context = format_mismatch.alone(self._context)
        self._begin(format).feed(text)
        self._end_text(self._output.limited)
        self._out += after

    def _join(self, place: int) -> None:
        """Join the events from this position on: those of a tool call, or of any text if they are many."""
        many = len(self._out) > place + _MAX
        if many or self._calls.count:
            join_pieces(self._out, place, calls_only=not many)

    def _taken(self) -> list[Event]:
        if self._structured and self._structured.queue:
            self.plain = self.straight = False  # events that waited may be text, and more of it may wait
        if self._waits and not self._ended:
            return []
        if self._calls.count or self._parse:
            self._join(0)
        events = self._out.copy()
        self._out.clear()
        return events

    # the backend's events

    def _follow(self, event: ContentEvent) -> None:
        """Take content other than a structured call: it follows the open call."""
        calls = self._structured
        if calls and calls.queue:
            if calls.holds:
                calls.wait(event, self)
                return
            calls.close(self)
        self.say(event)

    def say(self, event: ContentEvent) -> None:
        """Take text, reasoning and the like that need not wait.

        StructuredCalls calls it for content that had to wait.
        """
        if type(event) is TextDelta:
            self._text(event)
        else:
            self._take_content(event)

    def _text(self, event: TextDelta) -> None:
        format = self._setting.format
        if self._echo:
            event = self._unechoed(event)
        if self._apart and event.text.isspace():
            self._gap.append(event)
            return
        self._has_text |= bool(event.text)
        if not format:
            self._unparsed(event)
            return
        gap, self._gap = self._gap, []
        parse = self._parser(format)
        for one in (*gap, event):
            self.straight = not self._output.align(one, parse.read)
            parse.feed(one.text)

    def _unparsed(self, event: TextDelta) -> None:
        """Pass on text that no format reads; for a whole body, keep its end for a search."""
        self.plain = not (self._setting.whole and self._context.tools)
        self._output.add_unparsed(event, searched=not self.plain)

    def _parser(self, format: Format) -> FormatParser:
        """Return the parser of the text; the text ends the backend's own reasoning."""
        if self._apart:
            self._end_text(followed=True)
        return self._parse or self._begin(format)

    def _begin(self, format: Format) -> FormatParser:
        """Return a new parser for text that begins here."""
        if self._output.thought and not self._context.reasoned:
            self._context = replace(self._context, reasoned=True)
        read = TextReader(self._setting.limit)
        if not self._context.prefill:
            self._parse = FormatParser(read, format(read, self._output, self._context))
            return self._parse
        resumed = PrefillOutput(self._output, read, self._context.prefill)
        self._parse = FormatParser(read, format(read, resumed, self._context))
        self._parse.feed(self._context.prefill)
        resumed.resume()
        return self._parse

    def _take_content(self, event: ContentEvent) -> None:
        """Take the backend's own reasoning, refusal and the like, after the text that the parser holds back."""
        if self._setting.format and self._thinks(event):
            return
        self._end_text(followed=True)
        if self._echo and isinstance(event, ReasoningDelta) and event.text:
            event = self._unechoed(event)
        if type(event) is ReasoningDelta:
            if self._context.unopened:
                self._context = replace(self._context, unopened=False)
            self._output.thought += len(event.text)
        self._out.append(event)

    def _thinks(self, event: ContentEvent) -> bool:
        """Parse reasoning for tool calls; return False if there can be none."""
        if type(event) is not ReasoningDelta or event.signature or (self._parse and not self._apart):
            return False
        format = apart(self._setting.format, self._context)
        if self._has_text or self._calls.count or not format:
            return False
        if not self._parse:
            self._context = replace(self._context, thought_open=True, unopened=False)
            self._begin(format)
        assert self._parse
        self._apart = True
        self._parse.feed(event.text)
        return True

    def _unechoed(self, event: _Words) -> _Words:
        """Return the first text without the beginning that the backend repeats and the client has."""
        event, self._echo = replace(event, text=event.text.removeprefix(self._echo)), ""
        return event

    def _place_mute(self, shown: bool) -> None:
        """Add entries without text to the text that follows or ends; those of reasoning and tool calls are dropped."""
        mute, self._mute = self._mute, []
        if not shown:
            self._setting.ledger.add("dropped", "logprobs")
            return
        for event in mute:
            self._follow(event)

    def _settle(self, cut: bool) -> None:
        """End the text and every open tool call."""
        self._passing = None
        if self._mute:
            self._place_mute(shown=bool(self._parse) or not (self._structured and self._structured.queue))
        if self._structured:
            self._structured.close(self, cut)
        self._end_text(cut)

    def _end_text(self, cut: bool = False, *, followed: bool = False, before_call: bool = False) -> None:
        """End the text and its tool call; reasoning that the prompt left open ends, too.

        followed: more events of the choice follow.
        before_call: the first of them is a tool call.
        """
        self.plain = self.straight = False
        if self._parse:
            read = self._parse.read
            self._apart, read.followed, read.before_call = False, followed, before_call
            self._parse.close(cut=self._output.limited)
            if read.dropped:
                self._setting.ledger.add("truncated", "content")
            if read.was_repaired:
                self._setting.ledger.add("repaired", "tool_calls.function.arguments")
            self._output.end_alignment()
            self._parse = None
            if self._gap:
                self._release_gap(followed)
        if self._context.thought_open or self._context.prefill:
            self._context = replace(self._context, thought_open=False, prefill="")
        if self._calls.count:
            self._calls.end(cut)

    def _release_gap(self, followed: bool) -> None:
        """Pass on white space after reasoning, unless the reasoning was a tool call and nothing else came."""
        gap, self._gap = self._gap, []
        if followed or not self._calls.count:
            self._out += gap
        else:
            self._setting.ledger.add("dropped", "content")

    def end_before_call(self) -> None:
        """End the text.  StructuredCalls calls it at the start of a tool call."""
        self._end_text(followed=True, before_call=True)
        if not self._context.called:
            self._context = replace(self._context, called=True)
