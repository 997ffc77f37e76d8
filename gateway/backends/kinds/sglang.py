"""Describe SGLang 0.5.23, from srt/entrypoints/openai/protocol.py."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gateway.backends.field_rules import LOCAL, UNENFORCED, RenamedRule, TranslatedRule
from gateway.backends.kind import FORMAT, Kind, parts_passed
from gateway.backends.kind_row import DiscoverySigns, KindAdvice, KindEndpoint, KindRow, MetadataQueries, endpoints_at
from gateway.backends.model_metadata import LISTED_MODELS
from gateway.backends.services import (
    PROMPT_FIELDS,
    RERANK,
    BackendServices,
    CompletionsSupport,
    for_completions,
    same_names,
)
from gateway.request import Request


def _detailed_at_most(part: Mapping[str, Any], _: Request) -> Mapping[str, Any]:
    """Replace `original` by `high`, as SGLang rejects `original` with 400."""
    image = part["image_url"]
    return {**part, "image_url": {**image, "detail": "high"}} if image.get("detail") == "original" else part


def _as_audio_url(part: Mapping[str, Any], _: Request) -> Mapping[str, Any]:
    audio = part["input_audio"]
    return {"type": "audio_url", "audio_url": {"url": f"data:audio/{audio['format']};base64,{audio['data']}"}}


# From the documentation of its tool parsers.
_TOOL_PARSERS = MappingProxyType(
    {
        "deepseek_v3": "deepseekv3",
        "deepseek_v31": "deepseekv31",
        "dsml_v32": "deepseekv32",
        "glm45_xml": "glm",
        "glm47_xml": "glm",
        "harmony": "gpt-oss",
        "hermes_json": "qwen",
        "kimi_k2": "kimi_k2",
        "llama3_json": "llama3",
        "llama4_pythonic": "pythonic",
        "mistral": "mistral",
        "pythonic": "pythonic",
        "qwen_xml": "qwen3_coder",
        "step3": "step3",
    }
)


KIND = Kind(
    fields=MappingProxyType(
        {
            **LOCAL,
            "max_tokens": RenamedRule("max_completion_tokens"),
            "messages": TranslatedRule("roles, parts, past reasoning; names are dropped"),
            "response_format": FORMAT,
        }
    ),
    extensions=frozenset(
        ("cache_salt", "chat_template_kwargs", "continue_final_message", "custom_logit_processor", "custom_params",
         "ebnf", "extra_key", "ignore_eos", "images_config", "input_ids", "lora_path", "max_dynamic_patch",
         "min_dynamic_patch", "min_p", "min_tokens", "mm_processor_kwargs", "no_stop_trim", "priority", "regex",
         "repetition_penalty", "return_cached_tokens_details", "return_hidden_states", "return_meta_info",
         "return_prompt_token_ids", "return_routed_experts", "return_token_ids", "rid", "separate_reasoning",
         "session_id", "session_params", "skip_special_tokens", "stop_regex", "stop_token_ids", "stream_reasoning",
         "task", "top_k", "use_audio_in_video")
    ),
    raw=MappingProxyType({"skip_special_tokens": False}),
    names=False,
    parts=parts_passed(
        "audio_url", "thinking", "tool_reference", "video_url",
        image_url=TranslatedRule("`detail: original` as `high`", _detailed_at_most),
        input_audio=TranslatedRule("`audio_url`", _as_audio_url),
    ),
    fetches=True,
    program="`sglang.launch_server`",
)  # fmt: skip
ROW = KindRow(
    position=5,
    kind=KIND,
    services=BackendServices(
        completions=CompletionsSupport(for_completions(KIND, best_of=UNENFORCED)),
        embedding_objects=frozenset(("image", "text", "video")),
        rerank=RERANK,
        tokenize=same_names(*PROMPT_FIELDS),
    ),
    endpoints=endpoints_at(
        "/v1/audio/transcriptions", "/v1/audio/speech", "/v1/images/generations", "/v1/images/edits", "/v1/classify",
        others={
            "/v1/score": KindEndpoint(
                "/v1/score",
                MappingProxyType({"text_1": "query", "text_2": "items", "queries": "query", "documents": "items"}),
            )
        },
    ),
    metadata=MetadataQueries(models=(LISTED_MODELS,)),
    signs=DiscoverySigns(port=30000, owner="sglang", path="/get_server_info"),
    advice=KindAdvice(
        texts={
            "calls": "--tool-call-parser {tools}",
            "thoughts": "--reasoning-parser with SGLang's name of the family",
            "no_thoughts": "no --reasoning-parser for a model that does not think",
            "window": "--context-length N",
        },
        tool_parsers=_TOOL_PARSERS,
    ),
)  # fmt: skip
