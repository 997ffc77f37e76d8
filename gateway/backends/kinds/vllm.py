"""Describe vLLM 0.33, from entrypoints/openai/chat_completion/protocol.py."""

from types import MappingProxyType

from gateway.backends.field_rules import LOCAL, RenamedRule
from gateway.backends.kind import FORMAT, Kind, TokenCounter, parts_passed

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
