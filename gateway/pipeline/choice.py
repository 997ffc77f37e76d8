"""Normalize one choice of a response: its text through its parser, its tool calls in order, and one Finish."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from gateway.events import ContentEvent, Event, Finish, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallStart
from gateway.formats import FORMATS
from gateway.formats.markup import reasoning_field_format
from gateway.formats.parser import Format, FormatParser
from gateway.formats.reader import TextReader
from gateway.pipeline import format_mismatch
from gateway.pipeline.choice_output import ChoiceOutput, join_pieces
from gateway.pipeline.prefill import PrefillOutput
from gateway.pipeline.structured_calls import StructuredCalls
from gateway.pipeline.tool_calls import ParserSettings

_MAX_UNJOINED = 8  # events of one delta that are not joined

_TextEvent = TypeVar("_TextEvent", TextDelta, ReasoningDelta)


class ChoiceNormalizer:
    """Take raw events, and return events in the order that events.py promises.

    reason: the backend's last finish reason, normalized; "" before the first one.
    passes_text: text passes unchanged, and nothing waits for it.
    parses_text: text goes directly to its parser.
    """

    def __init__(self, index: int, settings: ParserSettings, ids: set[str]) -> None:
        self._index, self._settings, self._context = index, settings, settings.context
        self._holds_all = settings.whole and (self._context.unopened or (settings.auto and bool(self._context.tools)))
        self._output = ChoiceOutput(index, settings, ids, waits=self._holds_all)
        self._out, self._calls = self._output.events, self._output.calls
        self._structured: StructuredCalls | None = None  # None until the backend sends a call
        self._passing_call: int | None = None  # the backend's index of the call whose next piece may pass unchanged
        self._pass_piece: Callable[[str], bool]  # takes that piece, or returns False
        self._parser: FormatParser | None = None  # None while the backend's own events come
        self._parses_reasoning = False  # the parser reads the backend's own reasoning
        self._space_after_reasoning: list[TextDelta] = []  # white space after that reasoning, before any text
        self._textless: list[TextDelta] = []  # log-probabilities that came without text
        self._echo = self._context.prefill if self._context.echoed else ""  # text that the backend will repeat
        self._has_text = False  # there was text
        self.passes_text = False
        self.parses_text = False
        self.reason = ""
        self._ended = False

    def feed(self, event: Event) -> list[Event]:
        """Return the events that the client may have now; none after the end."""
        if self.parses_text and type(event) is TextDelta and event.text and not event.logprobs:
            return self.read((event,))
        if type(event) is ToolArgsDelta and event.call == self._passing_call and self._pass_piece(event.json):
            return [event]
        self.passes_text = self.parses_text = False
        self._passing_call = None
        if self._ended:
            return []
        if type(event) is TextDelta and not event.text:
            self._textless.append(event)
            return []
        if self._textless:
            self._add_textless(shown=type(event) is TextDelta)
        if type(event) is ToolArgsDelta:
            self._take_args(event)
        elif type(event) is ToolCallStart:
            self._calls.native = True
            self._backend_calls().start(event, self)
        else:
            choice_event: Any = event  # any other event of a choice
            self._order_content(choice_event)
        return self._take_events()

    def _take_args(self, event: ToolArgsDelta) -> None:
        calls = self._backend_calls()
        calls.args(event, self)
        if not self._holds_all and (passes := calls.passes(event.call)):
            self._passing_call, self._pass_piece = event.call, passes

    def _backend_calls(self) -> StructuredCalls:
        """Return the tool calls that the backend sends as calls."""
        self._structured = self._structured or StructuredCalls(self._index, self._settings, self._calls)
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
        """Return the events of deltas that have nothing but text.  Called only while `parses_text` is True."""
        parser, out = self._parser, self._out
        assert parser
        if len(texts) == 1:
            if not parser.feed(texts[0].text):
                self._join(0)
        else:
            self._read_run(texts, parser)
        if self._structured or self._holds_all:
            return self._take_events()
        events = out.copy()
        out.clear()
        return events

    def _read_run(self, texts: Sequence[TextDelta], parser: FormatParser) -> None:
        """Feed several texts to the parser.  Only after a tool call do the boundaries between their events matter."""
        calls, out, start, passed = self._calls, self._out, 0, True
        for event in texts:
            if not parser.feed(event.text):
                passed = False
            if calls.count:
                join_pieces(out, start, calls_only=True)
                start = len(out)
        if not passed and len(out) > _MAX_UNJOINED * len(texts):
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
        self._end_text_and_calls(cut=self._output.limited)
        if self._context.tools and not self._calls.count:
            self._check_other_formats()
        if reason in ("stop", "tool_calls"):
            fitting = "tool_calls" if self._calls.count else "stop"
            if fitting != reason and (self._calls.native or not self._calls.count):
                self._settings.ledger.add("repaired", "finish_reason")
            reason = fitting
        self._out.append(Finish(self._index, reason))
        return self._take_events()

    def fail(self) -> list[Event]:
        """Return the content received before the upstream failed, without a Finish unless the backend gave a reason."""
        if self.reason:
            return self.end()
        self._ended = True
        self._end_text_and_calls(cut=True)
        return self._take_events()

    def _check_other_formats(self) -> None:
        """Look for tool calls in another format: read them in text that has not been sent, else report them."""
        unsent = self._output.unsent_text
        if not (name := format_mismatch.format_of(self._output.text_end, self._settings.format, self._context)):
            return
        format = FORMATS[name].parse
        if format and self._settings.auto and format_mismatch.surely_calls(unsent, format, self._context):
            self._reread(format, unsent)
        else:
            self._output.note_unread(name)

    def _reread(self, format: Format, text: str) -> None:
        """Read the text that has not been sent in another format."""
        after = self._output.take_back_text()
        self._context = format_mismatch.alone(self._context)
        self._new_parser(format).feed(text)
        self._end_text(self._output.limited)
        self._out += after

    def _join(self, start: int) -> None:
        """Join the events from this position on: those of a tool call, or of any text if they are many."""
        many = len(self._out) > start + _MAX_UNJOINED
        if many or self._calls.count:
            join_pieces(self._out, start, calls_only=not many)

    def _take_events(self) -> list[Event]:
        if self._structured and self._structured.queue:
            self.passes_text = self.parses_text = False  # events that waited may be text, and more of it may wait
        if self._holds_all and not self._ended:
            return []
        if self._calls.count or self._parser:
            self._join(0)
        events = self._out.copy()
        self._out.clear()
        return events

    # the backend's events

    def _order_content(self, event: ContentEvent) -> None:
        """Take content other than a structured call: it follows the open call."""
        calls = self._structured
        if calls and calls.queue:
            if calls.holds:
                calls.wait(event, self)
                return
            calls.close(self)
        self.take_content(event)

    def take_content(self, event: ContentEvent) -> None:
        """Take text, reasoning and the like that need not wait.

        StructuredCalls calls it for content that had to wait.
        """
        if type(event) is TextDelta:
            self._take_text(event)
        else:
            self._take_other_content(event)

    def _take_text(self, event: TextDelta) -> None:
        format = self._settings.format
        if self._echo:
            event = self._without_echo(event)
        if self._parses_reasoning and event.text.isspace():
            self._space_after_reasoning.append(event)
            return
        self._has_text |= bool(event.text)
        if not format:
            self._take_unparsed(event)
            return
        space, self._space_after_reasoning = self._space_after_reasoning, []
        parser = self._text_parser(format)
        for piece in (*space, event):
            self.parses_text = not self._output.align(piece, parser.reader)
            parser.feed(piece.text)

    def _take_unparsed(self, event: TextDelta) -> None:
        """Pass on text that no format reads; for a whole body, keep its end for a search."""
        self.passes_text = not (self._settings.whole and self._context.tools)
        self._output.add_unparsed(event, searched=not self.passes_text)

    def _text_parser(self, format: Format) -> FormatParser:
        """Return the parser of the text; the text ends the backend's own reasoning."""
        if self._parses_reasoning:
            self._end_text(followed=True)
        return self._parser or self._new_parser(format)

    def _new_parser(self, format: Format) -> FormatParser:
        """Return a new parser for text that begins here."""
        if self._output.thought and not self._context.reasoned:
            self._context = replace(self._context, reasoned=True)
        reader = TextReader(self._settings.limit)
        if not self._context.prefill:
            self._parser = FormatParser(reader, format(reader, self._output, self._context))
            return self._parser
        resumed = PrefillOutput(self._output, reader, self._context.prefill)
        self._parser = FormatParser(reader, format(reader, resumed, self._context))
        self._parser.feed(self._context.prefill)
        resumed.resume()
        return self._parser

    def _take_other_content(self, event: ContentEvent) -> None:
        """Take the backend's own reasoning, refusal and the like, after the text that the parser holds back."""
        if self._settings.format and self._parse_reasoning(event):
            return
        self._end_text(followed=True)
        if self._echo and isinstance(event, ReasoningDelta) and event.text:
            event = self._without_echo(event)
        if type(event) is ReasoningDelta:
            if self._context.unopened:
                self._context = replace(self._context, unopened=False)
            self._output.thought += len(event.text)
        self._out.append(event)

    def _parse_reasoning(self, event: ContentEvent) -> bool:
        """Parse reasoning for tool calls; return False if there can be none."""
        if type(event) is not ReasoningDelta or event.signature or (self._parser and not self._parses_reasoning):
            return False
        format = reasoning_field_format(self._settings.format, self._context)
        if self._has_text or self._calls.count or not format:
            return False
        if not self._parser:
            self._context = replace(self._context, thought_open=True, unopened=False)
            self._new_parser(format)
        assert self._parser
        self._parses_reasoning = True
        self._parser.feed(event.text)
        return True

    def _without_echo(self, event: _TextEvent) -> _TextEvent:
        """Return the first text without the beginning that the backend repeats and the client has."""
        event, self._echo = replace(event, text=event.text.removeprefix(self._echo)), ""
        return event

    def _add_textless(self, shown: bool) -> None:
        """Add entries without text to the text that follows or ends; those of reasoning and tool calls are dropped."""
        textless, self._textless = self._textless, []
        if not shown:
            self._settings.ledger.add("dropped", "logprobs")
            return
        for event in textless:
            self._order_content(event)

    def _end_text_and_calls(self, cut: bool) -> None:
        """End the text and every open tool call."""
        self._passing_call = None
        if self._textless:
            self._add_textless(shown=bool(self._parser) or not (self._structured and self._structured.queue))
        if self._structured:
            self._structured.close(self, cut)
        self._end_text(cut)

    def _end_text(self, cut: bool = False, *, followed: bool = False, before_call: bool = False) -> None:
        """End the text and its tool call; reasoning that the prompt left open ends, too.

        followed: more events of the choice follow.
        before_call: the first of them is a tool call.
        """
        self.passes_text = self.parses_text = False
        if self._parser:
            reader = self._parser.reader
            self._parses_reasoning, reader.followed, reader.before_call = False, followed, before_call
            self._parser.close(cut=self._output.limited)
            if reader.dropped:
                self._settings.ledger.add("truncated", "content")
            if reader.was_repaired:
                self._settings.ledger.add("repaired", "tool_calls.function.arguments")
            self._output.end_alignment()
            self._parser = None
            if self._space_after_reasoning:
                self._release_space(followed)
        if self._context.thought_open or self._context.prefill:
            self._context = replace(self._context, thought_open=False, prefill="")
        if self._calls.count:
            self._calls.end(cut)

    def _release_space(self, followed: bool) -> None:
        """Pass on white space after reasoning, unless the reasoning was a tool call and nothing else came."""
        space, self._space_after_reasoning = self._space_after_reasoning, []
        if followed or not self._calls.count:
            self._out += space
        else:
            self._settings.ledger.add("dropped", "content")

    def end_before_call(self) -> None:
        """End the text.  StructuredCalls calls it at the start of a tool call."""
        self._end_text(followed=True, before_call=True)
        if not self._context.called:
            self._context = replace(self._context, called=True)
