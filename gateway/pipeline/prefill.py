"""Continue a prefilled message: the client has its beginning already."""

from gateway.formats.parser import ParserOutput
from gateway.formats.reader import TextReader


class PrefillOutput:
    """A ParserOutput that drops the prefill's content, except a tool call that the prefill leaves open.

    That call is passed on whole.

    emit: the output for the rest.
    read: the reader of the text, which begins with the prefill.
    """

    def __init__(self, emit: ParserOutput, read: TextReader, prefill: str) -> None:
        self._emit, self._read, self._known = emit, read, len(prefill)
        self._name = self._id = ""
        self._args: list[str] = []  # of the call that is open
        self._open = False
        self._resumed = False

    def resume(self) -> None:
        """Pass on all that follows, after the tool call that the prefill has left open."""
        self._resumed = True
        if self._open:
            self._emit.tool_start(self._name, self._id)
            self._emit.tool_args("".join(self._args))

    def text(self, text: str) -> None:
        """Pass on the new part of a text."""
        if new := self._new(text):
            self._emit.text(new)

    def reasoning(self, text: str) -> None:
        """Pass on the new part of reasoning."""
        if new := self._new(text):
            self._emit.reasoning(new)

    def incomplete_call(self, text: str) -> None:
        """Pass on the new part of an incomplete tool call."""
        if new := self._new(text):
            self._emit.incomplete_call(new)

    def tool_start(self, name: str, id: str = "") -> None:
        """Start a tool call; within the prefill, remember it."""
        if self._resumed:
            self._emit.tool_start(name, id)
        else:
            self._name, self._id, self._args, self._open = name, id, [], True

    def tool_args(self, json: str) -> None:
        """Pass on arguments; within the prefill, remember them."""
        if self._resumed:
            self._emit.tool_args(json)
        else:
            self._args.append(json)

    def tool_end(self) -> None:
        """End a tool call; within the prefill, forget it."""
        if self._resumed:
            self._emit.tool_end()
        self._open = False

    def note_dropped(self, what: str) -> None:
        """Pass on a warning, unless it concerns the prefill."""
        if self._resumed:
            self._emit.note_dropped(what)

    def thought_end(self, tag: str) -> None:
        """Pass on the end of reasoning, unless it is in the prefill."""
        if self._resumed:
            self._emit.thought_end(tag)

    def note_unread(self, format: str) -> None:
        """Pass on a warning, unless it concerns the prefill."""
        if self._resumed:
            self._emit.note_unread(format)

    def _new(self, text: str) -> str:
        """Return the part of a text, which ends at the reader's offset, that is not in the prefill."""
        begin = self._read.offset - len(text)
        return text[max(0, self._known - begin) :]
