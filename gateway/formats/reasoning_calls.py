"""Receive calls inside reasoning, which may be quotations, and calls right behind reasoning without an opening tag."""

from typing import Any

from gateway.formats.parser import ParseContext, ParserOutput
from gateway.formats.reader import TextReader
from gateway.formats.tool_names import resolve


class HeldOutput:
    """A ParserOutput that holds a call and its following events, while the TextReader keeps their text.

    The call counts if its tool was offered, unless a closing tag of the reasoning and more text follow.  In that case
    the text stays reasoning.  If the text exceeds the TextReader's limit, the call counts.

    closes: the closing tags of the reasoning.
    apart: the backend sends the reasoning in a field of its own, so the reasoning ends with the text.
    offered: the call is one of a tool that was offered.
    """

    def __init__(
        self, emit: ParserOutput, read: TextReader, context: ParseContext, closes: tuple[str, ...], *, apart: bool
    ) -> None:
        self.emit, self.closes, self.offered = emit, closes, False
        self._apart = apart
        self._read, self._tools, self._known = read, context.tools, len(context.prefill)
        self._events: list[tuple[str, tuple[Any, ...]]] = []
        self._thought: str | None = None  # the kept text once a closing tag has come
        self._settled = self._named = False
        read.begin_keeping(read.marker)

    @property
    def open(self) -> bool:
        """Return True while no closing tag has come and nothing is decided."""
        return not self._settled and self._thought is None

    def close(self, tag: str) -> None:
        """Take a closing tag: the call is a quotation, unless nothing else follows in the turn."""
        self._thought = self._kept().removesuffix(tag)

    def quote(self) -> None:
        """Pass all kept text on as reasoning."""
        thought = self._kept() if self._thought is None else self._thought
        self._settle()
        if thought:
            self.emit.reasoning(thought)

    def count(self) -> None:
        """Pass on the held events, so that the call counts."""
        in_thought = self._apart or self._thought is not None
        for method, arguments in self._settle():
            getattr(self.emit, "reasoning" if in_thought and method == "text" else method)(*arguments)

    def end(self) -> None:
        """Decide at the end of the text."""
        if self._settled:
            return
        closed = self._thought is not None
        if (self._read.followed and (closed or self._apart)) or (self._read.cut and closed):
            self.quote()
        else:
            self.count()

    # the methods of ParserOutput

    def text(self, text: str) -> None:
        """Hold text of the response, without the prefill."""
        self._add("text", self._new(text))

    def reasoning(self, text: str) -> None:
        """Hold reasoning, without the prefill."""
        self._add("reasoning", self._new(text))

    def incomplete_call(self, text: str) -> None:
        """Hold an incomplete call, which is reasoning if the model ended the text itself."""
        self._add("incomplete_call" if self._read.cut else "reasoning", self._new(text))

    def tool_start(self, name: str, id: str = "") -> None:
        """Hold the beginning of a call."""
        if not self._named:
            self._named, self.offered = True, resolve(name, self._tools) in self._tools
        self._add("tool_start", name, id)

    def tool_args(self, json: str) -> None:
        """Hold a piece of arguments."""
        self._add("tool_args", json)

    def tool_end(self) -> None:
        """Hold the end of a call."""
        self._add("tool_end")

    def note_dropped(self, what: str) -> None:
        """Hold a warning about dropped text."""
        self._add("note_dropped", what)

    def thought_end(self, tag: str) -> None:
        """Hold a closing tag without its opening tag."""
        self._add("thought_end", tag)

    def note_unread(self, format: str) -> None:
        """Hold a warning about a call that cannot be parsed."""
        self._add("note_unread", format)

    def _add(self, method: str, *arguments: str) -> None:
        if self._thought is not None and not self._settled:
            self.quote()
        if self._settled:
            getattr(self.emit, method)(*arguments)
            return
        self._events.append((method, arguments))
        if self.offered and self._read.kept_size > self._read.limit:
            self.count()

    def _new(self, text: str) -> str:
        """Return the part of a text that is not in the prefill; the text ends at the position of the TextReader."""
        return text[max(0, self._known - (self._read.offset - len(text))) :]

    def _kept(self) -> str:
        return self._new(self._read.end_keeping())

    def _settle(self) -> list[tuple[str, tuple[Any, ...]]]:
        events, self._events, self._settled = self._events, [], True
        self._read.end_keeping()
        return events


class ThoughtEnd:
    """A ParserOutput that ends reasoning without an opening tag where the first call begins.

    gap: the white space before the closing tag.
    """

    def __init__(self, emit: ParserOutput, gap: str, tag: str) -> None:
        self._emit, self._gap, self._tag = emit, gap, tag
        self.tool_args, self.tool_end = emit.tool_args, emit.tool_end
        self.text, self.reasoning, self.incomplete_call = emit.text, emit.reasoning, emit.incomplete_call
        self.note_dropped, self.thought_end, self.note_unread = emit.note_dropped, emit.thought_end, emit.note_unread

    def end(self) -> None:
        """End the reasoning, once."""
        if self._gap:
            self._emit.text(self._gap)
        if self._tag:
            self._emit.thought_end(self._tag)
        self._gap = self._tag = ""

    def tool_start(self, name: str, id: str = "") -> None:
        """Begin a call behind the reasoning."""
        self.end()
        self._emit.tool_start(name, id)


class CallsOnlyOutput:
    """A ParserOutput for text that was already sent as reasoning: only its calls are new."""

    def __init__(self, emit: ParserOutput) -> None:
        self.tool_start, self.tool_args, self.tool_end = emit.tool_start, emit.tool_args, emit.tool_end
        self.note_unread = emit.note_unread
        self.text = self.thought_end = self.reasoning = self.incomplete_call = self.note_dropped = _ignore


def _ignore(_: str) -> None:
    pass
