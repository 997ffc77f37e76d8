"""Describe Ollama 0.31, from ChatRequest and Options in api/types.go.

backends/ollama.py puts the fields in their places in the body.
"""

from types import MappingProxyType

from gateway.backends.field_rules import (
    AS_A_FORM,
    CUT_HERE,
    DROPPED,
    LOCAL,
    ONE_CHOICE,
    WITHOUT_EFFECT,
    RenamedRule,
    TranslatedRule,
)
from gateway.backends.kind import LEFT_OUT, Kind, format_unless_call_forced

KIND = Kind(
    fields=MappingProxyType(
        {
            **LOCAL,
            "add_generation_prompt": WITHOUT_EFFECT,
            "chat_template_kwargs": TranslatedRule("`think`, if the model has that switch"),
            "continue_final_message": WITHOUT_EFFECT,
            "logit_bias": DROPPED,
            "max_completion_tokens": RenamedRule("num_predict"),
            "max_tokens": RenamedRule("num_predict"),
            "messages": TranslatedRule("roles, parts, past reasoning; names are dropped"),
            "n": ONE_CHOICE,
            "parallel_tool_calls": CUT_HERE,
            "reasoning_effort": TranslatedRule("`think`"),
            "response_format": TranslatedRule(f"`format`, {LEFT_OUT}", format_unless_call_forced),
            "stream_options": WITHOUT_EFFECT,  # the server always counts
            "tool_choice": AS_A_FORM,
        }
    ),
    extensions=frozenset(
        ("draft_num_predict", "format", "keep_alive", "main_gpu", "min_p", "num_batch", "num_ctx", "num_gpu",
         "num_keep", "num_predict", "num_thread", "options", "repeat_last_n", "repeat_penalty", "shift", "think",
         "top_k", "truncate", "typical_p", "use_mmap")
    ),
    forwards="none",
    dialect="ollama",
    names=False,
    reasoning="thinking",
    parses=True,
    continues=True,
    program="`ollama serve`",
)  # fmt: skip
