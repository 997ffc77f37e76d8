"""What an answer was to be, and is not: some servers take such a request and see to nothing (`--skip-chat-parsing`)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import DecodeError, json

from gateway.backends.extensions import response_format
from gateway.events import Event, Finish, Text, ToolStart
from gateway.ledger import Ledger
from gateway.request import Named, Request


def translate(request: Request, ledger: Ledger) -> tuple[Request, Sequence["Promises"]]:
    choice, form = request.tool_choice, response_format(request) or {}
    forced = bool(request.callable_tools) and (choice == "required" or isinstance(choice, Named))
    formed = form.get("type") in ("json_object", "json_schema") and not _continues(request)
    if not request.generates or not (forced or formed):
        return request, []
    return request, [Promises(forced, form if formed else {}, ledger)]


def _continues(request: Request) -> bool:
    """True if the answer may be the rest of one that the client has begun."""
    return bool(request.messages) and request.messages[-1]["role"] == "assistant"


class Promises:
    """Changes nothing.  A model that stopped without the call or the form that it owed is listed.

    forced: there has to be a call; form: a `response_format`, which holds of a text without calls, or nothing.
    """

    def __init__(self, forced: bool, form: Mapping[str, Any], ledger: Ledger) -> None:
        self._forced, self._form, self._ledger = forced, form, ledger
        self._texts: dict[int, list[str]] = defaultdict(list)  # by choice
        self._called: set[int] = set()  # choices

    def feed(self, event: Event) -> Iterable[Event]:
        match event:
            case Text() if self._form:
                self._texts[event.choice].append(event.text)
            case ToolStart():
                self._called.add(event.choice)
            case Finish() if event.choice not in self._called:
                self._check("".join(self._texts[event.choice]), event.reason)
        return (event,)

    def close(self) -> Iterable[Event]:
        return ()  # nothing is held back

    def _check(self, text: str, reason: str) -> None:
        """What was cut may have come to its call, and to the end of its form."""
        if self._forced and reason == "stop":
            self._ledger.note("unenforced", "tool_choice")
        fits = {"stop": _fits, "length": _begins}.get(reason)
        if self._form and fits and not fits(text.strip(), self._form):
            self._ledger.note("unenforced", "response_format")


def _fits(text: str, form: Mapping[str, Any]) -> bool:
    """As far as can be seen at a glance: JSON, an object where one is wanted, and the members that it needs."""
    try:
        said = json.decode(text)
    except (DecodeError, RecursionError):
        return False
    needed = _schema(form).get("required") or ()
    return not _is_object(form) or (isinstance(said, dict) and all(name in said for name in needed))


def _begins(text: str, form: Mapping[str, Any]) -> bool:
    return not text or not _is_object(form) or text.startswith("{")


def _is_object(form: Mapping[str, Any]) -> bool:
    return form["type"] == "json_object" or _schema(form).get("type") == "object"


def _schema(form: Mapping[str, Any]) -> Mapping[str, Any]:
    return (form.get("json_schema") or {}).get("schema") or {}
