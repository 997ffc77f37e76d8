"""Describe transformers 5.19, from cli/serving: it ignores unused fields, and rejects unknown ones with 422."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gateway.backends.field_rules import (
    AS_A_FORM,
    CUT_HERE,
    CUT_OFF,
    DROPPED,
    IN_WORDS,
    LOCAL,
    ONE_CHOICE,
    UNENFORCED,
    WITHOUT_EFFECT,
    RenamedRule,
    TranslatedRule,
)
from gateway.backends.kind import Kind, parts_passed
from gateway.backends.kind_row import DiscoverySigns, KindRow, endpoints_at
from gateway.backends.services import ECHOED_HERE, BackendServices, CompletionsSupport, for_completions
from gateway.request import Request


def _for_the_template(effort: object, _: Request) -> Mapping[str, Any]:
    """Pass the effort to the template, which may know the level or only the switch; the server ignores the field."""
    settings = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    return {f"chat_template_kwargs.{name}": value for name, value in settings.items()}


def _as_fractions(bias: Mapping[str, float], _: Request) -> Mapping[str, Any]:
    """Write the numbers as fractions, as the server fails with 500 for whole numbers."""
    return {"logit_bias": {token: float(value) for token, value in bias.items()}}


KIND = Kind(
    fields=MappingProxyType(
        {
            **LOCAL,
            "logit_bias": TranslatedRule("whole numbers as fractions", _as_fractions),
            "logprobs": DROPPED,
            "max_completion_tokens": RenamedRule("max_tokens"),
            "messages": TranslatedRule("roles, parts; names, past reasoning and text beside tool calls are dropped"),
            "n": ONE_CHOICE,
            "parallel_tool_calls": CUT_HERE,
            "presence_penalty": DROPPED,
            "reasoning_effort": TranslatedRule("a setting and the switch of the template", _for_the_template),
            "response_format": IN_WORDS,
            "stop": CUT_OFF,
            "stream_options": WITHOUT_EFFECT,  # the server always counts
            "tool_choice": AS_A_FORM,
            "top_logprobs": DROPPED,
        }
    ),
    extensions=frozenset(("chat_template_kwargs", "generation_config")),
    forwards="none",
    reasoning=None,
    calls_alone=True,
    names=False,
    keeps_stops=True,
    parts=parts_passed("audio_url", "image_url", "input_audio", "video_url"),
    program="`transformers serve`",
)
_SILENT = ("logit_bias", "logprobs", "suffix")
# cli/serving/completion.py: it applies no template here, and appends the suffix to its text.
_COMPLETIONS = replace(KIND, extensions=frozenset(("generation_config",)))
ROW = KindRow(
    position=6,
    kind=KIND,
    services=BackendServices(
        completions=CompletionsSupport(
            for_completions(_COMPLETIONS, echo=ECHOED_HERE, **dict.fromkeys(_SILENT, DROPPED), best_of=UNENFORCED),
            several=False,
        ),
        embeddings=None,
    ),
    endpoints=endpoints_at("/v1/audio/transcriptions"),
    signs=DiscoverySigns(path="/openapi.json", mark=b'"/load_model"'),
)
