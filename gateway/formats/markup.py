"""Read text of model families that mark reasoning and calls by tags.

A family is the set of its tags; one of a few grammars reads the text between the tags of a call.  These rules hold for
every family:

- White space behind the opening tag of reasoning, and around all tags in the text, belongs to the tags.  Before a tag
  these are at most 16 characters.  White space before the end of reasoning is kept as the model wrote it.
- Reasoning that is never closed extends to the end.  An opening tag repeated inside is dropped, and so is a closing
  tag at the beginning of the text, after reasoning or after a call.  Any other such tag is text.
- A server may have removed the opening tag.  A closing tag then makes all text before it reasoning, if a line end, a
  call or the end follows.  This does not apply inside a code block, nor after reasoning or a call.
- If the request offers no tools, the tags of calls are text.  A tag and the text behind it are also text if that text
  is no call.
- The closing tags of calls are dropped wherever they follow a call.  So is a code fence around calls.  Tags of a call
  with nothing inside are dropped before a call or the end of the text.
- A server that sends a call itself may leave its tags in the text; `stray_tags` drops those beside the call.
"""

import re
from collections.abc import Mapping
from functools import cached_property

from msgspec.structs import replace

from gateway.formats.grammars import bare_json, code_blocks
from gateway.formats.grammars.json_calls import FENCE
from gateway.formats.markup_tags import APART, APART_END, MarkupTags
from gateway.formats.parser import CallParser, Format, ParseContext, ParserOutput, recover_call
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.reasoning_calls import CallsOnlyOutput, HeldOutput, ThoughtEnd
from gateway.formats.stray_tags import TORN, closing_tags, empty_call, is_word
from gateway.formats.text_buffer import Malformed

_BLANKS = re.compile(r"[ \t]*")
_INFO = re.compile(r"\w*")
_SOURCES = re.compile(r"[\d:,\[\] ]*")  # the sources of a citation


class Markup(MarkupTags, frozen=True, kw_only=True, dict=True):
    """The Format of a family that marks reasoning and calls by tags."""

    @cached_property
    def for_reasoning_field(self) -> "Markup":
        """The format of reasoning that the backend sends in a field of its own; its closing tags are text there."""
        return replace(self, thoughts={APART: (APART_END,)})

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        read.ends, read.words = self.ends, self.words
        return _MarkupParser(self, read, emit, context).run()


def reasoning_field_format(format: Format | None, context: ParseContext) -> Markup | None:
    """Return the format of reasoning that the backend sends in a field of its own; None if it cannot hold a call."""
    if not (isinstance(format, Markup) and context.tools) or context.prefill:
        return None
    return None if (context.in_thought or format.in_thought) == "text" else format.for_reasoning_field


class _MarkupParser:
    """Parse one text by a Markup."""

    def __init__(self, markup: Markup, read: TextReader, emit: ParserOutput, context: ParseContext) -> None:
        self._markup, self._read, self._emit, self._context = markup, read, emit, context
        self._mode = (context.in_thought or markup.in_thought) if context.tools else "text"
        self._seeks = bool(context.tools and markup.calls)  # True if calls are looked for
        self._begun = 0  # offset at which the current text began
        self._has_text = self._called = self._thought_through = False
        self._fenced = self._in_block = False  # a fence is open: around a call, or of a code block
        self._answer = False  # an opening tag in `answer` was text
        self._held: HeldOutput | None = None  # a call inside reasoning that may be a quotation
        self._closing = ""  # the closing tag in `answer` that is due; "" if none is open
        self._kept: list[str] = []  # reasoning from the first tag of a call on
        self._room = read.limit  # characters that may still be kept; if negative, nothing is kept

    def run(self) -> ReadStep:
        """Parse all of the text."""
        read, markup = self._read, self._markup
        stops = markup.text_or_call_markers if self._context.tools else markup.text_markers
        if self._context.unopened and not self._seeks:
            stops = markup.unopened
        open = self._context.thought_open and markup.thoughts
        yield from self._torn()
        first = yield from (self._opening() if open else self._first())
        if not (stops or first):
            return (yield from read.rest(self._emit.text))
        while stops and not first:
            torn = () if self._in_block else self._openings
            if not (mark := (yield from read.read_until_trimmed(stops, self._emit.text, markup.citations, torn))):
                break
            fresh = self._begun == read.offset - len(read.marker)
            self._has_text |= not fresh
            if (yield from self._acted(mark, fresh)):
                first = yield from self._begin()
        if first:
            context = replace(self._context, thought_open=False)
            return (yield from markup.first[first](read, self._emit, context))
        self._end()
        return ""

    def _opening(self) -> ReadStep:
        """Read the rest of open reasoning; return the beginning of the text behind it, if another format reads that."""
        yield from self._thought(next(iter(self._markup.thoughts)))
        return (yield from self._begin())

    def _end(self) -> None:
        """Decide at the end of the text on calls inside reasoning."""
        read = self._read
        if self._held:
            self._held.end()
        if self._kept and not read.cut:
            followed = self._has_text or self._called or self._begun < read.offset or read.followed
            if not followed:
                self._promote()

    def _begin(self) -> ReadStep:
        """Skip white space at the beginning of text; return the beginning of the text if another format reads it."""
        yield from self._read.peek()
        self._begun = self._read.offset
        return (yield from self._first())

    def _first(self) -> ReadStep:
        """Look for the beginning of another format, for JSON that is a call, and for a forced call."""
        fresh, tools, markup = not (self._has_text or self._called), self._context.tools, self._markup
        options = markup.first if tools else markup.first_without_calls
        first = ""
        if options and fresh:
            first = yield from self._read.lookahead(*options, text=True)
            first = first or (yield from self._read.lookahead(*options, text=True, spaced=True))
        if first or not tools:
            return first
        alone = self._context.forced is None and not self._context.called
        blocks = markup.blocks if alone else markup.blocks[:1]
        if blocks and fresh and (yield from self._read.lookahead(*blocks, text=True, spaced=True)):
            yield from self._block()
        elif self._context.forced is not None:
            yield from self._guided()
        return ""

    def _block(self) -> ReadStep:
        """Read JSON at the beginning that is a call, with a fence or without, or the fence of a call or other code."""
        read, opening = self._read, (yield from code_blocks.opening(self._read))
        own = (yield from read.lookahead(*self._markup.call_openings)) if self._markup.call_openings else ""
        if own or code_blocks.opens_tool_code(opening) or not (yield from read.lookahead("{", "[")):
            read.marker = opening
            yield from self._fence(FENCE, fresh=True)
        elif (yield from code_blocks.json_block(read, self._emit, self._context, opening)):
            self._called = True
        else:
            self._in_block = FENCE in opening
        self._has_text = not self._called
        if self._called:
            yield from self._begin()
        return ""

    def _guided(self) -> ReadStep:
        """Read JSON at this position as a call, as one is forced."""
        mark = "" if self._called else (yield from bare_json.read_bracket(self._read, self._emit))
        if mark and (yield from self._call(mark, self._emit.text, bare_json.CALLS)):
            yield from self._begin()
        return ""

    def _acted(self, mark: str, fresh: bool) -> ReadStep:
        """Act on a tag; return "" if it was text, also because of too much white space behind it."""
        try:
            return (yield from self._marked(mark, fresh))
        except Malformed:
            self._emit.text(self._read.end_recording())
        return ""

    def _marked(self, mark: str, fresh: bool) -> ReadStep:
        """Act on a tag; return "" if it was text.  `fresh`: no text precedes it."""
        markup, held = self._markup, self._held
        if held and held.open and mark in held.closes:
            held.close(mark)
            return mark
        if mark in markup.thoughts:
            return (yield from self._thought(mark))
        if mark in markup.fences or (mark == FENCE and not self._seeks):
            return (yield from self._fence(mark, fresh))
        if mark in markup.call_openings:
            return (yield from self._call(mark, self._emit.text))
        if mark in markup.citations:
            return (yield from self._citation(mark, self._emit.text))
        return (yield from self._around(mark, fresh))

    def _around(self, mark: str, fresh: bool) -> ReadStep:
        """Act on a tag that opens neither reasoning nor a call."""
        answer = self._markup.answer
        self._answer |= mark in answer and not fresh
        if mark in answer.values() and mark != self._closing and not self._answer:
            return (yield from self._last(mark))
        if mark == self._closing or self._falls(mark, fresh):
            self._closing = answer.get(mark, self._closing)
            return mark
        if mark in self._markup.reasoning_closings and self._context.unopened and not self._settled:
            return (yield from self._unopened(mark))
        if mark in self._markup.after and not self._in_block:
            return (yield from self._closed_alone(fresh=fresh))
        self._emit.text(self._read.marker)
        return ""

    def _torn(self) -> ReadStep:
        """Drop the end of a closing tag right behind a call of the server, if another closing tag follows."""
        if self._context.called and self._seeks and self._markup.after and (yield from self._read.take_literal(TORN)):
            self._read.marker = TORN
            yield from self._closed_alone(fresh=True)
            self._begun = self._read.offset
        return ""

    def _closed_alone(self, *, fresh: bool) -> ReadStep:
        """Act on a closing tag before any call in the text: the server may send its call itself."""
        word = self._has_text and is_word(self._read.marker)
        tags, called = self._markup, self._context.called
        return (yield from closing_tags(self._read, self._emit, tags, called=called, fresh=fresh, word=word))

    @property
    def _settled(self) -> bool:
        """Return True if a closing tag cannot end reasoning."""
        return self._in_block or self._called or self._thought_through

    def _unopened(self, mark: str) -> ReadStep:
        """Accept a closing tag of reasoning without its opening tag, if a line end, a call or the end follows."""
        read, gap = self._read, self._read.marker.removesuffix(mark)
        read.begin_recording(read.marker)
        yield from read.run(_BLANKS)
        follows = yield from read.lookahead("\n", "\r", *self._openings)
        if follows in self._openings:
            yield from read.take_literal(follows)
        text, ends = read.end_recording(), ThoughtEnd(self._emit, gap, mark)
        if follows in self._openings:
            read.marker = text  # all of it is text if no call follows
            return (yield from self._call(follows, self._emit.text, emit=ends))
        if not follows and not read.ended:
            self._emit.text(text)
            return ""
        self._thought_through = True
        ends.end()
        return mark

    @property
    def _openings(self) -> tuple[str, ...]:
        """The tags of calls that are looked for."""
        return self._markup.call_tags if self._seeks else ()

    def _last(self, mark: str) -> ReadStep:
        """Drop a closing tag in `answer` at the end of the text, as the server has removed its opening tag."""
        read = self._read
        read.begin_recording(read.marker)
        yield from read.peek()
        text = read.end_recording()
        if read.ended:
            return mark
        self._emit.text(text)
        return ""

    def _fence(self, mark: str, fresh: bool) -> ReadStep:
        """Read a code fence: text, unless it stands around a call."""
        if self._fenced and fresh:
            self._fenced = False
            return mark
        if self._in_block or not self._seeks:
            self._emit.text(self._read.marker)
            self._in_block = not self._in_block
            return ""
        called = yield from self._call(mark, self._emit.text)
        self._in_block = not called
        return called

    def _falls(self, mark: str, fresh: bool) -> bool:
        """Return True if a tag that opens nothing is dropped."""
        markup = self._markup
        if mark in markup.after:
            return self._called
        return mark in markup.silent or (fresh and mark not in markup.answer.values())

    def _citation(self, mark: str, put: TextSink) -> ReadStep:
        """Drop a tag of a citation and its sources; the white space before it stays."""
        read = self._read
        read.begin_recording(mark)
        yield from read.run(_SOURCES)
        whole = mark.endswith(">") or (yield from read.take_literal(">"))
        text = read.end_recording()
        if whole or (read.cut and read.ended):
            self._emit.note_dropped("citations")
        else:
            put(text)
        return ""

    def _thought(self, tag: str) -> ReadStep:
        """Read reasoning whose opening tag was taken, up to its end."""
        stops = (self._markup.thought if self._mode == "text" else self._markup.reasoning_or_call_markers)[tag]
        put: TextSink = self._emit.reasoning
        self._thought_through = True
        if tag != APART:
            yield from self._read.peek()
        while mark := (yield from self._read.until(stops, put)):
            if mark in self._markup.thoughts[tag]:
                break
            if mark == tag:
                yield from self._read.peek()
                continue
            if mark in self._markup.citations:
                yield from self._citation(mark, put)
                continue
            if self._mode == "last":
                put = self._keep
                put(mark)
            elif (yield from self._called_in_thought(mark, self._markup.thoughts[tag])):
                break
        return tag

    def _called_in_thought(self, mark: str, closes: tuple[str, ...]) -> ReadStep:
        """Hold a call until the following text shows if it counts; return "" if it stays reasoning.

        A call of an offered tool ends the reasoning, unless a closing tag and more follow.
        """
        if self._held and self._held.open:
            return (yield from self._call(mark, self._emit.reasoning))
        apart = closes == (APART_END,)
        held = self._emit = HeldOutput(self._emit, self._read, self._context, closes, apart=apart)
        found = yield from self._call(mark, held.reasoning)
        if found and held.offered:
            self._held = held
            return found
        self._emit = held.emit
        ends = bool(found) and mark in self._markup.silent  # the tag opens a block of any kind
        if found and not ends:
            held.quote()
        else:
            held.count()
        self._called = False
        return mark if ends else ""

    def _call(
        self,
        mark: str,
        put: TextSink,
        calls: Mapping[str, CallParser] | None = None,
        emit: ParserOutput | None = None,
    ) -> ReadStep:
        """Read the calls behind a tag; return "" if all of it was text, for `put`."""
        read, markup = self._read, self._markup
        marker = read.marker
        read.begin_recording(marker)
        try:
            fenced, tags = mark in markup.fences, (*markup.before, *markup.calls)
            if fenced and read.marker.endswith(mark):
                yield from read.run(_INFO)
            if fenced and (yield from code_blocks.tool_code_block(read, emit or self._emit, self._context, tags)):
                self._called = True
                return mark
            while mark in (*markup.before, *markup.fences):
                mark = yield from read.expect(*(markup.call_openings if mark in markup.before else tags))
            yield from (calls or markup.calls)[mark](read, emit or self._emit, self._context)
        except Malformed:
            if self._is_text(mark, marker):
                put(read.end_recording())
                return ""
            if read.is_recording and (empty := (yield from self._empty(marker))):
                return empty
            if not recover_call(read, self._emit, put):
                return ""
        self._called = True
        self._fenced |= fenced
        return mark

    def _is_text(self, mark: str, marker: str) -> bool:
        """Return True if no part of a call follows a fence, or a word, which may end a cut sentence."""
        read, markup = self._read, self._markup
        is_bare = mark in markup.words and read.recorded == marker
        return (mark in markup.fences or is_bare) and not read.dropped

    def _empty(self, marker: str) -> ReadStep:
        """Drop tags of a call without the call; return "" for other text.

        marker: the opening tag.  Behind a blank it is a word of a sentence, unless it begins the text.
        """
        openings = self._openings
        if not openings or (self._has_text and is_word(marker)):
            return ""
        return (yield from empty_call(self._read, openings, self._markup.after, called=self._context.called))

    def _keep(self, thought: str) -> None:
        self._emit.reasoning(thought)
        self._room -= len(thought)
        if self._room < 0:
            self._kept.clear()
        else:
            self._kept.append(thought)

    def _promote(self) -> None:
        """Emit the calls in the reasoning, as the turn has nothing else."""
        read = TextReader()
        read.feed("".join(self._kept))
        read.close()
        context = replace(self._context, thought_open=False, in_thought="text")
        next(_MarkupParser(self._markup, read, CallsOnlyOutput(self._emit), context).run(), None)
