"""How a family of models marks thoughts and calls in its text, and the one loop that reads all such text.

A family is the tags that it writes; what stands between the tags of a call is read by one of a few grammars.  What
holds for every family:

- White space inside the opening tag of a thought, and around all tags in the text (16 characters before one, at
  most), belongs to the tags.  What stands before the end of a thought is kept as the model wrote it.
- A thought that is never closed is a thought to its end.  Its opening tag, repeated inside, is dropped, and so is a
  closing tag right at the beginning of the text, after a thought or after a call; any other is text.
- Where the server may have taken out the opening tag, a closing tag before a line end or the end makes a thought of
  all text before it, if there is no code around it and no thought or call before it.
- Where no tools were offered, the tags of calls are text.  What follows such a tag and is no call is text with it.
- The closing tags of calls are dropped wherever they come after a call.  So is a code fence around calls.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from gateway.formats.grammars import bare_json, fenced_json
from gateway.formats.grammars.json_calls import FENCE
from gateway.formats.markers import ENDS, EndTokens, Markers
from gateway.formats.parser import CallInReasoning, CallParser, Format, ParseContext, ParserOutput, recover_call
from gateway.formats.reader import Malformed, ReadStep, TextReader, TextSink
from gateway.formats.reasoning_calls import HeldOutput

_BLANKS = re.compile(r"[ \t]*")
_INFO = re.compile(r"\w*")
_SOURCES = re.compile(r"[\d:,\[\] ]*")  # of a citation

THINK: Mapping[str, tuple[str, ...]] = MappingProxyType({"<think>": ("</think>",)})

# Around a thought that the backend passes apart; no model writes them.
_APART, _APART_END = "\0thought", "\0end of thought"

CITATIONS = ("<co>", "<co:", "</co>", "</co:")


class Markup(Struct, frozen=True, kw_only=True, dict=True):
    """The tags of a family; an object of this class is its Format.

    thoughts: opening tag → the tags of which any closes it; the first is the one that a prompt may have opened.
    calls: opening tag → what reads on after it.
    before: tags that mean something only where a call, or another of them, follows.
    after: closing tags of calls.
    silent: tags around plain text.
    answer: tags around the answer; they fall away where text begins with the first, and then alone.  The second falls
        away at the end of the text as well, as servers take the first.
    citations: tags around cited text, or what one begins with whose sources follow up to its ">".
    first: what text begins with that another format reads to its end, where no text and no call stands before it.
    in_thought: what a call's tag inside a thought is, see Context.
    ends: tokens that fall away at the end of a turn.
    """

    thoughts: Mapping[str, tuple[str, ...]] = THINK
    calls: Mapping[str, CallParser] = MappingProxyType({})
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    answer: Mapping[str, str] = MappingProxyType({})
    citations: tuple[str, ...] = ()
    first: Mapping[str, Format] = MappingProxyType({})
    in_thought: CallInReasoning = "end"
    ends: EndTokens = ENDS

    @cached_property
    def call_openings(self) -> tuple[str, ...]:
        """Return the texts that may announce a call."""
        return (*self.before, *self.calls, *self.fences)

    @cached_property
    def fences(self) -> tuple[str, ...]:
        """Code fences, which may stand around calls."""
        return (FENCE,) if self.calls and FENCE not in self.calls else ()

    @cached_property
    def reasoning_closings(self) -> frozenset[str]:
        """Return the tags that close a thought and have no other meaning."""
        return frozenset(close for closes in self.thoughts.values() for close in closes) - {*self.silent}

    @cached_property
    def text_markers(self) -> Markers | None:
        """The tags of text in which no calls are looked for."""
        tags = (*self.thoughts, *self.reasoning_closings, *self._quiet)
        return Markers(*tags) if tags else None

    @cached_property
    def unopened(self) -> Markers:
        """The tags of such text where a closing tag alone may end a thought; not in code, so fences count."""
        return Markers(*self.thoughts, *self.reasoning_closings, *self._quiet, FENCE)

    @cached_property
    def text_or_call_markers(self) -> Markers:
        """The tags of text in which calls are looked for."""
        return Markers(*self.thoughts, *self.reasoning_closings, *self._quiet, *self.call_openings, *self.after)

    @cached_property
    def thought(self) -> Mapping[str, Markers]:
        """Opening tag → the tags inside a thought in which no calls are looked for."""
        return {tag: Markers(tag, *closes, *self.citations) for tag, closes in self.thoughts.items()}

    @cached_property
    def reasoning_or_call_markers(self) -> Mapping[str, Markers]:
        """Opening tag → the tags inside a thought in which calls are looked for."""
        return {
            tag: Markers(tag, *closes, *self.citations, *self.call_openings) for tag, closes in self.thoughts.items()
        }

    @cached_property
    def first_without_calls(self) -> Mapping[str, Format]:
        """Of `first`, all that does not begin a call: without tools nothing waits for one."""
        return {tag: format for tag, format in self.first.items() if not _calls(tag, format)}

    @cached_property
    def apart(self) -> "Markup":
        """The format of a thought that the backend passes apart: what closes one in text is a part of it."""
        return replace(self, thoughts={_APART: (_APART_END,)})

    @property
    def _quiet(self) -> tuple[str, ...]:
        """The tags that are in the text of an answer."""
        return (*self.silent, *self.answer, *self.answer.values(), *self.citations)

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        read.ends = self.ends
        return _MarkupParser(self, read, emit, context).run()


def _calls(tag: str, format: Format) -> bool:
    """True if a tag begins a call of the format."""
    return isinstance(format, Markup) and tag.strip().startswith(tuple(format.calls))


def apart(format: Format | None, context: ParseContext) -> Markup | None:
    """Return the format of a thought that the backend passes apart, if it may hold a call."""
    if not (isinstance(format, Markup) and context.tools) or context.prefill:
        return None
    return None if (context.in_thought or format.in_thought) == "text" else format.apart


class _MarkupParser:
    """One text on its way through a Markup."""

    def __init__(self, markup: Markup, read: TextReader, emit: ParserOutput, context: ParseContext) -> None:
        self._markup, self._read, self._emit, self._context = markup, read, emit, context
        self._mode = (context.in_thought or markup.in_thought) if context.tools else "text"
        self._seeks = bool(context.tools and markup.calls)  # calls are looked for
        self._begun = 0  # where the text began that is being read
        self._spoken = self._called = self._thought_through = False
        self._fenced = self._in_block = False  # a fence is open: around a call, or of a block in the text
        self._answer = False  # an opening tag of an answer was text
        self._held: HeldOutput | None = None  # a call inside a thought that may be a quotation
        self._closing = ""  # the tag that closes the answer; "": none has opened it
        self._kept: list[str] = []  # of the thoughts, from the first tag of a call on
        self._room = read.limit  # for what is kept, in characters; negative: it was too much, and nothing is kept

    def run(self) -> ReadStep:
        read, markup = self._read, self._markup
        stops = markup.text_or_call_markers if self._context.tools else markup.text_markers
        if self._context.unopened and not self._seeks:
            stops = markup.unopened
        open = self._context.thought_open and markup.thoughts
        first = yield from (self._opening() if open else self._first())
        if not (stops or first):
            return (yield from read.rest(self._emit.text))
        while stops and not first:
            if not (mark := (yield from read.read_until_trimmed(stops, self._emit.text, markup.citations))):
                break
            fresh = self._begun == read.offset - len(read.marker)
            self._spoken |= not fresh
            if (yield from self._marked(mark, fresh)):
                first = yield from self._begin()
        if first:
            context = replace(self._context, thought_open=False)
            return (yield from markup.first[first](read, self._emit, context))
        self._end()
        return ""

    def _opening(self) -> ReadStep:
        """Read the rest of a thought that is open; return what that begins with, if another format reads it."""
        yield from self._thought(next(iter(self._markup.thoughts)))
        return (yield from self._begin())

    def _end(self) -> None:
        """Decide at the end of the text on calls inside thoughts."""
        read = self._read
        if self._held:
            self._held.end()
        if self._kept and not read.cut:
            followed = self._spoken or self._called or self._begun < read.offset or read.followed
            if not followed:
                self._promote()

    def _begin(self) -> ReadStep:
        """Text begins, after white space; return what it begins with that another format reads."""
        yield from self._read.peek()
        self._begun = self._read.offset
        return (yield from self._first())

    def _first(self) -> ReadStep:
        """Look for what an answer begins with, and for a call that has to come."""
        fresh, tools, markup = not (self._spoken or self._called), self._context.tools, self._markup
        options = markup.first if tools else markup.first_without_calls
        first = (yield from self._read.lookahead(*options, text=True)) if options and fresh else ""
        if first or not tools:
            return first
        may_fence = fresh and FENCE not in markup.calls
        if self._context.forced is not None:
            yield from self._guided()
        elif may_fence and (yield from self._read.lookahead(FENCE, text=True)):
            yield from self._block()
        return ""

    def _block(self) -> ReadStep:
        """A fence stands first: of a block of JSON that is a call, around a call, or in the text."""
        read, opening = self._read, (yield from fenced_json.opening(self._read))
        own = (yield from read.lookahead(*self._markup.call_openings)) if self._markup.call_openings else ""
        if own or not (yield from read.lookahead("{", "[")):
            read.marker = opening
            yield from self._fence(FENCE, fresh=True)
        elif (yield from fenced_json.block(read, self._emit, self._context, opening)):
            self._called = True
        self._spoken = not self._called
        if self._called:
            yield from self._begin()
        return ""

    def _guided(self) -> ReadStep:
        """A call has to come: JSON right here is one, whatever the family's tags are."""
        mark = "" if self._called else (yield from bare_json.read_bracket(self._read, self._emit))
        if mark and (yield from self._call(mark, self._emit.text, bare_json.CALLS)):
            yield from self._begin()
        return ""

    def _marked(self, mark: str, fresh: bool) -> ReadStep:
        """Act on a tag; return "" if it was text after all.  `fresh`: no text stands before it."""
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
        """Act on a tag that opens no thought and no call."""
        answer = self._markup.answer
        self._answer |= mark in answer and not fresh
        if mark in answer.values() and mark != self._closing and not self._answer:
            return (yield from self._last(mark))
        if mark == self._closing or self._falls(mark, fresh):
            self._closing = answer.get(mark, self._closing)
            return mark
        if mark in self._markup.reasoning_closings and self._context.unopened and not self._settled:
            return (yield from self._unopened(mark))
        self._emit.text(self._read.marker)
        return ""

    @property
    def _settled(self) -> bool:
        """True if a closing tag cannot end a thought."""
        return self._in_block or self._called or self._thought_through

    def _unopened(self, mark: str) -> ReadStep:
        """The closing tag of a thought without its opening tag, if a line end or the end follows."""
        read, gap = self._read, self._read.marker.removesuffix(mark)
        read.begin_recording(read.marker)
        yield from read.run(_BLANKS)
        follows = yield from read.lookahead("\n", "\r")
        text = read.end_recording()
        if not follows and not read.ended:
            self._emit.text(text)
            return ""
        if gap:
            self._emit.text(gap)
        self._thought_through = True
        self._emit.thought_end(mark)
        return mark

    def _last(self, mark: str) -> ReadStep:
        """The closing tag of an answer that the server has opened: it falls away at the end of the text."""
        read = self._read
        read.begin_recording(read.marker)
        yield from read.peek()
        text = read.end_recording()
        if read.ended:
            return mark
        self._emit.text(text)
        return ""

    def _fence(self, mark: str, fresh: bool) -> ReadStep:
        """A code fence: text, unless it stands around a call."""
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
        """True if a tag that opens nothing is no part of the text."""
        markup = self._markup
        if mark in markup.after:
            return self._called
        return mark in markup.silent or (fresh and mark not in markup.answer.values())

    def _citation(self, mark: str, put: TextSink) -> ReadStep:
        """A tag of a citation falls away; the white space before it is not its own."""
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
        """A thought whose tag was taken, up to whatever ends it."""
        stops = (self._markup.thought if self._mode == "text" else self._markup.reasoning_or_call_markers)[tag]
        put: TextSink = self._emit.reasoning
        self._thought_through = True
        if tag != _APART:
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
        """Hold a call until the text shows what it is; return "" if it is a part of the thought.

        A call whose tool was offered ends the thought, unless a closing tag and more follow.
        """
        if self._held and self._held.open:
            return (yield from self._call(mark, self._emit.reasoning))
        apart = closes == (_APART_END,)
        held = self._emit = HeldOutput(self._emit, self._read, self._context, closes, apart=apart)
        found = yield from self._call(mark, held.reasoning)
        if found and held.offered:
            self._held = held
            return found
        self._emit = held.emit
        ends = bool(found) and mark in self._markup.silent  # a tag that opens a block, of whatever sort
        if found and not ends:
            held.quote()
        else:
            held.count()
        self._called = False
        return mark if ends else ""

    def _call(self, mark: str, put: TextSink, calls: Mapping[str, CallParser] | None = None) -> ReadStep:
        """The call, or calls, that a tag has announced; return "" if it was text, for `put`."""
        read, markup = self._read, self._markup
        read.begin_recording(read.marker)
        try:
            fenced = mark in markup.fences
            if fenced and read.marker.endswith(mark):
                yield from read.run(_INFO)
            while mark in (*markup.before, *markup.fences):
                behind = markup.call_openings if mark in markup.before else (*markup.before, *markup.calls)
                mark = yield from read.expect(*behind)
            yield from (calls or markup.calls)[mark](read, self._emit, self._context)
        except Malformed:
            if mark in markup.fences and not read.dropped:  # no tag of a call follows the fence, nor its beginning
                put(read.end_recording())
                return ""
            if not recover_call(read, self._emit, put):
                return ""
        self._called = True
        self._fenced |= fenced
        return mark

    def _keep(self, thought: str) -> None:
        self._emit.reasoning(thought)
        self._room -= len(thought)
        if self._room < 0:
            self._kept.clear()
        else:
            self._kept.append(thought)

    def _promote(self) -> None:
        """The turn brought nothing but a thought with calls in it: they were meant."""
        read = TextReader()
        read.feed("".join(self._kept))
        read.close()
        context = replace(self._context, thought_open=False, in_thought="text")
        next(_MarkupParser(self._markup, read, _CallsOnlyOutput(self._emit), context).run(), None)


class _CallsOnlyOutput:
    """An Emit for what was a thought and is known as that already: only its calls are new."""

    def __init__(self, emit: ParserOutput) -> None:
        self.tool_start, self.tool_args, self.tool_end = emit.tool_start, emit.tool_args, emit.tool_end
        self.unread = emit.unread
        self.text = self.thought_end = self.reasoning = self.incomplete_call = self.note_dropped = _ignore


def _ignore(_: str) -> None:
    pass
