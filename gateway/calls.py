"""The calls of one choice: numbered, with ids, one open at a time, each ended with arguments that are JSON.

Also the one place of the recovery policy for calls that have begun: a malformed end is closed with the shortest tail
that makes the arguments JSON, unless the turn was cut; only no arguments at all are `{}` even then, as clients crash on
an empty text.
"""

from collections.abc import Callable
from itertools import chain

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace
from partial_json_parser import ensure_json

from gateway.errors import Problem, UpstreamInvalid
from gateway.events import Event, ToolArgs, ToolEnd, ToolStart
from gateway.formats.format import Context, Format, Parse
from gateway.formats.reader import Malformed, Reader
from gateway.ledger import Ledger

_BRIDGES = ("", "\\", "null", ": null", '": null', '"": null', "0", "00", "000", "0000")


class Setting(Struct, frozen=True):
    """What all choices of a round share.

    format: None where text is just text.
    new_id: makes an id for a call that came without one.
    taken: ids of calls that the conversation has already.
    discreet: takes out of a problem what a client is not to know.
    limit: characters that may be held back, of calls that came out of turn or have no name yet.
    """

    format: Format | None
    context: Context
    new_id: Callable[[], str]
    ledger: Ledger
    taken: frozenset[str] = frozenset()
    limit: int = 8 << 20
    discreet: Callable[[Problem], Problem] = lambda problem: problem


class _Open:
    """The call that is open, as the client knows it and as the backend named it."""

    def __init__(self, index: int, raw: ToolStart) -> None:
        self.index, self.raw = index, raw
        self.args: list[str] = []
        self._scan: Parse | None = None  # None until somebody asks
        self._scanned = 0

    def again(self, raw: ToolStart) -> bool:
        """True if raw only repeats this call's head."""
        if raw.call != self.raw.call:
            return False
        if raw.id and self.raw.id:
            return raw.id == self.raw.id and raw.name == self.raw.name
        return raw.name == self.raw.name and not self.complete()

    def complete(self) -> bool:
        """True if the arguments so far are one JSON value; looks at each piece once, however often it is asked."""
        scan = self._scan = self._scan or _scan()
        try:
            for piece in self.args[self._scanned :]:
                scan.feed(piece)
        except Malformed:
            pass
        self._scanned = len(self.args)
        return bool(self.args) and scan.done


class Calls:
    """`ids` are the ids given so far in the whole answer; what is found goes to `out`."""

    def __init__(self, choice: int, setting: Setting, ids: set[str], out: Callable[[Event], None]) -> None:
        self._choice, self._setting, self._ids, self._out = choice, setting, ids, out
        self._open: _Open | None = None
        self._waiting: dict[int, list[ToolStart | ToolArgs]] = {}  # calls interleaved with the open one
        self._held = 0
        self.count = 0
        self.native = False  # the backend found at least one of them itself

    @property
    def open(self) -> bool:
        return self._open is not None

    def start(self, raw: ToolStart) -> None:
        """A call begins, and ends the one before."""
        self.end()
        if raw.name not in self._setting.context.tools:
            self._setting.ledger.note("forwarded", "tool_calls.function.name")
        self._open = _Open(self.count, raw)
        self._out(replace(raw, call=self.count, id=self._id(raw.id)))
        self.count += 1

    def args(self, json: str) -> None:
        """The next piece of the open call's arguments; there has to be one."""
        opened = self._open
        assert opened
        opened.args.append(json)
        self._out(ToolArgs(self._choice, opened.index, json))

    def native_start(self, raw: ToolStart) -> None:
        """The head of a call that the backend found: a new one, the open one's again, or one out of turn."""
        self.native = True
        opened = self._open
        if not opened or (not opened.again(raw) and self._may_follow(opened, raw)):
            self.start(raw)
        elif not opened.again(raw):
            self._hold(raw, len(raw.name))

    def native_args(self, raw: ToolArgs) -> None:
        if raw.call in self._waiting:
            self._hold(raw, len(raw.json))
        else:
            self.args(raw.json)

    def flush(self, cut: bool) -> None:
        """End the open call, then those that waited for it.  `cut`: the answer ended before the model did."""
        if not self._open:
            return
        self.end(cut)
        waiting, self._waiting, self._held = self._waiting, {}, 0
        for event in chain.from_iterable(waiting.values()):
            if type(event) is ToolArgs:
                self.args(event.json)
            elif type(event) is ToolStart and not (self._open and self._open.again(event)):
                self.end(cut)
                self.start(event)
        self.end(cut)

    def end(self, cut: bool = False) -> None:
        opened, self._open = self._open, None
        if not opened:
            return
        text = "".join(opened.args)
        complete = _is_json(text)
        tail = "" if complete or (cut and text.strip()) else _closing_tail(text)
        if tail:
            if text:
                self._setting.ledger.note("repaired", "tool_calls.function.arguments")
            self._out(ToolArgs(self._choice, opened.index, tail))
        self._out(ToolEnd(self._choice, opened.index, complete or (bool(tail) and not cut)))

    def _may_follow(self, opened: _Open, raw: ToolStart) -> bool:
        """Whether a new head ends the open call: its arguments are whole, or the backend gives all the same index."""
        if raw.call == opened.raw.call:
            self._setting.ledger.note("repaired", "tool_calls.index")
            return True
        return not self._waiting and opened.complete()

    def _hold(self, raw: ToolStart | ToolArgs, size: int) -> None:
        self._held += size
        if self._held > self._setting.limit:
            raise UpstreamInvalid(f"The backend interleaved tool calls of more than {self._setting.limit} characters.")
        self._waiting.setdefault(raw.call, []).append(raw)

    def _id(self, id: str) -> str:
        if not id or id in self._ids or id in self._setting.taken:
            if self.native:
                self._setting.ledger.note("synthesised", "tool_calls.id")
            id = self._setting.new_id()
        self._ids.add(id)
        return id


def _scan() -> Parse:
    """Finds the end of one JSON value."""
    read = Reader()
    return Parse(read, read.json(_ignore))


def _ignore(_: str) -> None:
    pass


def _is_json(text: str) -> bool:
    try:
        json.decode(text)
    except (DecodeError, RecursionError):
        return False
    return True


def _closing_tail(sent: str) -> str:
    """The shortest addition that makes JSON of what was sent; "" if there is none."""
    if not sent.strip():
        return "{}"
    for bridge in _BRIDGES:
        try:
            whole: str = ensure_json(sent + bridge)
        except (ValueError, AssertionError, IndexError, RecursionError):  # its fast path asserts what garbage breaks
            continue
        if whole.startswith(sent) and _is_json(whole):
            return whole[len(sent) :]
    return ""
