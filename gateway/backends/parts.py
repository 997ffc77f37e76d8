"""The parts of messages as a kind of server takes them, by its table (`spec.md` A2)."""

from collections.abc import Mapping
from typing import Any

from gateway.backends import KINDS, Kind
from gateway.backends.verdicts import PASSED, REFUSED, FieldRule, RejectedRule, TranslatedRule
from gateway.errors import BadRequest
from gateway.ledger import Warnings, safe_name
from gateway.request import Message, Request

# Those of the API.  Of files there is only their text when a request gets here, and refused text is text.
API: Mapping[str, FieldRule] = {
    "text": PASSED,
    "refusal": TranslatedRule("`text`"),
    "image_url": PASSED,
    "input_audio": PASSED,
    "file": TranslatedRule("its text"),
}
PARTS = frozenset(API).union(*(kind.parts for kind in KINDS.values()))


def part_rule(type: str, kind: Kind) -> FieldRule:
    """Of any type, known or not."""
    if type in kind.parts:
        return kind.parts[type]
    if isinstance(API.get(type), TranslatedRule):
        return API[type]
    heard_of = type in PARTS or kind.forwards == "none"
    return REFUSED if heard_of and kind.forwards != "all" else PASSED


def convert_parts(request: Request, kind: Kind, ledger: Warnings) -> list[Message]:
    """The messages, with parts that the kind takes.  BadRequest for others: `messages[i].content[j].type`."""
    messages = [*request.messages]
    for i, message in enumerate(messages):
        if isinstance(content := message.get("content"), list):
            param = f"messages[{i}].content"
            parts = [_fit(part, f"{param}[{j}]", request, kind, ledger) for j, part in enumerate(content)]
            messages[i] = {**message, "content": parts}
    return messages


def _fit(part: dict[str, Any], param: str, request: Request, kind: Kind, ledger: Warnings) -> Mapping[str, Any]:
    type = part["type"]
    match part_rule(type, kind):
        case RejectedRule():
            message = f"This model's backend takes no parts of type '{safe_name(type)}'."
            raise BadRequest(message, code="unsupported_value", param=f"{param}.type")
        case TranslatedRule(into=into) if into and (made := into(part, request)) != part:
            ledger.note("translated", type)
            return made
    if type not in API:
        if not kind.fetches:
            _check_inline(part, param)
        ledger.note("forwarded", type)
    return part


def _check_inline(part: dict[str, Any], param: str) -> None:
    """BadRequest for what the server would fetch from wherever its machine can."""
    type = part["type"]
    match part.get(type):
        case {"url": str(url)} if url[:5].lower() != "data:":
            message = f"The server of this model is let fetch nothing: send what '{safe_name(type)}' is, as a data URL."
            raise BadRequest(message, code="unsupported_value", param=f"{param}.{type}.url")
