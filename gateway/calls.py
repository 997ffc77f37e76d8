"""The tool calls of one choice: numbered, with ids and names, one open at a time.

Arguments that end early after a complete value get the brackets that they lack.  Other arguments that are no JSON
object stay as they came, and are reported.  Missing arguments are `{}`.
"""

from collections.abc import Callable

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace
from partial_json_parser import ensure_json

from gateway.errors import Problem
from gateway.events import Event, ToolArgs, ToolEnd, ToolStart
from gateway.formats import tool_names
from gateway.formats.format import Context, Format
from gateway.ledger import Ledger

_BRACKETS = "]}"
_VALUE_ENDS = ('"', "]", "}", "true", "false", "null")  # a number may go on


class Setting(Struct, frozen=True):
    """What all choices of a round share.

    format: None where text is just text.
    new_id: makes an id for a call that came without one.
    taken: ids of calls that the conversation has already.
    discreet: takes out of a problem what a client is not to know.
    limit: characters that may be held back, of calls that came out of turn or have no name yet.
    whole: the client gets the answer in one piece.
    auto: the operator leaves the format open.
    """

    format: Format | None
    context: Context
    new_id: Callable[[], str]
    ledger: Ledger
    taken: frozenset[str] = frozenset()
    limit: int = 8 << 20
    discreet: Callable[[Problem], Problem] = lambda problem: problem
    whole: bool = False
    auto: bool = False


class Calls:
    """Tool calls in; events for the client go to `out`.

    ids: the ids given so far in the whole response.
    count: the number of calls so far.
    fresh: the text brought arguments that `out` does not have.
    """

    def __init__(self, choice: int, setting: Setting, ids: set[str], out: Callable[[Event], None]) -> None:
        self._choice, self._setting, self._ids, self._out = choice, setting, ids, out
        self._args: list[str] | None = None  # of the open call
        self._sent = 0  # pieces of them that `out` has
        self.count = 0
        self.fresh = False
        self.native = False  # the backend found at least one of them itself

    @property
    def open(self) -> bool:
        return self._args is not None

    def start(self, head: ToolStart, args: list[str] | None = None) -> None:
        """Begin a call, and end the one before.  args: takes the pieces of its arguments."""
        self.end()
        name = tool_names.resolve(head.name, self._setting.context.tools)
        if name != head.name:
            self._setting.ledger.note("repaired", "tool_calls.function.name")
        elif name not in self._setting.context.tools:
            self._setting.ledger.note("forwarded", "tool_calls.function.name")
        self._args, self._sent = [] if args is None else args, 0
        self._out(replace(head, call=self.count, id=self._id(head.id), name=name))
        self.count += 1

    def args(self, json: str) -> None:
        """Take the next piece of the open call's arguments."""
        assert self._args is not None
        self._args.append(json)
        self.fresh = True

    def flush(self) -> None:
        """Pass on the arguments that are new, as one event."""
        self.fresh = False
        if self._args and (new := self._args[self._sent :]):
            self._sent += len(new)
            if json := "".join(new):
                self._out(ToolArgs(self._choice, self.count - 1, json))

    def end(self, cut: bool = False) -> None:
        """End the open call, if there is one.  cut: the answer ended before the model did."""
        if self._args is None:
            return
        text = "".join(self._args)
        complete = _is_object(text)
        tail = "" if complete else _tail(text, cut)
        self._args.append(tail)
        self.flush()
        self._args = None
        if not complete and text and not cut:
            self._setting.ledger.note("repaired" if tail else "invalid", "tool_calls.function.arguments")
        self._out(ToolEnd(self._choice, self.count - 1, complete or (bool(tail) and not cut)))

    def _id(self, id: str) -> str:
        if not id or id in self._ids or id in self._setting.taken:
            if self.native:
                self._setting.ledger.note("synthesised", "tool_calls.id")
            id = self._setting.new_id()
        self._ids.add(id)
        return id


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.decode(text), dict)
    except (DecodeError, RecursionError):
        return False


def _tail(text: str, cut: bool) -> str:
    """Return the brackets that make arguments an object; "" if anything else is missing, too."""
    plain = text.rstrip()
    if not plain:
        return "{}"
    if cut or not plain.endswith(_VALUE_ENDS):
        return ""
    try:
        whole: str = ensure_json(text)
    except (ValueError, AssertionError, IndexError, RecursionError):  # its fast path asserts what other text breaks
        return ""
    tail = whole.removeprefix(text)
    return tail if tail and not tail.strip(_BRACKETS) and whole.startswith(text) and _is_object(whole) else ""
