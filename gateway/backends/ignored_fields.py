"""Adapt a kind to a server that accepts fields and ignores them.

The gateway then drops such a field with a warning, or emulates it.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gateway.backends.field_rules import AS_A_FORM, CUT_HERE, CUT_OFF, DROPPED, IN_WORDS, ONE_CHOICE, FieldRule
from gateway.backends.kind import Kind
from gateway.backends.services import BackendServices

# The rules for an ignored field, and for the fields that mean nothing without it.
IGNORED: Mapping[str, Mapping[str, FieldRule]] = MappingProxyType(
    {
        "frequency_penalty": {"frequency_penalty": DROPPED},
        "logit_bias": {"logit_bias": DROPPED},
        "logprobs": {"logprobs": DROPPED, "top_logprobs": DROPPED},
        "n": {"n": ONE_CHOICE},
        "parallel_tool_calls": {"parallel_tool_calls": CUT_HERE},
        "presence_penalty": {"presence_penalty": DROPPED},
        "reasoning_effort": {"reasoning_effort": DROPPED},
        "response_format": {"response_format": IN_WORDS},
        "seed": {"seed": DROPPED},
        "stop": {"stop": CUT_OFF},
        "tool_choice": {"tool_choice": AS_A_FORM},
        "top_logprobs": {"top_logprobs": DROPPED},
    }
)
# The other members of the kind that change when a field is ignored.
_OTHERWISE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"n": {"counts_one": False}, "stop": {"keeps_stops": True}}
)


def with_ignored_fields(kind: Kind, names: Collection[str]) -> Kind:
    """Return the kind of a server that ignores these fields."""
    fields = {**kind.fields, **{field: verdict for name in names for field, verdict in IGNORED[name].items()}}
    unparsed = {field: verdict for field, verdict in kind.unparsed.items() if field not in names}
    otherwise = {what: value for name in names for what, value in _OTHERWISE.get(name, {}).items()}
    return replace(kind, fields=MappingProxyType(fields), unparsed=MappingProxyType(unparsed), **otherwise)


def is_known_to_ignore(kind: Kind, name: str) -> bool:
    """Return True if the kind's own rules already treat a field as ignored."""
    return all(kind.fields[field] == verdict for field, verdict in IGNORED[name].items())


def services_with_ignored_fields(does: BackendServices, names: Collection[str]) -> BackendServices:
    """Return the APIs besides chat of a server that ignores these fields.

    If it ignores `n`, it gets one text per request.
    """
    completions = does.completions
    if not completions:
        return does
    several, kind = completions.several and "n" not in names, with_ignored_fields(completions.kind, names)
    return replace(does, completions=replace(completions, kind=kind, several=several))
