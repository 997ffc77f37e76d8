"""Dialects in: how a request is put to a server, and how its answer becomes events.

A kind of server is a row: what it takes under which name.  Everything that answers with chat completions shares the
decoder in openai/.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

# What only means something to the API's own service: no effect on an answer, so nobody has to hear that it is gone.
_WITHOUT_EFFECT = frozenset(
    ("audio", "metadata", "modalities", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
     "safety_identifier", "service_tier", "user")
)  # fmt: skip
_NOT_DONE = frozenset(("moderation", "prediction", "verbosity", "web_search_options"))


_RAW: Mapping[str, bool] = MappingProxyType({"skip_special_tokens": False, "spaces_between_special_tokens": False})


class Counter(Struct, frozen=True):
    """Where a server takes the body of a chat completion and says, in this field, how many tokens its prompt has."""

    path: str
    field: str


class Kind(Struct, frozen=True, kw_only=True):
    """What one kind of server makes of a request.

    limit: its name for the token limit; None: the client's own word.
    reasoning: the field in which it wants past reasoning back.
    unheard: fields that are left out without a word; undone: those that are left out and listed.
    named_choice: how a forced tool is asked for: by name, as the only one offered, or not at all.
    logprobs_with_tools: it takes both in one stream.
    refuses_tools: it takes tools only with a parser for their calls, unless it may call none; it shows them to the
        model all the same.
    parses: it looks for thoughts and calls itself, whatever its settings.
    raw: what is asked so that special tokens stay in the text.
    continues: a last message of the assistant is the beginning of the answer, asked for or not.
    counter: where it counts tokens; None: nowhere.
    """

    limit: Literal["max_tokens", "max_completion_tokens"] | None = None
    reasoning: Literal["reasoning", "reasoning_content"] = "reasoning_content"
    unheard: frozenset[str] = _WITHOUT_EFFECT
    undone: frozenset[str] = _NOT_DONE
    named_choice: Literal["named", "alone", "ignored"] = "named"
    logprobs_with_tools: bool = True
    refuses_tools: bool = False
    parses: bool = False
    raw: Mapping[str, bool] = MappingProxyType({})
    continues: bool = False
    counter: Counter | None = None


KINDS: dict[str, Kind] = {
    "openai": Kind(unheard=frozenset(), undone=frozenset(), parses=True),
    "vllm": Kind(
        limit="max_completion_tokens",
        reasoning="reasoning",
        refuses_tools=True,
        raw=_RAW,
        counter=Counter("/tokenize", "count"),
    ),
    "llamacpp": Kind(
        limit="max_tokens",
        named_choice="alone",
        logprobs_with_tools=False,
        parses=True,
        continues=True,
        counter=Counter("/v1/chat/completions/input_tokens", "input_tokens"),
    ),
    "ollama": Kind(
        limit="max_tokens",
        reasoning="reasoning",
        unheard=_WITHOUT_EFFECT | {"parallel_tool_calls"},
        undone=_NOT_DONE | {"logit_bias"},
        named_choice="ignored",
        parses=True,
    ),
    "lmstudio": Kind(limit="max_tokens", parses=True),
    "sglang": Kind(limit="max_completion_tokens", raw=_RAW),
    "transformers": Kind(limit="max_tokens", named_choice="ignored"),
}
