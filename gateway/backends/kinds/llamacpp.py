"""Describe llama.cpp b11549, from tools/server/server-schema.cpp and its parser of chat completions."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gateway.backends.field_rules import ALONE, AS_A_FORM, LOCAL, RenamedRule, TranslatedRule
from gateway.backends.gbnf import schema_to_gbnf
from gateway.backends.kind import FORMAT, Kind, TokenCounter, parts_passed
from gateway.request import Request


def _chances(wanted: object, request: Request) -> Mapping[str, Any]:
    """Request one candidate if the client sets no `top_logprobs`, as the server's default is 20."""
    alone = wanted is True and "top_logprobs" not in request.rest
    return {"logprobs": wanted, **({"top_logprobs": 1} if alone else {})}


def _at_least_one(tops: Any, _: Request) -> Mapping[str, Any]:  # noqa: ANN401 - decoded JSON
    return {"top_logprobs": max(tops, 1)}


def _with_switch(effort: object, _: Request) -> Mapping[str, Any]:
    """Turn the template's switch off as well for `none`.

    llama.cpp only passes the effort on to the template, and many templates know only the switch.
    """
    return {"reasoning_effort": effort} | ({"chat_template_kwargs.enable_thinking": False} if effort == "none" else {})


def _as_grammar(format: dict[str, Any], request: Request) -> Mapping[str, Any]:
    """Send the response format as a grammar, as llama.cpp ignores it with `--skip-chat-parsing`.

    A grammar would prevent optional tool calls, so it is left out if tools may be called.
    """
    if format["type"] == "text" or (request.callable_tools and not request.guided):
        return {}
    return {"grammar": schema_to_gbnf((format.get("json_schema") or {}).get("schema") or {"type": "object"})}


KIND = Kind(
    fields=MappingProxyType(
        {
            **LOCAL,
            "logprobs": TranslatedRule("with tools, the response is requested unstreamed", _chances),
            "max_completion_tokens": RenamedRule("max_tokens"),
            "response_format": FORMAT,
            "reasoning_effort": TranslatedRule("`none` also turns off the template's switch", _with_switch),
            "tool_choice": ALONE,
            "top_logprobs": TranslatedRule("at least 1", _at_least_one),
        }
    ),
    extensions=frozenset(
        ("adaptive_decay", "adaptive_target", "add_generation_prompt", "backend_sampling", "cache_prompt",
         "chat_template_kwargs", "continue_final_message", "dry_allowed_length", "dry_base", "dry_multiplier",
         "dry_penalty_last_n", "dry_sequence_breakers", "dynatemp_exponent", "dynatemp_range", "echo", "grammar",
         "grammar_lazy", "grammar_triggers", "id_slot", "ignore_eos", "json_schema", "lora", "min_keep", "min_p",
         "mirostat", "mirostat_eta", "mirostat_tau", "n_cache_reuse", "n_discard", "n_indent", "n_keep", "n_probs",
         "parse_tool_calls", "post_sampling_probs", "preserved_tokens", "reasoning_budget_message",
         "reasoning_control", "reasoning_format", "repeat_last_n", "repeat_penalty", "response_fields",
         "return_progress", "return_tokens", "samplers", "sse_ping_interval", "t_max_predict_ms",
         "thinking_budget_tokens", "timings_per_token", "top_k", "top_n_sigma", "typical_p", "verbose",
         "xtc_probability", "xtc_threshold")
    ),
    takes_openings=True,
    parses=True,
    unparsed=MappingProxyType(
        {
            "response_format": TranslatedRule("`grammar`, omitted with tools", _as_grammar),
            "tool_choice": AS_A_FORM,
        }
    ),
    continues=True,
    echoes=True,
    counter=TokenCounter("/v1/chat/completions/input_tokens", "input_tokens"),
    counts_one=True,
    chances_whole=True,
    parts=parts_passed("image_url", "input_audio", "input_video", "video_url"),
    program="`llama-server`",
)  # fmt: skip
