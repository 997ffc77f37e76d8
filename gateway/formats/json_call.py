"""One call as a JSON object:  {"name": "f", "arguments": {…}}

Seen in the wild and accepted: arguments before the name, `parameters`, arguments as a JSON string or null, a missing
last brace.  Before its name is known it may prove to be text; after that it is a call, whole or cut.
"""

from collections.abc import Container

from gateway.formats.format import Emit, give_back
from gateway.formats.reader import Malformed, Reader, Step

_ARGUMENTS = {"arguments", "parameters"}
_WRAPPER = {"type"}  # {"type": "function", "name": …}


class JsonCall:
    """Reads one object; the Reader is recording from whatever announced the call.

    names: where no tag announced the call, the names that make an object one; None: any name does.
    """

    def __init__(self, read: Reader, emit: Emit, names: Container[str] | None = None) -> None:
        self._read, self._emit, self._names = read, emit, names
        self._early: list[str] | None = []  # arguments that came before the name; None: it came

    def run(self) -> Step:
        """Return "whole" after a call that ended, "cut" at the end of the text, "" where it was only text."""
        try:
            cut = yield from self._members()
        except Malformed:
            cut = "cut" if self._read.ended else ""
        if self._early is not None:
            give_back(self._read, self._emit)
            return ""
        if cut:
            return "cut"
        self._emit.tool_end()
        return "whole"

    def _members(self) -> Step:
        """Return "cut" if the text ended before the object did."""
        yield from self._read.expect("{")
        more = ","
        while more:
            key = yield from self._read.string()
            yield from self._read.expect(":")
            if (yield from self._member(key)):
                return "cut"
            more = yield from self._read.accept(",")
        if self._early is None and not (yield from self._read.accept("}")) and self._read.ended:
            return "cut"
        return ""

    def _member(self, key: str) -> Step:
        if key == "name" and self._early is not None:
            self._start((yield from self._read.string()))
        elif key in _ARGUMENTS:
            if not (yield from self._arguments()):
                return "cut"
        elif self._names is not None and self._early is not None and key not in _WRAPPER:
            raise Malformed
        else:
            yield from self._read.json(_ignore)
        return ""

    def _start(self, name: str) -> None:
        if self._names is not None and name not in self._names:
            raise Malformed
        self._emit.tool_start(name)
        for piece in self._early or ():
            self._emit.tool_args(piece)
        self._early = None
        self._read.recorded()

    def _arguments(self) -> Step:
        put = self._emit.tool_args if self._early is None else self._early.append
        start = yield from self._read.peek()
        if start == '"':
            yield from self._read.literal('"')
            return (yield from self._read.characters(put))
        if start == "n":
            put("{}")
            put = _ignore
        return (yield from self._read.json(put))


def _ignore(_: str) -> None:
    pass
