"""Parse turns that consist of messages, each with a header that describes its body:

    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>
    <|start|>assistant to=self<|message|>I should look.<|eom|>

A header is read as models write it: its parts in any order, some of them repeated or with other words between them.
Its first tag may be missing at the beginning of a message, and its last one before the body.  Only the channel and the
recipient count; other words before the last tag are dropped.

Muse writes calls as text between tags, each with the name of its tool.  Functionary 3.2 writes the name alone,
all⏎text>>>f⏎{…}>>>g⏎{…}, and its prompt ends with the mark before the first name.
"""

import re
from collections.abc import Callable, Container
from functools import cached_property

from msgspec import Struct

from gateway.formats.argument_types import escape_json_string
from gateway.formats.grammars import bare_json
from gateway.formats.grammars.json_calls import read_arguments
from gateway.formats.grammars.tagged import TaggedCall
from gateway.formats.markers import ENDS, Markers, NamedLines
from gateway.formats.markup import Markup
from gateway.formats.parser import ParseContext, ParserOutput, start_call, try_call
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.text_buffer import Malformed

_NAME, _MORE = re.compile(r"[\w.:/-]*"), re.compile(r">*")
_CODE = ("python", "code_interpreter")  # tools that the model knows without a definition
START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
TO = "to="
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w*)")
_RECIPIENT = re.compile(r"\bto=\s*([\w.:/-]+)")
_PARTS = re.compile(  # parts with a meaning, and words that only say that the body is JSON or code
    r"(<\|start\|>\s*|^)assistant\b|<\|start\|>|<\|channel\|>(\s*(analysis|commentary|final)\b)?|\bto=\s*[\w.:/-]*"
    r"|<\|constrain\|>|\b(json|code)\b",
    re.IGNORECASE,
)
_WORD, _SPACE = re.compile(r"[\w.:/=-]*"), re.compile(r"\s*")
_UNTAGGED = re.compile(r"assistant|to=[\w.:/-]+")  # words of a header without its first tag
_LONGEST = 512  # characters of a header
# Parses the body of a message like a CallParser; the last argument is the name of the tool, "" for none.  Returns the
# closing tag if it took one.
BodyParser = Callable[[TextReader, ParserOutput, ParseContext, str], ReadStep]
_OPEN, _CLOSE = "<atem:function_calls>", "</atem:function_calls>"
_INVOKE = "<atem:invoke name="
_ENDS = ("<|eom|>", "<|eot|>")
_ARGUMENTS = TaggedCall(
    key="<atem:parameter name=",
    value_ends=("</atem:parameter>",),
    call_ends=("</atem:invoke>",),
    next=(_INVOKE, _CLOSE, *_ENDS),
    trim=False,
)


def code(
    read: TextReader, emit: ParserOutput, context: ParseContext, name: str, stops: Markers, unknown: str = "code"
) -> ReadStep:
    """Read text that is no JSON as the first argument of a tool; return the tag behind it.

    unknown: the name of the argument if the tool has no schema.
    """
    properties = context.tools.get(name, {}).get("properties")
    key = next(iter(properties if isinstance(properties, dict) else ()), unknown)
    emit.tool_args(f'{{"{escape_json_string(key)}": "')
    mark = yield from read.until(stops, lambda text: emit.tool_args(escape_json_string(text)))
    if mark or not read.cut:
        emit.tool_args('"}')
        emit.tool_end()
    return mark


def functionary32(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Parse a turn of Functionary 3.2: a first message without its mark, then all others."""
    read.ends = ENDS
    if not context.thought_open:
        yield from _first(read, emit, context)
    return (yield from _MARKED(read, emit, context))


def _first(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    read.begin_recording()
    name = yield from read.run(_NAME)
    line = yield from read.take_literal("\n", "\r\n")
    if name == "all" and line:
        return read.end_recording()
    if not (line and context.tools and (name in context.tools or name in _CODE)):
        if text := read.end_recording():
            (emit.incomplete_call if read.ended and read.cut else emit.text)(text)
        return ""
    return (yield from try_call(_messages(read, emit, context, name), read, emit, emit.text))


def _call(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Read a message behind a mark; its name is a line of its own."""
    if text := (yield from read.run(_MORE)):
        emit.text(text)
        read.begin_recording(">>>")  # the last three characters are the mark
    name = yield from read.read_word(_NAME)
    if not (yield from read.take_literal("\n", "\r\n")):
        raise Malformed
    return (yield from _messages(read, emit, context, name))


def _messages(read: TextReader, emit: ParserOutput, context: ParseContext, name: str) -> ReadStep:
    """Read a message to this tool, and the further ones that its code ends with, up to a message to all."""
    if name != "all" and (yield from read.peek()) != "{" and name not in _CODE:
        raise Malformed
    read.end_recording()
    stops: Markers | None = None
    while name not in ("", "all"):
        start_call(read, emit, name)
        if (yield from read.peek()) == "{":
            if (yield from read_arguments(read, emit.tool_args, context.shape(name))):
                emit.tool_end()
            return ""
        stops = stops or NamedLines(*context.tools, *_CODE, "all")
        name = (yield from code(read, emit, context, name, stops)).removeprefix(">>>").rstrip()
    return "whole"


_MARKED = Markup(calls={">>>": _call}, silent=(">>>all\n",))


class ChannelFormat(Struct, frozen=True, kw_only=True, dict=True):
    """The tags of a family; an object of this class is its Format.

    begins: tags that begin a header anywhere in the text.
    ends: tags that close a body.
    body: the parser of a body that may be a call.
    thoughts: the channels or recipients of reasoning.
    non_tools: recipients that are not tools.
    spaced: the space behind a header is part of it.
    wrapped: the tags that a server puts around each piece of the reasoning, before the text.
    untagged: for turns without special tokens, a function that takes the first header, and the parser of such a turn,
        which returns the beginning of a header that has tags.
    """

    begins: tuple[str, ...]
    ends: tuple[str, ...]
    body: BodyParser
    thoughts: frozenset[str]
    non_tools: frozenset[str]
    spaced: bool = False
    wrapped: tuple[str, str] | None = None
    untagged: (
        tuple[Callable[[TextReader], ReadStep], Callable[[TextReader, ParserOutput, ParseContext, str], ReadStep]]
        | None
    ) = None

    @cached_property
    def in_body(self) -> Markers:
        """The tags that may end a body."""
        return Markers(*self.begins, MESSAGE, *self.ends)

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        read.ends = ENDS
        return _ChannelParser(self, read, emit, context).run()


class _ChannelParser:
    """Parse one turn."""

    def __init__(self, messages: ChannelFormat, read: TextReader, emit: ParserOutput, context: ParseContext) -> None:
        self._messages, self._read, self._emit, self._context = messages, read, emit, context
        self._thinking = context.thought_open
        self._put: TextSink = emit.reasoning if self._thinking else emit.text

    def run(self) -> ReadStep:
        """Parse all of the turn."""
        if self._messages.wrapped and not self._context.reasoned:
            yield from self._unwrapped(*self._messages.wrapped)
            if self._read.ended:
                return ""
        mark = "" if self._context.thought_open else (yield from self._first())
        while mark or (mark := (yield from self._read.until(self._messages.in_body, self._put))):
            mark = yield from self._at(mark)
        return ""

    def _unwrapped(self, opening: str, closing: str) -> ReadStep:
        """Read pieces of reasoning, each between these tags.  White space inside belongs to the reasoning."""
        found, closings = (yield from self._read.take_literal(opening)), Markers(closing)
        while found:
            yield from self._read.until(closings, self._emit.reasoning)
            found = yield from self._read.accept(opening)
        return ""

    def _first(self) -> ReadStep:
        """Read the first message; JSON at this position is a call if one is forced."""
        read, emit, context = self._read, self._emit, self._context
        if self._messages.untagged:
            begins, turn = self._messages.untagged
            if header := (yield from begins(read)):
                tagged = yield from turn(read, emit, context, header)
                return (yield from self._message(tagged)) if tagged else ""
            if begun := read.end_recording():
                return (yield from self._untagged(begun))
        if context.forced is None:
            return (yield from self._untagged())
        read.begin_recording()
        yield from read.peek()
        if mark := (yield from read.take_literal(*bare_json.CALLS)):
            return (yield from try_call(bare_json.CALLS[mark](read, emit, context), read, emit, emit.text))
        return (yield from self._untagged(read.end_recording()))

    def _at(self, mark: str) -> ReadStep:
        """Act on a tag in a body; return a closing tag if one follows it."""
        if mark == TO:
            return (yield from self._untagged(mark))
        if mark in self._messages.begins:
            return (yield from self._message(mark))
        if mark in self._messages.ends:
            self._put = self._emit.text
            return (yield from self._untagged())
        return ""

    def _untagged(self, begun: str = "") -> ReadStep:
        """Read a header without its first tag, or with all tags, else text.

        begun: the part that was already taken.
        """
        read = self._read
        read.begin_recording(begun)
        if begun != TO:
            yield from read.peek()
        word = begun.strip() + (yield from read.run(_WORD))
        while _UNTAGGED.fullmatch(word):
            yield from read.peek()
            word = yield from read.run(_WORD)
        words = read.end_recording()
        mark = "" if word else (yield from read.lookahead(START, CHANNEL, CONSTRAIN, MESSAGE, *self._messages.ends))
        if mark in (CHANNEL, CONSTRAIN, MESSAGE) or (mark == START and not words.strip()):
            yield from read.take_literal(mark)
            return (yield from self._message(words.lstrip(), mark))
        if words.strip() or not mark:
            header = TO in words or any(first.startswith(word) for first in (TO, "assistant"))
            if header and read.ended and read.cut:
                self._emit.incomplete_call(words)
            elif words:
                self._put(words)
        return ""

    def _message(self, header: str, mark: str = "") -> ReadStep:
        """Read the rest of a header, and the beginning of its body."""
        read = self._read
        while mark != MESSAGE and len(header) < _LONGEST:
            header += mark
            words = (yield from read.run(_WORD)) + (yield from read.run(_SPACE))
            header += words
            mark = yield from read.take_literal(*self._messages.begins, CHANNEL, CONSTRAIN, MESSAGE)
            if not (mark or words):
                break
        if read.ended and read.cut and mark != MESSAGE:
            self._emit.incomplete_call(header)
            return ""
        return (yield from self._headed(header, mark))

    def _headed(self, header: str, mark: str) -> ReadStep:
        """Read the text behind a header, whose last tag may be missing."""
        name = self._addressed(header)
        if name and not self._context.tools:
            self._put(header + mark)
            return ""
        if words := _PARTS.sub("", header).lstrip():
            if mark or name:
                self._emit.note_dropped("content")
            else:
                self._put(words)
        elif name and not mark and self._read.torn(*self._messages.begins, CONSTRAIN, MESSAGE):
            self._emit.note_dropped("content")  # the header ends within a tag, which is no argument
        if mark and self._messages.spaced:
            yield from self._read.take_literal(" ")
        if self._thinking or not self._context.tools:
            return ""
        read, emit = self._read, self._emit
        read.begin_recording()
        return (yield from try_call(self._messages.body(read, emit, self._context, name), read, emit, emit.text))

    def _addressed(self, header: str) -> str:
        """Return the tool that a message is for, "" for none, and set the output for its text."""
        recipient = next(reversed(_RECIPIENT.findall(header)), "")
        channel = next(reversed(_CHANNEL.findall(header)), "")
        thoughts, non_tools = self._messages.thoughts, self._messages.non_tools
        tool = recipient if recipient not in non_tools | thoughts else ""
        self._thinking = recipient in thoughts or (channel in thoughts and not tool)
        self._put = self._emit.reasoning if self._thinking else self._emit.text
        return tool.removeprefix("functions.")


def _read_muse_body(read: TextReader, emit: ParserOutput, context: ParseContext, name: str) -> ReadStep:
    """Read a body: calls if it begins with calls; for a tool perhaps its arguments as JSON."""
    if name and (yield from read.peek()) == "{":
        called = _declared(name, context.tools)
        start_call(read, emit, called)
        if (yield from read_arguments(read, emit.tool_args, context.shape(called))):
            emit.tool_end()
        return ""
    yield from read.accept(_OPEN)
    more = yield from read.expect(_INVOKE)
    while more:
        called = _declared((yield from _name(read)), context.tools)
        start_call(read, emit, called)
        if not (yield from _ARGUMENTS.run_named(read, emit, context, called)):
            raise Malformed
        read.begin_recording()
        more = yield from read.accept(_INVOKE)
    read.end_recording()
    yield from read.accept(_CLOSE)
    yield from read.peek()
    return ""


def _name(read: TextReader) -> ReadStep:
    """Read the name of a call, up to the end of its tag.  The end of a header may stand inside it by mistake."""
    quote = yield from read.accept('"', "'")
    name = yield from read.read_word()
    stray = yield from read.accept(MESSAGE)
    yield from read.take_literal(quote)
    yield from (read.accept if stray else read.expect)(">")
    return name


def _declared(name: str, tools: Container[str]) -> str:
    """Return the name of the offered tool.

    Models see a tool without a namespace as one in a namespace of its own: f.f is f.
    """
    head, _, tail = name.partition(".")
    return tail if name not in tools and head == tail.partition(".")[0] and tail in tools else name


MUSE = ChannelFormat(
    begins=(START, TO),
    ends=_ENDS,
    body=_read_muse_body,
    thoughts=frozenset({"self"}),
    non_tools=frozenset({"user", "assistant"}),
)
