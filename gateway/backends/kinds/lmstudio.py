"""Describe LM Studio 0.4, from its documentation and from reports of its users."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gateway.backends.field_rules import ALONE, DROPPED, LOCAL, ONE_CHOICE, RenamedRule, TranslatedRule
from gateway.backends.kind import LEFT_OUT, Kind, parts_passed
from gateway.request import Request


def _at_most_high(effort: object, _: Request) -> Mapping[str, Any]:
    return {"reasoning_effort": {"minimal": "low", "xhigh": "high", "max": "high"}.get(str(effort), effort)}


def _as_schema(format: dict[str, Any], request: Request) -> Mapping[str, Any]:
    """Replace `json_object`, which LM Studio rejects with 400, by a schema.

    LM Studio has one grammar for a format and for a call, so the format is left out if a call is forced.
    """
    if request.is_tool_forced and not request.guided:
        return {}
    if format["type"] == "json_object":
        return {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "object", "schema": {"type": "object"}},
            }
        }
    return {"response_format": format}


KIND = Kind(
    fields=MappingProxyType(
        {
            **LOCAL,
            "logprobs": DROPPED,
            "max_completion_tokens": RenamedRule("max_tokens"),
            "n": ONE_CHOICE,
            "reasoning_effort": TranslatedRule("`minimal` as `low`, `xhigh` and `max` as `high`", _at_most_high),
            "response_format": TranslatedRule(f"`json_object` as a schema, {LEFT_OUT}", _as_schema),
            "tool_choice": ALONE,
            "top_logprobs": DROPPED,
        }
    ),
    extensions=frozenset(("chat_template_kwargs", "draft_model", "min_p", "repeat_penalty", "top_k", "ttl")),
    takes_openings=True,
    parses=True,
    parts=parts_passed("image_url"),
    program="`lms server`",
)
