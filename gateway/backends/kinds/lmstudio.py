"""Describe LM Studio 0.4, from its documentation and from reports of its users."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gateway.backends.field_rules import ALONE, DROPPED, LOCAL, ONE_CHOICE, UNENFORCED, RenamedRule, TranslatedRule
from gateway.backends.kind import LEFT_OUT, Kind, parts_passed
from gateway.backends.kind_row import DiscoverySigns, KindAdvice, KindRow, MetadataQueries
from gateway.backends.model_metadata import (
    LOADED_SECONDS,
    MetadataByModel,
    MetadataQuery,
    ModelMetadata,
    context_length_of_entry,
    named_entries,
)
from gateway.backends.services import ECHOED_HERE, BackendServices, CompletionsSupport, for_completions
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


_ABILITIES = {"vlm": "vision", "embeddings": "embeddings", "tool_use": "tools"}


def _models(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    return {
        entry["id"]: ModelMetadata(context_length_of_entry(entry), _abilities(entry))
        for entry in named_entries(data, "data")
    }


def _abilities(entry: Mapping[str, Any]) -> frozenset[str]:
    words = [entry.get("type"), *(entry.get("capabilities") or ())]
    return frozenset(_ABILITIES[word] for word in words if word in _ABILITIES)


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
ROW = KindRow(
    position=4,
    kind=KIND,
    services=BackendServices(
        completions=CompletionsSupport(
            for_completions(KIND, best_of=UNENFORCED, echo=ECHOED_HERE, logprobs=DROPPED, suffix=DROPPED),
            several=False,
        )
    ),
    metadata=MetadataQueries(models=(MetadataQuery("GET", "/api/v0/models", _models, seconds=LOADED_SECONDS),)),
    signs=DiscoverySigns(port=1234, owner="organization_owner", path="/api/v0/models"),
    advice=KindAdvice(
        texts={
            "calls": "use a model that LM Studio lists as trained for tools",
            "thoughts": "turn on the setting that puts thoughts into reasoning_content",
            "window": "lms load --context-length N",
        }
    ),
)
