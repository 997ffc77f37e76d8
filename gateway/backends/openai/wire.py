"""The types of a chat completion, chunked or whole, as wide as servers really write them."""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct

LenientNumber = int | float | str | bool | None


class WirePart(Struct, gc=False):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    thinking: "str | list[WirePart] | None" = None


class WireFunction(Struct, gc=False):
    name: str | None = None
    arguments: Raw = Raw()
    provider_specific_fields: Any = None


class Custom(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class WireToolCall(Struct, gc=False):
    index: LenientNumber = None
    id: str | int | None = None
    function: WireFunction | None = None
    custom: Custom | None = None
    provider_specific_fields: Any = None
    extra_content: Any = None


class WireMessage(Struct, gc=False):
    content: str | list[Raw] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    thinking: str | list[WirePart] | None = None
    thinking_blocks: Any = None
    refusal: str | None = None
    tool_calls: list[WireToolCall] | None = None
    function_call: WireFunction | None = None
    annotations: list[Raw] | None = None
    images: list[Raw] | None = None
    reasoning_details: Any = None


class TokenDetails(Struct, gc=False):
    cached_tokens: LenientNumber = None
    cache_write_tokens: LenientNumber = None
    created_cache_tokens: LenientNumber = None
    reasoning_tokens: LenientNumber = None


class WireUsage(Struct, gc=False):
    """Usage under every name it has."""

    prompt_tokens: LenientNumber = None
    completion_tokens: LenientNumber = None
    total_tokens: LenientNumber = None
    input_tokens: LenientNumber = None
    output_tokens: LenientNumber = None
    prompt_eval_count: LenientNumber = None
    eval_count: LenientNumber = None
    tokens_evaluated: LenientNumber = None
    tokens_predicted: LenientNumber = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    input_tokens_details: TokenDetails | None = None
    output_tokens_details: TokenDetails | None = None
    cache_read_input_tokens: LenientNumber = None
    cache_creation_input_tokens: LenientNumber = None
    prompt_cache_hit_tokens: LenientNumber = None
    reasoning_tokens: LenientNumber = None
    cached_tokens: LenientNumber = None


class WireChoice(Struct, gc=False):
    index: LenientNumber = None
    delta: WireMessage | None = None
    message: WireMessage | None = None
    text: str | None = None
    logprobs: Any = None
    finish_reason: Any = None
    usage: WireUsage | None = None  # Moonshot's place for it


class GroqExtension(Struct, gc=False):
    """The member that Groq adds to the first and the last chunk."""

    usage: WireUsage | None = None


class WireChunk(WireUsage, gc=False):
    """A chunk, or a whole chat completion; some servers count beside its choices."""

    choices: Sequence[WireChoice] | None = None
    usage: WireUsage | None = None
    x_groq: GroqExtension | None = None
    timings: Any = None
    error: Any = None
    object: Any = None


# The same without members that nothing reads: what fits is read in one pass.


class PlainMessage(WireMessage, forbid_unknown_fields=True, gc=False):
    role: Any = None


class PlainChoice(WireChoice, forbid_unknown_fields=True, gc=False):
    delta: PlainMessage | None = None
    message: PlainMessage | None = None


class PlainChunk(WireChunk, forbid_unknown_fields=True, gc=False):
    id: Any = None
    created: Any = None
    model: Any = None
    obfuscation: Any = None
    choices: Sequence[PlainChoice] | None = None
    timings: None = None  # they are counts, and are passed on as well
    # counts beside the choices
    prompt_tokens: None = None
    completion_tokens: None = None
    prompt_eval_count: None = None
    eval_count: None = None
    input_tokens: None = None
    output_tokens: None = None
    tokens_evaluated: None = None
    tokens_predicted: None = None
