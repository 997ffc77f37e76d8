"""Describe Anthropic's Messages API, version 2023-06-01, from the types of its SDK 2.14.

backends/anthropic/ puts the fields in their places in the body.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gateway.backends.field_rules import DROPPED, LOCAL, ONE_CHOICE, PASSED, WITHOUT_EFFECT, RenamedRule, TranslatedRule
from gateway.backends.kind import Kind, TokenCounter, parts_passed
from gateway.backends.kind_row import KindRow, MetadataQueries
from gateway.backends.model_metadata import (
    MetadataByModel,
    MetadataQuery,
    ModelMetadata,
    context_length_of_entry,
    named_entries,
)
from gateway.backends.services import BackendServices
from gateway.request import Request


def _switched(on: object, _: Request) -> Mapping[str, Any]:
    return {"thinking": {"type": "enabled" if on else "disabled"}}


def _budgeted(tokens: object, _: Request) -> Mapping[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


_ABILITIES = {"image_input": "vision", "thinking": "reasoning"}  # further capabilities are of no use here


def _models(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    return {
        entry["id"]: ModelMetadata(context_length_of_entry(entry), _supported(entry.get("capabilities")))
        for entry in named_entries(data, "data")
    }


def _supported(capabilities: Any) -> frozenset[str] | None:  # noqa: ANN401 - decoded JSON
    """Return the abilities of a model, which all call tools; None if the server does not list them."""
    if not isinstance(capabilities, dict):
        return None
    can = {name for word, name in _ABILITIES.items() if (capabilities.get(word) or {}).get("supported") is True}
    return frozenset(("tools", *can))


KIND = Kind(
    fields=MappingProxyType(
        {
            **LOCAL,
            **dict.fromkeys(
                ("frequency_penalty", "logit_bias", "logprobs", "presence_penalty", "seed", "top_logprobs"), DROPPED
            ),
            "add_generation_prompt": WITHOUT_EFFECT,
            "chat_template_kwargs.enable_thinking": TranslatedRule("`thinking`", _switched),
            "continue_final_message": PASSED,
            "enable_thinking": TranslatedRule("`thinking`", _switched),
            "max_completion_tokens": RenamedRule("max_tokens"),
            "messages": TranslatedRule("blocks; names and unsigned past reasoning are dropped"),
            "n": ONE_CHOICE,
            "parallel_tool_calls": TranslatedRule("`tool_choice.disable_parallel_tool_use`"),
            "reasoning_effort": TranslatedRule("`thinking`, `output_config.effort`"),
            "response_format": TranslatedRule("`output_config.format`; `json_object` as an instruction"),
            "stop": TranslatedRule("`stop_sequences`"),
            "stream_options": WITHOUT_EFFECT,  # the API always counts
            "temperature": TranslatedRule("at most 1; without `top_p`; not beside `thinking`, nor from Claude 4.7 on"),
            "thinking_token_budget": TranslatedRule("`thinking.budget_tokens`", _budgeted),
            "tool_choice": TranslatedRule("`auto`, `any`, `tool`, `none`"),
            "tools": TranslatedRule("as `input_schema`, without alternatives at its root; custom tools as functions"),
        }
    ),
    extensions=frozenset(
        ("cache_control", "container", "context_management", "inference_geo", "mcp_servers", "output_config", "speed",
         "thinking", "top_k")
    ),
    forwards="none",
    dialect="anthropic",
    names=False,
    parses=True,
    counter=TokenCounter(
        "/v1/messages/count_tokens",
        "input_tokens",
        frozenset(
            ("cache_control", "context_management", "mcp_servers", "messages", "model", "output_config", "speed",
             "system", "thinking", "tool_choice", "tools")
        ),
    ),
    parts=parts_passed("image_url"),
    lists=True,
    fetches=True,
    program="a server of the Messages API",
)  # fmt: skip
ROW = KindRow(
    position=7,
    kind=KIND,
    services=BackendServices(completions=None, embeddings=None),
    metadata=MetadataQueries(models=(MetadataQuery("GET", "/v1/models", _models, lambda _, __: {"limit": 1000}),)),
)
