"""Apply the operator's parameters of a model to a request: `models.NAME.defaults` and `models.NAME.overrides`.

A default applies if the client sent no value under any name of the field.  An override replaces the client's value,
with the warning `dropped:FIELD`.  Both merge objects, such as `chat_template_kwargs`, by member.
"""

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.api.chat import schema
from gateway.api.validation import ParamCheck, integer_between, number_between, object_
from gateway.backends import KINDS
from gateway.backends.extra_fields import EXTENSIONS, FORMS, field_rule, synonyms
from gateway.backends.field_rules import DROPPED, WITHOUT_EFFECT
from gateway.errors import BadRequest
from gateway.request import Request
from gateway.warnings import Warnings

_LIMIT = "max_tokens"
_LIMITS = (_LIMIT, *synonyms(_LIMIT))
# Fields of the API that an operator may set.  The others say what the client wants, or change the form of the response.
_SETTABLE = frozenset(
    ("frequency_penalty", "logit_bias", "max_tokens", "parallel_tool_calls", "presence_penalty", "reasoning_effort",
     "seed", "service_tier", "stop", "temperature", "top_p", "verbosity")
)  # fmt: skip
_REFUSED = (schema.KNOWN - _SETTABLE) | FORMS | {"add_generation_prompt", "continue_final_message", "echo", "input_ids"}
_EXTENSION_CHECKS: Mapping[str, ParamCheck] = MappingProxyType(
    {
        **dict.fromkeys(("n_ctx", "num_ctx"), integer_between(1)),
        **dict.fromkeys(("num_batch", "num_gpu", "num_predict", "num_thread", "top_k"), integer_between(-1)),
        **dict.fromkeys(("min_p", "repeat_penalty", "repetition_penalty", "typical_p"), number_between(0, 1000)),
        **dict.fromkeys(("chat_template_kwargs", "options"), object_),
    }
)
_CHECKS = {**schema.OPTIONAL, **_EXTENSION_CHECKS}
_NAMES = tuple(sorted(_SETTABLE | (EXTENSIONS - _REFUSED)))
_ALIKE = 0.8  # an unknown name this similar to a known one is a mistake
_THOUGHT = frozenset(("enable_thinking", "reasoning", "reasoning_effort", "think", "thinking"))  # all say one thing
# Objects whose members are fields under another name; a proxy of LiteLLM puts `extra_body` into the body.
_CONTAINERS = ("chat_template_kwargs", "extra_body", "options")


def parameter_faults(parameters: Mapping[str, Any], kinds: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the fault of each parameter that no model at backends of these kinds can have."""
    for name, value in parameters.items():
        if fault := _fault(name, value, kinds):
            yield name, fault


def _fault(name: str, value: object, kinds: Collection[str]) -> str:
    if name in _REFUSED:
        hint = f"write {_LIMIT}" if name == "max_completion_tokens" else "only the client can set it"
        return f"is no parameter of a model; {hint}"
    known = name in _NAMES
    near = [] if known else get_close_matches(name, _NAMES, 1, _ALIKE)
    if near:
        return f"unknown parameter; did you mean {near[0]!r}?"
    rules = [field_rule(name, KINDS[kind]) for kind in kinds]
    if rules and all(rule in (DROPPED, WITHOUT_EFFECT) for rule in rules):
        what = "does not support it" if known else "does not know it"
        return f"the model's backend (kind {', '.join(sorted(set(kinds)))}) {what}"
    if value is None:
        return "has no value"
    try:
        _CHECKS.get(name, _any_value)(value, name)
    except BadRequest as error:
        text = str(error).removesuffix(".")
        return text[:1].lower() + text[1:]
    return ""


def _any_value(_: object, __: str) -> None:
    """Accept a value that only the server can check."""


class ModelParameters(Struct, frozen=True):
    """The parameters of a model: `defaults` and `overrides`, as in the configuration."""

    defaults: Mapping[str, Any]
    overrides: Mapping[str, Any]

    def apply(
        self, request: Request, fields: Collection[str], limit_name: str, ledger: Warnings
    ) -> tuple[Request, frozenset[str]]:
        """Return the request with the parameters, and the names of the fields that the client has not set.

        fields: those of the client's API.  A field of chat completions that it lacks is left out.
        limit_name: the client's name of the token limit.
        ledger: receives a warning for each value of the client that an override replaces.
        """
        made = _AppliedParameters(request, limit_name, ledger)
        for parameters, add in ((self.defaults, made.add_default), (self.overrides, made.add_override)):
            for name, value in parameters.items():
                if name in fields or name not in schema.KNOWN:
                    add(name, value)
        return made.result()


class _AppliedParameters:
    """The fields of a request, to which parameters are added one by one."""

    def __init__(self, request: Request, limit_name: str, ledger: Warnings) -> None:
        self._request, self._limit_name, self._ledger = request, limit_name, ledger
        self._rest, self._limit = {**request.rest}, request.max_tokens
        self._names: set[str] = set()

    def result(self) -> tuple[Request, frozenset[str]]:
        """Return the request, and the names of the fields that only the operator has set."""
        names = frozenset(self._names)
        own = self._request.own_fields | names
        return replace(self._request, rest=self._rest, max_tokens=self._limit, own_fields=own), names

    def add_default(self, name: str, value: Any) -> None:  # noqa: ANN401 - any value of YAML
        """Set a field that the client has not set."""
        client, given = self._request.rest, self._request.rest.get(name)
        if name == _LIMIT:
            if self._limit is None:
                self._set_limit(value)
        elif isinstance(value, dict) and (given is None or isinstance(given, dict)):
            free = {member: inner for member, inner in value.items() if not _given(member, client)}
            self._set(name, {**free, **(given or {})})
        elif not _given(name, client):
            self._set(name, value)

    def add_override(self, name: str, value: Any) -> None:  # noqa: ANN401 - any value of YAML
        """Set a field, and report the client's value if it was another."""
        if name in _LIMITS:
            self._drop_limit(value)
        if name == _LIMIT:
            self._set_limit(value)
            return
        given: Any = self._rest.get(name)
        merges = isinstance(value, dict) and isinstance(given, dict)
        for member in value.keys() & given.keys() if merges else ():
            self._report(name, member, given[member], value[member])
        for container, field in _given(name, self._rest):
            if not merges or (container, field) != ("", name):
                self._report(container, field, self._taken(container, field), value)
        self._set(name, {**given, **value} if merges else value)

    def _drop_limit(self, value: int) -> None:
        """Remove the client's token limit: that of its API, and those under the names of servers."""
        if self._request.max_tokens not in (None, value):
            self._ledger.add("dropped", self._limit_name)
        self._limit = None
        for container, field in _given(_LIMIT, self._rest):
            if container or field not in schema.KNOWN:
                self._report(container, field, self._taken(container, field), value)

    def _set(self, name: str, value: Any) -> None:  # noqa: ANN401 - any value of YAML
        self._rest[name] = value
        if name not in self._request.rest:
            self._names.add(name)

    def _taken(self, container: str, field: str) -> object:
        """Remove a field, and return its value."""
        if not container:
            return self._rest.pop(field)
        members = {**self._rest[container]}
        value = members.pop(field)
        self._rest[container] = members
        return value

    def _set_limit(self, value: int) -> None:
        self._limit = value
        self._names |= {_LIMIT, self._limit_name}

    def _report(self, container: str, field: str, given: object, value: object) -> None:
        if given != value and (container or field) in self._request.rest:
            self._ledger.add("dropped", f"{container}.{field}".removeprefix("."))


def _given(name: str, rest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the places where fields set a parameter, under any of its names: an object or "", and the name in it.

    A name may be in any letters: a server in Go ignores their case.
    """
    names = {one.casefold() for one in (_THOUGHT if name in _THOUGHT else (name, *synonyms(name)))}
    objects = [(field, one) for field, one in rest.items() if isinstance(one, dict) and field.casefold() in _CONTAINERS]
    return [
        (container, field)
        for container, members in (("", rest), *objects)
        for field in members
        if field.casefold() in names
    ]
