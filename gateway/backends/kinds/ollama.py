"""Describe Ollama 0.31, from ChatRequest and Options in api/types.go.

backends/ollama.py puts the fields in their places in the body.
"""

import re
from types import MappingProxyType
from typing import Any

from gateway.backends.field_rules import (
    AS_A_FORM,
    CUT_HERE,
    DROPPED,
    LOCAL,
    ONE_CHOICE,
    UNENFORCED,
    WITHOUT_EFFECT,
    RenamedRule,
    TranslatedRule,
)
from gateway.backends.kind import LEFT_OUT, Kind, format_unless_call_forced
from gateway.backends.kind_row import DiscoverySigns, KindAdvice, KindRow, MetadataQueries, endpoints_at
from gateway.backends.model_metadata import (
    LOADED_SECONDS,
    MetadataByModel,
    MetadataQuery,
    ModelMetadata,
    named_entries,
    of_one_model,
    positive_count,
)
from gateway.backends.services import ECHOED_HERE, BackendServices, CompletionsSupport, for_completions

_TAG = ":latest"  # that of a name without a tag
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
_ABILITIES = {
    "vision": "vision", "tools": "tools", "thinking": "reasoning", "embedding": "embeddings", "audio": "audio"
}  # fmt: skip


def _show(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    configured = _NUM_CTX.search(data.get("parameters") or "")
    words = data.get("capabilities")
    can = None if words is None else frozenset(_ABILITIES[word] for word in words if word in _ABILITIES)
    template = f"{data.get('template')}{data.get('model_info', {}).get('tokenizer.chat_template', '')}"
    return {"": ModelMetadata(int(configured[1]) if configured else None, can, template)}


def _running(data: Any) -> MetadataByModel:  # noqa: ANN401 - decoded JSON
    """Return the metadata by full name, and also by the name without the default tag."""
    known = {
        entry["name"]: ModelMetadata(positive_count(entry.get("context_length")))
        for entry in named_entries(data, "models")
    }
    return known | {name.removesuffix(_TAG): one for name, one in known.items()}


_SHOW = MetadataQuery("POST", "/api/show", _show, of_one_model)


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
# openai/openai.go: CompletionRequest
_COMPLETIONS = Kind(
    fields=MappingProxyType({**LOCAL, "logit_bias": DROPPED, "n": ONE_CHOICE}), forwards="none", parses=True
)
ROW = KindRow(
    position=1,
    kind=KIND,
    services=BackendServices(
        completions=CompletionsSupport(
            for_completions(_COMPLETIONS, best_of=UNENFORCED, echo=ECHOED_HERE, logprobs=DROPPED),
            several=False,
            templated=True,
        )
    ),
    endpoints=endpoints_at("/v1/images/generations"),
    default_tag=_TAG,
    metadata=MetadataQueries(
        models=(MetadataQuery("GET", "/api/ps", _running, seconds=LOADED_SECONDS), _SHOW), template=_SHOW
    ),
    signs=DiscoverySigns(port=11434, path="/api/version"),
    advice=KindAdvice(
        texts={
            "calls": "use a model that `ollama show` lists with `tools`",
            "thoughts": "use a model that `ollama show` lists with `thinking`",
            "images": "use a model that `ollama show` lists with `vision`",
            "window": "OLLAMA_CONTEXT_LENGTH=N, or `num_ctx: N` in the `defaults` of the model",
        }
    ),
)
