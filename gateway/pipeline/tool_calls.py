"""Track the tool calls of one choice: numbered, with ids and names, one open at a time.

Arguments that end early after a complete value get the missing brackets.  Other arguments that are no JSON object
pass unchanged, with a warning.  Missing arguments become `{}`.
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
_VALUE_ENDS = ('"', "]", "}", "true", "false", "null")  # numbers are left out, because their end may be cut off


class ParserSettings(Struct, frozen=True):
    """The settings that all choices of a round share.

    format: None if text is not parsed.
    new_id: returns an id for a tool call without one.
    used_ids: ids of tool calls in the conversation.
    limit: characters that may be held back, of tool calls that are out of order or without a name.
    mask_problem: removes from a problem what a client may not see.
    whole: the client gets the response as one body.
    auto: the operator has not set a format.
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
    """Number the tool calls of a choice, and append the events for the client to `out`.

    ids: the ids of tool calls so far in the whole response.
    count: the number of tool calls so far.
    native: the backend sent at least one of them as a call.
    """

    def __init__(self, choice: int, settings: ParserSettings, ids: set[str], out: list[Event]) -> None:
        self._choice, self._settings, self._ids, self._out = choice, settings, ids, out
        self._args: list[str] | None = None  # of the open tool call
        self._shape = ANYTHING  # the expected shape of the arguments
        self._needed = False  # the tool of the open call requires arguments
        self._in_text = ""  # the name of the open tool call if it was read in the text
        self._texts: dict[str, list[str]] = {}  # the arguments of such calls, by name
        self._room = settings.limit  # characters that these may still have
        self.count = 0
        self.native = False

    @property
    def open(self) -> bool:
        """True if a tool call is open."""
        return self._args is not None

    def start(self, head: ToolCallStart, *, in_text: bool = False) -> list[str]:
        """Start a tool call, end the one before, and return the list that collects its arguments.

        in_text: the call was read in the text.
        """
        self.end()
        name = tool_names.resolve(head.name, self._settings.context.tools)
        if name != head.name:
            self._settings.ledger.add("repaired", "tool_calls.function.name")
        elif name not in self._settings.context.tools:
            self._settings.ledger.add("forwarded", "tool_calls.function.name")
        self._args, self._shape, self._in_text = [], self._settings.context.shape(name), name if in_text else ""
        self._needed = bool(self._settings.context.tools.get(name, {}).get("required"))
        self._out.append(replace(head, call=self.count, id=self._id(head.id), name=name))
        self.count += 1
        return self._args

    def args(self, json: str) -> None:
        """Pass on the next piece of the open call's arguments."""
        assert self._args is not None
        if json:
            self._args.append(json)
            self._out.append(ToolArgsDelta(self._choice, self.count - 1, json))

    def end(self, cut: bool = False, *, closed: bool = False) -> None:
        """End the open call, if there is one.

        cut: the response ended before the model ended the call.
        closed: the model ended it, or the backend sent it as a call.
        """
        if self._args is None:
            return
        text = "".join(self._args)
        value = _object(text)
        tail = _tail(text, cut) if value is None else ""
        self.args(tail)
        self._args = None
        if self._in_text:
            self._keep(text + tail)
        if tail:
            value = _object(text + tail)
        lacks = not (text or closed or cut) and self._needed  # it broke off before arguments that the tool requires
        fits = (value is None or self._shape.fits(value)) and not lacks
        if (text or lacks) and not cut:
            self._report(bool(text and tail), fits and value is not None)
        complete = value is not None and not (tail and cut)
        self._out.append(ToolCallEnd(self._choice, self.count - 1, complete, fits))

    def calls_in_text(self, name: str) -> list[str]:
        """Return the arguments of the calls of a tool that were read in the text; the caller may remove some."""
        return self._texts.get(tool_names.resolve(name, self._settings.context.tools), []) if self._texts else []

    def _keep(self, arguments: str) -> None:
        self._room -= len(arguments)
        if self._room >= 0:
            self._texts.setdefault(self._in_text, []).append(arguments)

    def _report(self, repaired: bool, valid: bool) -> None:
        ledger, subject = self._settings.ledger, "tool_calls.function.arguments"
        if repaired:
            ledger.add("repaired", subject)
        if not valid:
            ledger.add("invalid", subject)

    def _id(self, id: str) -> str:
        if not id or id in self._ids or id in self._settings.used_ids:
            if self.native:
                self._settings.ledger.add("synthesised", "tool_calls.id")
            id = self._settings.new_id()
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
    except (ValueError, AssertionError, IndexError, RecursionError):  # its fast path fails assertions on some texts
        return ""
    tail = whole.removeprefix(text)
    return tail if tail and not tail.strip(_BRACKETS) and whole.startswith(text) and _object(whole) is not None else ""
