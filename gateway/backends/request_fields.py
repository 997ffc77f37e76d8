"""Apply a kind's rules to the fields of a request and to the parts of its messages (`spec.md` A2).

The rules are in field_rules.py and extra_fields.py.
"""

from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import Any, Literal

from gateway.backends import KINDS, Kind
from gateway.backends.extra_fields import field_rule
from gateway.backends.field_rules import (
    PASSED,
    REFUSED,
    DroppedRule,
    EmulatedRule,
    ExpandedRule,
    FieldRule,
    FieldTranslator,
    NoEffectRule,
    PassedRule,
    RejectedRule,
    RenamedRule,
    TranslatedRule,
    UnenforcedRule,
)
from gateway.errors import BadRequest
from gateway.request import Message, Request, tool_reference_text
from gateway.warnings import Warnings, safe_name

# The outcome of a translated field: it is sent; the client set the server's own field; the kind has no equivalent.
_Outcome = Literal["sent", "given", "lost"]
_LIMITS = ("max_completion_tokens", "max_tokens")
_SET_SEPARATELY = frozenset((*_LIMITS, "stream_options"))
_MAX_STOPS = 4  # the limit of the API; servers may accept more
# Values that mean the same as an absent field, so that leaving them out needs no warning.
_DEFAULTS = MappingProxyType(
    {
        "frequency_penalty": 0,
        "logit_bias": {},
        "logprobs": False,
        "presence_penalty": 0,
        "response_format": {"type": "text"},
        "top_logprobs": 0,
        "verbosity": "medium",
    }
)


def _reference_text(part: Any, _: Request) -> Mapping[str, Any]:  # noqa: ANN401 - decoded JSON
    return {"type": "text", "text": tool_reference_text(str(part.get("name") or ""))}


# The part types of the API, and references to tools.  Earlier steps have replaced files by their text; a refusal
# becomes text.
API: Mapping[str, FieldRule] = {
    "text": PASSED,
    "refusal": TranslatedRule("`text`"),
    "image_url": PASSED,
    "input_audio": PASSED,
    "file": TranslatedRule("its text"),
    "tool_reference": TranslatedRule("a text", _reference_text),
}
PARTS = frozenset(API).union(*(kind.parts for kind in KINDS.values()))


def request_fields(request: Request, kind: Kind, known: Set[str], ledger: Warnings) -> dict[str, Any]:
    """Return all body fields except the model, the messages, the tools and the tool choice.

    known: the fields of the API.
    ledger: receives a warning for each field that is not sent unchanged.
    """
    taken = _BodyFields(request, kind, known, ledger)
    if request.max_tokens is not None:
        taken.set_token_limit(request.max_tokens)
    for name, value in request.rest.items():
        if name not in _SET_SEPARATELY and (name != "parallel_tool_calls" or request.callable_tools):
            taken.add_field(name, value)
    if request.n != 1:
        taken.add_field("n", request.n)
    if request.stream:
        options = request.rest.get("stream_options") or {}
        options = {name: value for name, value in options.items() if name != "include_obfuscation"}
        taken.add_field("stream_options", {**options, "include_usage": True})
    return taken.fields


class _BodyFields:
    """The fields of the upstream body.

    A field that the client set under the server's own name wins over its synonyms.
    """

    def __init__(self, request: Request, kind: Kind, known: Set[str], ledger: Warnings) -> None:
        self._request, self._kind, self._ledger = request, kind, ledger
        self._known = known | request.own_fields if request.own_fields else known
        self.fields: dict[str, Any] = {}

    def set_token_limit(self, tokens: int) -> None:
        """Set the limit under the kind's name for it, else under the client's."""
        newer, older = _LIMITS
        name = older if older in self._request.rest and newer not in self._request.rest else newer
        found = field_rule(name, self._kind)
        self.fields[found.to if isinstance(found, RenamedRule) else name] = tokens

    def add_field(self, name: str, value: Any) -> None:  # noqa: ANN401 - decoded JSON
        """Add a field by the kind's rule, with a warning if it is not sent unchanged."""
        rule = field_rule(name, self._kind)
        if type(rule) is PassedRule:  # not by `match`, which takes several times as long
            if name in self.fields:
                self._direct(name, value)
            else:
                self.fields[name] = value
            if name not in self._known or (name == "stop" and isinstance(value, list) and len(value) > _MAX_STOPS):
                self._ledger.add("forwarded", name)
        elif type(rule) is TranslatedRule:
            self._translate(name, value, rule.into)
        elif type(rule) is RenamedRule:  # never a field of the API: only token limits have other names there
            self._ledger.add("renamed" if self._derived(rule.to, value) == "sent" else "dropped", name)
        elif type(rule) is ExpandedRule and isinstance(value, dict):
            for member, inner in value.items():
                self.add_field(f"{name}.{member}", inner)
        else:
            self._lose(name, value, rule)

    def _translate(self, name: str, value: Any, into: FieldTranslator | None) -> None:  # noqa: ANN401 - decoded JSON
        made = into(value, self._request) if into else {name: value}
        if made == {name: value}:
            self._direct(name, made[name])
            return
        outcomes = self._outcomes(name, made)
        if "sent" not in outcomes:
            self._lose(name, value, DroppedRule())
            return
        if not (name == "response_format" and self._request.guided):  # the gateway, not the client, set this format
            self._ledger.add("translated", name)
        if "lost" in outcomes:
            self._ledger.add("dropped", name)

    def _outcomes(self, name: str, made: Mapping[str, Any]) -> set[_Outcome]:
        """Set all fields that a field was translated to, and return the outcomes."""
        return {self._place(to, one) if to == name else self._derived(to, one) for to, one in made.items()}

    def _derived(self, name: str, value: Any) -> _Outcome:  # noqa: ANN401 - decoded JSON
        """Set the equivalent of a field that the client sent under another name."""
        if self._given(name):
            return "given"
        match field_rule(name, self._kind):
            case PassedRule():
                return self._place(name, value)
            case RenamedRule(to=to):
                return self._derived(to, value)
            case TranslatedRule(into=into):
                outcomes = self._outcomes(name, into(value, self._request) if into else {name: value})
                return "sent" if "sent" in outcomes else "lost"
        return "lost"

    def _given(self, path: str) -> bool:
        name, _, member = path.partition(".")
        for data in (self._request.rest, self.fields):
            inner = data.get(name)
            if inner is not None and (not member or (isinstance(inner, dict) and member in inner)):
                return True
        return False

    def _direct(self, name: str, value: Any) -> None:  # noqa: ANN401 - decoded JSON
        there = self.fields.get(name)
        self.fields[name] = {**there, **value} if isinstance(there, dict) and isinstance(value, dict) else value

    def _place(self, path: str, value: Any) -> _Outcome:  # noqa: ANN401 - decoded JSON
        name, _, member = path.partition(".")
        self._direct(name, {member: value} if member else value)
        return "sent"

    def _lose(self, name: str, value: Any, found: FieldRule) -> None:  # noqa: ANN401 - decoded JSON
        match found:
            case NoEffectRule():
                return
            case EmulatedRule() if name in self._known:
                return
        if name not in _DEFAULTS or value != _DEFAULTS[name]:
            self._ledger.add("unenforced" if isinstance(found, UnenforcedRule) else "dropped", name)


def part_rule(type: str, kind: Kind) -> FieldRule:
    """Return the rule of a kind for a part type, known or unknown."""
    if type in kind.parts:
        return kind.parts[type]
    if isinstance(API.get(type), TranslatedRule):
        return API[type]
    is_known = type in PARTS or kind.forwards == "none"
    return REFUSED if is_known and kind.forwards != "all" else PASSED


def convert_parts(request: Request, kind: Kind, ledger: Warnings) -> list[Message]:
    """Return the messages with parts that the kind accepts.

    Raises BadRequest for other parts, with the param `messages[i].content[j].type`.
    """
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
            message = f"This model's backend does not support content parts of type '{safe_name(type)}'."
            raise BadRequest(message, code="unsupported_value", param=f"{param}.type")
        case TranslatedRule(into=into) if into and (made := into(part, request)) != part:
            ledger.add("translated", type)
            return made
    if type not in API:
        if not kind.fetches:
            _check_inline(part, param)
        ledger.add("forwarded", type)
    return part


def _check_inline(part: dict[str, Any], param: str) -> None:
    """Raise BadRequest for a URL that the server would fetch from its own network."""
    type = part["type"]
    match part.get(type):
        case {"url": str(url)} if url[:5].lower() != "data:":
            message = (
                f"This model's backend must not fetch URLs. Send the content of '{safe_name(type)}' as a data URL."
            )
            raise BadRequest(message, code="unsupported_value", param=f"{param}.{type}.url")
