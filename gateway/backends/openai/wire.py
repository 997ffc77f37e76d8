"""The types of a chat completion, chunked or whole, as wide as servers really write them."""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct

Count = int | float | str | bool | None


class Part(Struct, gc=False):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    thinking: "str | list[Part] | None" = None


class Function(Struct, gc=False):
    name: str | None = None
    arguments: Raw = Raw()
    provider_specific_fields: Any = None


class Custom(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class ToolCall(Struct, gc=False):
    index: Count = None
    id: str | int | None = None
    function: Function | None = None
    custom: Custom | None = None
    provider_specific_fields: Any = None
    extra_content: Any = None


class Message(Struct, gc=False):
    content: str | list[Raw] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    thinking: str | list[Part] | None = None
    thinking_blocks: Any = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None
    annotations: list[Raw] | None = None
    images: list[Raw] | None = None
    reasoning_details: Any = None


class Details(Struct, gc=False):
    cached_tokens: Count = None
    cache_write_tokens: Count = None
    created_cache_tokens: Count = None
    reasoning_tokens: Count = None


class Counts(Struct, gc=False):
    """Usage under every name it has."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    input_tokens: Count = None
    output_tokens: Count = None
    prompt_eval_count: Count = None
    eval_count: Count = None
    tokens_evaluated: Count = None
    tokens_predicted: Count = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None
    input_tokens_details: Details | None = None
    output_tokens_details: Details | None = None
    cache_read_input_tokens: Count = None
    cache_creation_input_tokens: Count = None
    prompt_cache_hit_tokens: Count = None
    reasoning_tokens: Count = None
    cached_tokens: Count = None


class Choice(Struct, gc=False):
    index: Count = None
    delta: Message | None = None
    message: Message | None = None
    text: str | None = None
    logprobs: Any = None
    finish_reason: Any = None
    usage: Counts | None = None  # Moonshot's place for it


class Groq(Struct, gc=False):
    """What Groq adds to the first and the last chunk."""

    usage: Counts | None = None


class Chunk(Counts, gc=False):
    """A chunk, or a whole chat completion; some servers count beside its choices."""

    choices: Sequence[Choice] | None = None
    usage: Counts | None = None
    x_groq: Groq | None = None
    timings: Any = None
    error: Any = None
    object: Any = None


# The same without members that nothing reads: what fits is read in one pass.


class PlainMessage(Message, forbid_unknown_fields=True, gc=False):
    role: Any = None


class PlainChoice(Choice, forbid_unknown_fields=True, gc=False):
    delta: PlainMessage | None = None
    message: PlainMessage | None = None


class PlainChunk(Chunk, forbid_unknown_fields=True, gc=False):
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
