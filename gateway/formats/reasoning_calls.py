"""A call inside a thought, until its turn shows that it is one or a quotation."""

from typing import Any

from gateway.formats.parser import ParseContext, ParserOutput
from gateway.formats.reader import TextReader
from gateway.formats.tool_names import resolve


class HeldOutput:
    """A ParserOutput that keeps a call, and what follows it, while the TextReader keeps their text.

    The call counts if its tool was offered and no closing tag of the thought follows, or nothing but that tag.
    Otherwise the text is a part of the thought.  What is longer than the TextReader's limit counts as a call.
    closes: the closing tags of the thought.
    apart: the backend passes the thought apart, so that it ends with the text.
    offered: the call is one of a tool that was offered.
    """

    def __init__(
        self, emit: ParserOutput, read: TextReader, context: ParseContext, closes: tuple[str, ...], *, apart: bool
    ) -> None:
        self.emit, self.closes, self.offered = emit, closes, False
        self._apart = apart
        self._read, self._tools, self._known = read, context.tools, len(context.prefill)
        self._events: list[tuple[str, tuple[Any, ...]]] = []
        self._thought: str | None = None  # what a closing tag has made of it
        self._settled = self._named = False
        read.keep(read.marker)

    @property
    def open(self) -> bool:
        """True while no closing tag has been found and nothing is decided."""
        return not self._settled and self._thought is None

    def close(self, tag: str) -> None:
        """A closing tag was taken: a quotation, unless the turn brings nothing else."""
        self._thought = self._kept().removesuffix(tag)

    def quote(self) -> None:
        """Pass all of it on as a part of the thought."""
        thought = self._kept() if self._thought is None else self._thought
        self._settle()
        if thought:
            self.emit.reasoning(thought)

    def count(self) -> None:
        """Pass on what was found in it."""
        in_thought = self._apart or self._thought is not None
        for method, arguments in self._settle():
            getattr(self.emit, "reasoning" if in_thought and method == "text" else method)(*arguments)

    def end(self) -> None:
        """The text is over."""
        if self._settled:
            return
        closed = self._thought is not None
        if (self._read.followed and (closed or self._apart)) or (self._read.cut and closed):
            self.quote()
        else:
            self.count()

    # what is found

    def text(self, text: str) -> None:
        self._add("text", self._new(text))

    def reasoning(self, text: str) -> None:
        self._add("reasoning", self._new(text))

    def incomplete_call(self, text: str) -> None:
        self._add("incomplete_call" if self._read.cut else "reasoning", self._new(text))

    def tool_start(self, name: str, id: str = "") -> None:
        if not self._named:
            self._named, self.offered = True, resolve(name, self._tools) in self._tools
        self._add("tool_start", name, id)

    def tool_args(self, json: str) -> None:
        self._add("tool_args", json)

    def tool_end(self) -> None:
        self._add("tool_end")

    def note_dropped(self, what: str) -> None:
        self._add("note_dropped", what)

    def thought_end(self, tag: str) -> None:
        self._add("thought_end", tag)

    def unread(self, format: str) -> None:
        self._add("unread", format)

    def _add(self, method: str, *arguments: str) -> None:
        if self._thought is not None and not self._settled:
            self.quote()
        if self._settled:
            getattr(self.emit, method)(*arguments)
            return
        self._events.append((method, arguments))
        if self.offered and self._read.keeping > self._read.limit:
            self.count()

    def _new(self, text: str) -> str:
        """Return what the prefill did not have of a text that ends where the TextReader is."""
        return text[max(0, self._known - (self._read.offset - len(text))) :]

    def _kept(self) -> str:
        return self._new(self._read.kept())

    def _settle(self) -> list[tuple[str, tuple[Any, ...]]]:
        events, self._events, self._settled = self._events, [], True
        self._read.kept()
        return events
