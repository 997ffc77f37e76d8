"""The tool calls of one choice: numbered, with ids and names, one open at a time.

Arguments that end early after a complete value get the brackets that they lack.  Other arguments that are no JSON
object stay as they came, and are reported.  Missing arguments are `{}`.
"""

from collections.abc import Callable
from typing import Any

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace
from partial_json_parser import ensure_json

from gateway.errors import Problem
from gateway.events import Event, ToolArgsDelta, ToolCallEnd, ToolCallStart
from gateway.formats import tool_names
from gateway.formats.parser import Format, ParseContext
from gateway.formats.schema_types import ANYTHING
from gateway.warnings import Warnings

_BRACKETS = "]}"
_VALUE_ENDS = ('"', "]", "}", "true", "false", "null")  # a number may go on


class ParserSettings(Struct, frozen=True):
    """The settings that all choices of a round share.

    format: None where text is just text.
    new_id: makes an id for a call that came without one.
    taken: ids of calls that the conversation has already.
    discreet: takes out of a problem what a client is not to know.
    limit: characters that may be held back, of calls that came out of turn or have no name yet.
    whole: the client gets the answer in one piece.
    auto: the operator leaves the format open.
    """

    format: Format | None
    context: ParseContext
    new_id: Callable[[], str]
    ledger: Warnings
    used_ids: frozenset[str] = frozenset()
    limit: int = 8 << 20
    mask_problem: Callable[[Problem], Problem] = lambda problem: problem
    whole: bool = False
    auto: bool = False


class ToolCallTracker:
    """Tool calls in; events for the client go to the end of `out`.

    ids: the ids given so far in the whole response.
    count: the number of calls so far.
    """

    def __init__(self, choice: int, setting: ParserSettings, ids: set[str], out: list[Event]) -> None:
        self._choice, self._setting, self._ids, self._out = choice, setting, ids, out
        self._args: list[str] | None = None  # of the open call
        self._shape = ANYTHING  # of them
        self.count = 0
        self.native = False  # the backend found at least one of them itself

    @property
    def open(self) -> bool:
        return self._args is not None

    def start(self, head: ToolCallStart) -> list[str]:
        """Begin a call, and end the one before; return where the pieces of its arguments are kept."""
        self.end()
        name = tool_names.resolve(head.name, self._setting.context.tools)
        if name != head.name:
            self._setting.ledger.add("repaired", "tool_calls.function.name")
        elif name not in self._setting.context.tools:
            self._setting.ledger.add("forwarded", "tool_calls.function.name")
        self._args, self._shape = [], self._setting.context.shape(name)
        self._out.append(replace(head, call=self.count, id=self._id(head.id), name=name))
        self.count += 1
        return self._args

    def args(self, json: str) -> None:
        """Pass on the next piece of the open call's arguments."""
        assert self._args is not None
        if json:
            self._args.append(json)
            self._out.append(ToolArgsDelta(self._choice, self.count - 1, json))

    def end(self, cut: bool = False) -> None:
        """End the open call, if there is one.  cut: the answer ended before the model did."""
        if self._args is None:
            return
        text = "".join(self._args)
        value = _object(text)
        tail = _tail(text, cut) if value is None else ""
        self.args(tail)
        self._args = None
        if tail:
            value = _object(text + tail)
        fits = value is None or self._shape.fits(value)
        if text and not cut:
            self._report(bool(tail), fits and value is not None)
        complete = value is not None and not (tail and cut)
        self._out.append(ToolCallEnd(self._choice, self.count - 1, complete, fits))

    def _report(self, repaired: bool, valid: bool) -> None:
        ledger, subject = self._setting.ledger, "tool_calls.function.arguments"
        if repaired:
            ledger.add("repaired", subject)
        if not valid:
            ledger.add("invalid", subject)

    def _id(self, id: str) -> str:
        if not id or id in self._ids or id in self._setting.used_ids:
            if self.native:
                self._setting.ledger.add("synthesised", "tool_calls.id")
            id = self._setting.new_id()
        self._ids.add(id)
        return id


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.decode(text)
    except (DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


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
    return tail if tail and not tail.strip(_BRACKETS) and whole.startswith(text) and _object(whole) is not None else ""
