"""Define what a format is: a generator that reads from a TextReader and writes to a ParserOutput."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from gateway.formats.reader import Malformed, ReadStep, TextReader, TextSink
from gateway.formats.schema_types import Shape, of_tool
from gateway.formats.tool_names import resolve

CallInReasoning = Literal["end", "text", "last"]


class ParseContext(Struct, frozen=True):
    """The part of the request that a format may know.

    tools: name → JSON Schema of its parameters; empty: none were offered.
    thought_open: the prompt has already opened a thought.
    in_thought: what a call inside a thought is: the end of the thought unless a closing tag and more follow, a part of
        its text, or a call if the turn brings nothing else; None: as it is known of the format.
    forced: the tool that has to be called, "" where it may be any of them; None: none has to be.
    prefill: the beginning of the answer, which the client has already; the model goes on behind it.
    echoed: the backend repeats it at once, before it goes on.
    unopened: the server may have taken out the tag that opens a thought, so a closing tag alone may end one.
    """

    tools: Mapping[str, Mapping[str, Any]]
    thought_open: bool = False
    in_thought: CallInReasoning | None = None
    forced: str | None = None
    prefill: str = ""
    echoed: bool = False
    unopened: bool = False

    def shape(self, name: str) -> Shape:
        """Return the shape of the arguments of a tool, by the name that the model wrote."""
        return of_tool(self.tools.get(resolve(name, self.tools)))


class ParserOutput(Protocol):
    """Where a format puts what it has found.  The listener numbers calls and makes ids.

    fragment: takes the beginning of a call that the end of the text cut before it had a name.
    dropped: is told the name of something that has no place in an answer.
    thought_end: takes the closing tag of a thought without its opening tag: all text so far is the thought.
    unread: takes the name of the format of a call that stays text, as it cannot be read.
    """

    def text(self, text: str) -> None: ...
    def reasoning(self, text: str) -> None: ...
    def tool_start(self, name: str, id: str = "") -> None: ...
    def tool_args(self, json: str) -> None: ...
    def tool_end(self) -> None: ...
    def incomplete_call(self, text: str) -> None: ...
    def note_dropped(self, what: str) -> None: ...
    def thought_end(self, tag: str) -> None: ...
    def unread(self, format: str) -> None: ...


Format = Callable[[TextReader, ParserOutput, ParseContext], ReadStep]
# Reads on after a tag that announced a call and that the TextReader has recorded.  It calls `start_call` if it is sure,
# and raises Malformed where the text goes wrong: before that all of it was text, after that the call ends there.
CallParser = Callable[[TextReader, ParserOutput, ParseContext], ReadStep]


def start_call(read: TextReader, emit: ParserOutput, name: str, id: str = "") -> None:
    """Begin a call: its text cannot become text again; Malformed if its name is empty."""
    if not name:
        raise Malformed
    read.end_recording()
    emit.tool_start(name, id)


def emit_as_text(read: TextReader, emit: ParserOutput, put: TextSink) -> None:
    """Give text back to `put` that is no call after all, unless it only ended too early to tell."""
    if text := read.end_recording():
        (emit.incomplete_call if read.ended else put)(text)


def recover_call(read: TextReader, emit: ParserOutput, put: TextSink) -> bool:
    """After a Malformed: what has begun as a call ends, what has not was text for `put`; True if it had begun."""
    if read.is_recording:
        emit_as_text(read, emit, put)
        return False
    if not read.ended:
        emit.tool_end()
    return True


def try_call(call: ReadStep, read: TextReader, emit: ParserOutput, put: TextSink) -> ReadStep:
    """Read a call, whose beginning is recorded, to its end, good or bad; what is none was text for `put`."""
    try:
        return (yield from call)
    except Malformed:
        recover_call(read, emit, put)
    return ""


def by_next_token(options: Mapping[str, CallParser], otherwise: CallParser) -> CallParser:
    """Choose the parser by the next token, after white space.  A tag is taken then, a bracket is not.

    The result may be one of the options itself: a tag that is written twice.
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
    """One generator at work on one text.

    passage: what may go on without it; None for nothing.
    done: it has returned.
    """

    __slots__ = ("_run", "done", "passage", "read")

    def __init__(self, read: TextReader, run: ReadStep) -> None:
        self.read, self._run, self.done = read, run, False
        self._go_on()

    def feed(self, text: str) -> bool:
        """Read on.  Return True if all of the text was put at once."""
        passage = self.passage
        if passage and passage.fits(text):
            self.read.pass_through(text)
            passage.output(text)
            return True
        self.read.feed(text)
        self._go_on()
        return False

    def close(self, cut: bool = False) -> None:
        """Release what was held back; see `TextReader.close`."""
        self.read.close(cut)
        if not self.done:
            self._go_on()

    def _go_on(self) -> None:
        try:
            self.passage = next(self._run)
        except StopIteration:
            self.passage, self.done = None, True
