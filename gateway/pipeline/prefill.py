"""An answer that goes on where a prefilled message ended: the client has the beginning already."""

from gateway.formats.parser import ParserOutput
from gateway.formats.reader import TextReader


class PrefillOutput:
    """An Emit that keeps back what the prefill brings, but for a call that it leaves open: that one is told whole.

    `resume` says that the prefill has been read.
    """

    def __init__(self, emit: ParserOutput, read: TextReader, prefill: str) -> None:
        self._emit, self._read, self._known = emit, read, len(prefill)
        self._name = self._id = ""
        self._args: list[str] = []  # of the call that is open
        self._open = False
        self._resumed = False

    def resume(self) -> None:
        self._resumed = True
        if self._open:
            self._emit.tool_start(self._name, self._id)
            self._emit.tool_args("".join(self._args))

    def text(self, text: str) -> None:
        if new := self._new(text):
            self._emit.text(new)

    def reasoning(self, text: str) -> None:
        if new := self._new(text):
            self._emit.reasoning(new)

    def incomplete_call(self, text: str) -> None:
        if new := self._new(text):
            self._emit.incomplete_call(new)

    def tool_start(self, name: str, id: str = "") -> None:
        if self._resumed:
            self._emit.tool_start(name, id)
        else:
            self._name, self._id, self._args, self._open = name, id, [], True

    def tool_args(self, json: str) -> None:
        if self._resumed:
            self._emit.tool_args(json)
        else:
            self._args.append(json)

    def tool_end(self) -> None:
        if self._resumed:
            self._emit.tool_end()
        self._open = False

    def note_dropped(self, what: str) -> None:
        if self._resumed:
            self._emit.note_dropped(what)

    def thought_end(self, tag: str) -> None:
        if self._resumed:
            self._emit.thought_end(tag)

    def unread(self, format: str) -> None:
        if self._resumed:
            self._emit.unread(format)

    def _new(self, text: str) -> str:
        """Return the part of a text, which ends where the TextReader is, that the prefill did not have."""
        begin = self._read.offset - len(text)
        return text[max(0, self._known - begin) :]
