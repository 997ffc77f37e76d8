"""One tool call that a backend sends as a call: its head and its arguments, in whatever pieces they come.

Known and put right: a name in pieces, a head that is repeated, arguments before the name, each delta with all of the
arguments so far, the arguments once more after their end, and a second call that is the first one again.
"""

from msgspec import DecodeError, json

from gateway.events import ToolCallStart
from gateway.formats import tool_names
from gateway.formats.arguments import TRAILING, Arguments
from gateway.formats.format import ParseContext
from gateway.formats.shape import of_tool

_LONGEST_EMPTY = 8  # characters of `{}` with white space
_BEFORE_VALUE = (":", "[", ",")  # after these an object may begin with the same characters as the arguments


class StructuredCall:
    """Heads and arguments in.

    twin: a call with the same id; this one may be that one again.
    size: characters of the arguments as they came.
    closed: no more of it comes; ended: the client has been told so.
    repaired: the arguments are not passed on as they came; surplus: something that came after them is not passed on.
    """

    def __init__(self, head: ToolCallStart, context: ParseContext, twin: "StructuredCall | None" = None) -> None:
        self.head, self.name, self.id = head, head.name, head.id
        self.started = self.closed = self.ended = self.repaired = self.surplus = False
        self._tools, self._twin = context.tools, twin
        self._raw: list[str] = []
        self.size = 0
        self.sent: list[str] = []  # what the client has got, for who ends the call
        self._doubtful = ""  # the last delta, which may be all arguments so far
        self._cumulative = False
        self._json: list[str] = []  # pieces for the client
        self._arguments: Arguments | None = None
        self._repeat = 0  # characters of the arguments that came once more

    @property
    def raw(self) -> str:
        """The arguments as they came."""
        self._raw = ["".join(self._raw)]
        return self._raw[0]

    @property
    def certain(self) -> bool:
        """True if it is certain which tool is called, and that this is not the twin again."""
        if self._twin and not (self.complete or self.closed):
            return False
        return bool(self.name) and (bool(self.size) or self.closed or tool_names.certain(self.name, self._tools))

    @property
    def repeated(self) -> bool:
        """True if the call is its twin again."""
        return self._twin is not None and (self.complete or self.closed) and _same(self.raw, self._twin.raw)

    @property
    def complete(self) -> bool:
        """True if the arguments are an object with something in it, or an empty one that the tool expects."""
        if self._arguments and self._arguments.complete:
            return True
        empty = self.size < _LONGEST_EMPTY and self.raw.strip() == "{}"
        return empty and self.name in self._tools and not self._tools[self.name].get("properties")

    def repeats(self, head: ToolCallStart) -> bool:
        """Take a further head with the same index, and return whether it is one of this call."""
        if head.id and self.id and head.id != self.id:
            return False
        if not head.name:
            self.id = self.id or head.id
            return True
        if head.name == self.name:
            return bool(head.id and self.id) or not self.complete
        if self.started or (self.size and self.name):
            return False
        joined = self.name + head.name
        if self.name in self._tools and joined not in self._tools and not (head.id and self.id):
            return False  # another call, of a backend that counts no calls
        self.name, self.id = joined, self.id or head.id
        if self.size:
            self._write(self.raw)
        return True

    def passes(self, piece: str) -> bool:
        """Take a piece that the client gets as it came; return False where it has to be looked at."""
        size, arguments = len(piece), self._arguments
        if arguments and size < self.size and not self._doubtful and arguments.passes(piece):
            self._raw.append(piece)
            self.sent.append(piece)
            self.size += size
            return True
        return False

    def feed(self, piece: str) -> None:
        """Take the next piece of the arguments."""
        size, arguments = len(piece), self._arguments
        if arguments and size < self.size and not (arguments.over or self._doubtful):  # as nearly always
            self._raw.append(piece)
            self.size += size
            arguments.feed(piece)
            if arguments.rest:
                self._take_rest(arguments.rest)
        elif self.ended or self.complete:
            self._after(piece)
        elif fresh := self._fresh(piece):
            self._add(fresh)

    def json(self) -> str:
        """Take the arguments that are new for the client."""
        pieces = self._json
        json = pieces[0] if len(pieces) == 1 else "".join(pieces)
        pieces.clear()
        return json

    def close(self, cut: bool = False) -> None:
        """No more comes.  cut: not by the model's will."""
        if self.closed:
            return
        if self._doubtful:
            doubtful, self._doubtful = self._doubtful, ""
            self._cumulative = not _is_json(self.raw + doubtful) and _is_json(doubtful)
            self._add(doubtful[self.size :] if self._cumulative else doubtful)
        self.closed = True
        if self._arguments:
            self._arguments.close(cut)
        self.repaired |= self._cumulative or bool(self._arguments and self._arguments.repaired)

    def _fresh(self, piece: str) -> str:
        """Return what is new in a delta, which may begin with all of the arguments so far; "" if that is in doubt."""
        if doubtful := self._doubtful:
            self._doubtful = ""
            if not piece.startswith(doubtful):
                return doubtful + piece
            self._cumulative = True
        elif not (len(piece) >= self.size > 0 and piece[0] == "{" and piece.startswith(self.raw)):
            return piece
        elif not self._cumulative and self.raw.rstrip().endswith(_BEFORE_VALUE):
            self._doubtful = piece
            return ""
        self._cumulative = True
        return piece[self.size :]

    def _add(self, fresh: str) -> None:
        self._raw.append(fresh)
        self.size += len(fresh)
        if self.name:
            self._write(fresh)

    def _write(self, piece: str) -> None:
        """Make JSON of arguments."""
        if not self._arguments:
            tool = self._tools.get(tool_names.resolve(self.name, self._tools))
            self._arguments = Arguments(self._json.append, of_tool(tool))
        self._arguments.feed(piece)
        if rest := self._arguments.rest:
            self._take_rest(rest)

    def _take_rest(self, rest: str) -> None:
        """Take what stands behind the arguments in the same piece."""
        self._raw = [self.raw.removesuffix(rest)]
        self._after(rest)

    def _after(self, piece: str) -> None:
        """Compare what comes after the end of the arguments, which may be the arguments once more."""
        if self.raw.startswith(piece, self._repeat):
            self._repeat = (self._repeat + len(piece)) % max(len(self.raw), 1)
            self.repaired = True
        elif piece.strip(TRAILING):
            self.surplus = True
        else:
            self.repaired |= not piece.isspace()


def _is_json(text: str) -> bool:
    try:
        json.decode(text)
    except (DecodeError, RecursionError):
        return False
    return True


def _same(first: str, second: str) -> bool:
    """Compare arguments as JSON, or as text if they are none."""
    if first == second:
        return True
    return _is_json(first) and _is_json(second) and json.decode(first) == json.decode(second)
