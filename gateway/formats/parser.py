"""Define a format: a generator that reads from a TextReader and writes to a ParserOutput."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.schema_types import Shape, of_tool
from gateway.formats.text_buffer import Malformed
from gateway.formats.tool_names import resolve

_SLICE = 4 << 10  # characters of a search, during which no other thread runs: some 10 ms if all of them are like tags
CallInReasoning = Literal["end", "text", "last"]


class ParseContext(Struct, frozen=True):
    """The part of the request that a format may depend on.

    tools: name → JSON Schema of its parameters; empty if the request offers no tools.
    thought_open: the prompt has already opened a reasoning block.
    in_thought: the treatment of a call inside reasoning; None for the default of the format.  `end`: it ends the
        reasoning, unless a closing tag and more follow.  `text`: it stays reasoning.  `last`: it counts as a call if
        nothing follows the reasoning.
    forced: the tool that has to be called; "" for any tool; None if a call is optional.
    prefill: the beginning of the response that the client sent; the model continues it.
    echoed: the backend repeats the prefill before it continues.
    unopened: the server may have removed the opening tag of reasoning, so a closing tag alone may end a reasoning
        block.
    called: the backend has sent a tool call before this text.
    reasoned: there was reasoning before this text.
    """

    tools: Mapping[str, Mapping[str, Any]]
    thought_open: bool = False
    in_thought: CallInReasoning | None = None
    forced: str | None = None
    prefill: str = ""
    echoed: bool = False
    unopened: bool = False
    called: bool = False
    reasoned: bool = False

    def shape(self, name: str) -> Shape:
        """Return the shape of the arguments of a tool, by the name that the model wrote."""
        return of_tool(self.tools.get(resolve(name, self.tools)))


class ParserOutput(Protocol):
    """The receiver of everything that a format finds.  It numbers calls and generates their ids."""

    def text(self, text: str) -> None:
        """Take text of the response."""

    def reasoning(self, text: str) -> None:
        """Take text of the reasoning."""

    def tool_start(self, name: str, id: str = "") -> None:
        """Begin a tool call; `id` is empty if the model wrote none."""

    def tool_args(self, json: str) -> None:
        """Take a piece of the JSON arguments of the current call."""

    def tool_end(self) -> None:
        """End the current call."""

    def incomplete_call(self, text: str) -> None:
        """Take the beginning of a call that the end of the text cut off before its name was complete."""

    def note_dropped(self, what: str) -> None:
        """Add a warning that something of this name was dropped, as a response has no place for it."""

    def thought_end(self, tag: str) -> None:
        """Take a closing tag of reasoning without its opening tag: all text so far is reasoning."""

    def note_unread(self, format: str) -> None:
        """Add a warning that a call in this format stays text, as it cannot be parsed."""


Format = Callable[[TextReader, ParserOutput, ParseContext], ReadStep]
# Parses a call behind its opening tag, which the TextReader has recorded.  The parser calls `start_call` once the text
# is certain to be a call.  Malformed before that makes all of it text; Malformed after that ends the call.
CallParser = Callable[[TextReader, ParserOutput, ParseContext], ReadStep]


def start_call(read: TextReader, emit: ParserOutput, name: str, id: str = "") -> None:
    """Begin a call, so that its text can no longer become plain text.

    Raises Malformed if the name is empty.
    """
    if not name:
        raise Malformed
    read.end_recording()
    emit.tool_start(name, id)


def emit_as_text(read: TextReader, emit: ParserOutput, put: TextSink) -> None:
    """Pass the recorded text to `put`, as it is no call.

    If the text ended before that was clear, it goes to `emit.incomplete_call` instead.
    """
    if text := read.end_recording():
        (emit.incomplete_call if read.ended else put)(text)


def recover_call(read: TextReader, emit: ParserOutput, put: TextSink) -> bool:
    """Recover from Malformed: end a call that has begun, or pass the recorded text to `put`.

    Returns True if the call had begun.
    """
    if read.is_recording:
        emit_as_text(read, emit, put)
        return False
    if not read.ended:
        emit.tool_end()
    return True


def try_call(call: ReadStep, read: TextReader, emit: ParserOutput, put: TextSink) -> ReadStep:
    """Parse a call whose beginning is recorded; if its text is malformed before it begins, pass all of it to `put`."""
    try:
        return (yield from call)
    except Malformed:
        recover_call(read, emit, put)
    return ""


def by_next_token(options: Mapping[str, CallParser], otherwise: CallParser) -> CallParser:
    """Return a parser that chooses among options by the next token after white space.

    The parser takes a tag before it calls the option, and leaves a bracket in place.  It may itself be an option, for a
    tag that is written twice.
    """

    def call(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        reads_on: CallParser = call
        while reads_on is call:
            yield from read.peek()
            found = yield from read.lookahead(*options)
            if found not in ("{", "["):
                yield from read.take_literal(*options)
            reads_on = options.get(found, otherwise)
        return (yield from reads_on(read, emit, context))

    return call


class FormatParser:
    """Run one generator on one text.

    passage: the pass-through for text that needs no parsing; None if all text needs parsing.
    done: the generator has returned.
    """

    __slots__ = ("_steps", "done", "passage", "reader")

    def __init__(self, reader: TextReader, steps: ReadStep) -> None:
        self.reader, self._steps, self.done = reader, steps, False
        self._go_on()

    def feed(self, text: str) -> bool:
        """Parse more text.  Return True if all of it passed through."""
        passage = self.passage
        if passage and passage.fits(text):
            self.reader.pass_through(text)
            passage.output(text)
            return True
        if len(text) > _SLICE:
            return all([self.feed(text[at : at + _SLICE]) for at in range(0, len(text), _SLICE)])
        self.reader.feed(text)
        self._go_on()
        return False

    def close(self, cut: bool = False) -> None:
        """Parse the text that the reader held back; see `TextReader.close`."""
        self.reader.close(cut)
        if not self.done:
            self._go_on()

    def _go_on(self) -> None:
        try:
            self.passage = next(self._steps)
        except StopIteration:
            self.passage, self.done = None, True
