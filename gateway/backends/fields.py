"""The fields of a request as a kind of server takes them, by its table (verdicts.py, extensions.py)."""

from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import Any, Literal

from gateway.backends import Kind
from gateway.backends.extensions import field_rule
from gateway.backends.verdicts import (
    DroppedRule,
    EmulatedRule,
    ExpandedRule,
    FieldRule,
    FieldTranslator,
    NoEffectRule,
    PassedRule,
    RenamedRule,
    TranslatedRule,
    UnenforcedRule,
)
from gateway.ledger import Warnings
from gateway.request import Request

# Of what means the same: it is sent; the client has said it itself, in the server's own words; the kind has no word.
_Outcome = Literal["said", "given", "lost"]
_LIMITS = ("max_completion_tokens", "max_tokens")
_APART = frozenset((*_LIMITS, "stream_options"))
_MOST_STOPS = 4  # that the API allows; servers may take more
# What says no more than its absence: nothing is lost with it.
_DEFAULTS = MappingProxyType(
    {
        "logprobs": False,
        "presence_penalty": 0,
        "response_format": {"type": "text"},
        "top_logprobs": 0,
        "verbosity": "medium",
    }
)


def request_fields(request: Request, kind: Kind, known: Set[str], ledger: Warnings) -> dict[str, Any]:
    """Return all fields but the model, the messages, the tools and their choice.  `known` are the fields of the API.

    What is not sent as it came is in the ledger.
    """
    taken = _BodyFields(request, kind, known, ledger)
    if request.max_tokens is not None:
        taken.limit(request.max_tokens)
    for name, value in request.rest.items():
        if name not in _APART and (name != "parallel_tool_calls" or request.callable_tools):
            taken.put(name, value)
    if request.n != 1:
        taken.put("n", request.n)
    if request.stream:
        options = request.rest.get("stream_options") or {}
        options = {name: value for name, value in options.items() if name != "include_obfuscation"}
        taken.put("stream_options", {**options, "include_usage": True})
    return taken.said


class _BodyFields:
    """The fields of the body for the server.  Fields in the server's own words win over their synonyms."""

    def __init__(self, request: Request, kind: Kind, known: Set[str], ledger: Warnings) -> None:
        self._request, self._kind, self._known, self._ledger = request, kind, known, ledger
        self.said: dict[str, Any] = {}

    def limit(self, tokens: int) -> None:
        """Under the kind's name, else the client's own."""
        newer, older = _LIMITS
        name = older if older in self._request.rest and newer not in self._request.rest else newer
        found = field_rule(name, self._kind)
        self.said[found.to if isinstance(found, RenamedRule) else name] = tokens

    def put(self, name: str, value: Any) -> None:  # noqa: ANN401 - decoded JSON
        match field_rule(name, self._kind):
            case PassedRule():
                if name in self.said:
                    self._direct(name, value)
                else:
                    self.said[name] = value
                if name not in self._known or (name == "stop" and isinstance(value, list) and len(value) > _MOST_STOPS):
                    self._ledger.note("forwarded", name)
            case RenamedRule(to=to):  # never what the API knows, of which only limits have other names
                self._ledger.note("renamed" if self._derived(to, value) == "said" else "dropped", name)
            case TranslatedRule(into=into):
                self._translate(name, value, into)
            case ExpandedRule() if isinstance(value, dict):
                for member, inner in value.items():
                    self.put(f"{name}.{member}", inner)
            case lost:
                self._lose(name, value, lost)

    def _translate(self, name: str, value: Any, into: FieldTranslator | None) -> None:  # noqa: ANN401 - decoded JSON
        made = into(value, self._request) if into else {name: value}
        if made == {name: value}:
            self._direct(name, made[name])
            return
        outcomes = self._outcomes(name, made)
        if "said" not in outcomes:
            self._lose(name, value, DroppedRule())
            return
        if not (name == "response_format" and self._request.guided):  # which is none of the client's
            self._ledger.note("translated", name)
        if "lost" in outcomes:
            self._ledger.note("dropped", name)

    def _outcomes(self, name: str, made: Mapping[str, Any]) -> set[_Outcome]:
        """Of all that a field was made into; its own name is its own."""
        return {self._place(to, one) if to == name else self._derived(to, one) for to, one in made.items()}

    def _derived(self, name: str, value: Any) -> _Outcome:  # noqa: ANN401 - decoded JSON
        """Say what the client has said in other words."""
        if self._given(name):
            return "given"
        match field_rule(name, self._kind):
            case PassedRule():
                return self._place(name, value)
            case RenamedRule(to=to):
                return self._derived(to, value)
            case TranslatedRule(into=into):
                outcomes = self._outcomes(name, into(value, self._request) if into else {name: value})
                return "said" if "said" in outcomes else "lost"
        return "lost"

    def _given(self, path: str) -> bool:
        name, _, member = path.partition(".")
        for said in (self._request.rest, self.said):
            inner = said.get(name)
            if inner is not None and (not member or (isinstance(inner, dict) and member in inner)):
                return True
        return False

    def _direct(self, name: str, value: Any) -> None:  # noqa: ANN401 - decoded JSON
        there = self.said.get(name)
        self.said[name] = {**there, **value} if isinstance(there, dict) and isinstance(value, dict) else value

    def _place(self, path: str, value: Any) -> _Outcome:  # noqa: ANN401 - decoded JSON
        name, _, member = path.partition(".")
        self._direct(name, {member: value} if member else value)
        return "said"

    def _lose(self, name: str, value: Any, found: FieldRule) -> None:  # noqa: ANN401 - decoded JSON
        match found:
            case NoEffectRule():
                return
            case EmulatedRule() if name in self._known:
                return
        if name not in _DEFAULTS or value != _DEFAULTS[name]:
            self._ledger.note("unenforced" if isinstance(found, UnenforcedRule) else "dropped", name)
