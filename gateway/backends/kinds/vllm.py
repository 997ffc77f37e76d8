"""Describe vLLM 0.33, from entrypoints/openai/chat_completion/protocol.py."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gateway.backends.field_rules import LOCAL, UNENFORCED, RenamedRule
from gateway.backends.kind import FORMAT, Kind, TokenCounter, parts_passed
from gateway.backends.kind_row import DiscoverySigns, KindAdvice, KindEndpoint, KindRow, MetadataQueries, endpoints_at
from gateway.backends.model_metadata import (
    LISTED_MODELS,
    MetadataByModel,
    MetadataQuery,
    ModelMetadata,
    TemplateSettings,
    opened_prompt,
    optional_text,
)
from gateway.backends.services import (
    PROMPT_FIELDS,
    RERANK,
    BackendServices,
    CompletionsSupport,
    for_completions,
    same_names,
)

_MARKS = str.maketrans({"Ċ": "\n", "Ġ": " ", "▁": " "})  # line ends and spaces in token strings
# vllm/tool_parsers, vllm/reasoning
_TOOL_PARSERS = (
     "apertus", "cohere_command3", "cohere_command4", "deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4",
     "deepseek_v41", "dots", "ernie45", "functiongemma", "gemma4", "gigachat3", "glm45", "glm47", "granite",
     "granite-20b-fc", "granite4", "hermes", "hunyuan_a13b", "hy_v3", "hy_v4", "inkling", "internlm", "jamba",
     "k2_horizon", "kimi_k2", "kimi_k3", "lfm2", "ling3", "llama3_json", "llama4_pythonic", "longcat", "mimo",
     "minicpm5", "minimax_m2", "minimax_m3", "mistral", "muse_glimmer", "olmo3", "openai", "phi4_mini_json", "plamo3",
     "poolside_v1", "pythonic", "qwen3_coder", "seed_oss", "step3", "step3p5", "xlam"
)  # fmt: skip
_REASONING_PARSERS = (
     "cohere_command3", "cohere_command4", "deepseek_r1", "deepseek_v3", "deepseek_v4", "deepseek_v41", "ernie45",
     "gemma4", "glm45", "glm47", "granite", "hunyuan_a13b", "hy_v3", "hy_v4", "inkling", "k2_horizon", "kimi_k2",
     "kimi_k3", "ling3", "mimo", "minicpmv", "minimax_m2", "minimax_m3", "mistral", "muse_glimmer", "nemotron_v3",
     "olmo3", "openai_gptoss", "plamo3", "poolside_v1", "qwen3", "seed_oss", "step3", "step3p5"
)  # fmt: skip


def _tokenizer(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    return {"": ModelMetadata(template=optional_text(data["chat_template"]))}


def _opened_in_tokens(model: str, settings: TemplateSettings) -> Mapping[str, Any]:
    return {**opened_prompt(model, settings), "add_generation_prompt": True, "return_token_strs": True}


def _joined(data: Any) -> str | None:  # noqa: ANN401 - decoded JSON
    return "".join(data["token_strs"]).translate(_MARKS)


KIND = Kind(
    fields=MappingProxyType(
        {**LOCAL, "max_tokens": RenamedRule("max_completion_tokens"), "response_format": FORMAT}
    ),
    extensions=frozenset(
        ("add_generation_prompt", "add_special_tokens", "allowed_token_ids", "bad_words", "cache_salt", "chat_template",
         "chat_template_kwargs", "continue_final_message", "documents", "ec_transfer_params", "echo", "ignore_eos",
         "include_reasoning", "include_stop_str_in_output", "kv_transfer_params", "length_penalty",
         "logprob_token_ids", "media_io_kwargs", "min_p", "min_tokens", "mm_processor_kwargs", "priority",
         "prompt_logprobs", "repetition_detection", "repetition_penalty", "request_id", "return_prompt_text",
         "return_token_ids", "return_tokens_as_token_ids", "session_id", "skip_special_tokens",
         "spaces_between_special_tokens", "stop_token_ids", "stream_interval", "structured_outputs",
         "thinking_token_budget", "top_k", "truncate_prompt_tokens", "truncation_side", "use_beam_search",
         "vllm_xargs")
    ),
    reasoning="reasoning",
    refuses_tools=True,
    raw=MappingProxyType({"skip_special_tokens": False, "spaces_between_special_tokens": False}),
    counter=TokenCounter("/tokenize", "count"),
    parts=parts_passed(
        "audio_embeds", "audio_url", "image_embeds", "image_url", "input_audio", "prompt_embeds", "thinking",
        "tool_reference", "video_embeds", "video_url"
    ),
    fetches=True,
    program="`vllm serve`",
    defers=True,
)  # fmt: skip
ROW = KindRow(
    position=2,
    kind=KIND,
    services=BackendServices(
        completions=CompletionsSupport(for_completions(KIND, best_of=UNENFORCED)),
        embeds_messages=True,
        # entrypoints/pooling/base/protocol.py
        embedding_fields=frozenset(
            ("add_generation_prompt", "add_special_tokens", "cache_salt", "chat_template", "chat_template_kwargs",
             "continue_final_message", "embed_dtype", "endianness", "media_io_kwargs", "mm_processor_kwargs", "padding",
             "priority", "request_id", "truncate_prompt_tokens", "truncation_side", "use_activation")
        ),
        rerank=RERANK,
        tokenize=same_names(
            *PROMPT_FIELDS,
            "messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template_kwargs",
        ),
    ),
    endpoints=endpoints_at(
        "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech", "/v1/images/generations",
        "/v1/images/edits", "/v1/realtime",
        others={
            "/v1/score": KindEndpoint("/v1/score", MappingProxyType({"query": "queries"})),
            "/v1/classify": KindEndpoint("/classify"),
            "/v1/pooling": KindEndpoint("/pooling"),
        },
    ),
    metadata=MetadataQueries(
        models=(LISTED_MODELS,),
        template=MetadataQuery("GET", "/tokenizer_info", _tokenizer),
        prompt=MetadataQuery("POST", "/tokenize", _joined, _opened_in_tokens),
    ),
    signs=DiscoverySigns(port=8000, owner="vllm", path="/version"),
    advice=KindAdvice(
        texts={
            "calls": "--enable-auto-tool-choice --tool-call-parser {tools}",
            "thoughts": "--reasoning-parser {reasoning}",
            "no_thoughts": "no --reasoning-parser for a model that does not think",
            "no_tools": "--exclude-tools-when-tool-choice-none",
            "window": "--max-model-len N",
        },
        tool_parsers={name: name for name in _TOOL_PARSERS},
        reasoning_parsers={name: name for name in _REASONING_PARSERS},
    ),
)  # fmt: skip
