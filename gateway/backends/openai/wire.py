"""Define the types of a chat completion, streamed and whole, as loosely as servers write them.

Log-probabilities and signatures are read from them here.  LiteLLM has `thinking_blocks` in a message and
`provider_specific_fields` in a call or its function; Google's own endpoint has `extra_content` in a call.  Signatures
go back to the upstream unchanged.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct, json

from gateway.events import Logprob, TopLogprob

_LEAST = -9999.0  # stands for −∞ and NaN, which JSON cannot express
LenientNumber = int | float | str | bool | None


def read_logprobs(data: object, text: str, most: int | None = None) -> dict[str, tuple[Logprob, ...]]:
    """Return the log-probabilities by the field that they belong to, "content" or "refusal".

    text: the text that a bare number is about.
    most: the most alternatives per token; None for all.
    """
    match data:
        case {"tokens": list(tokens), **rest}:
            return {"content": _columns(tokens, rest, most)}
        case {**fields}:
            return {field: _entries(fields.get(field), most) for field in ("content", "refusal")}
        case list():
            return {"content": _entries(data, most)}
        case bool() | None:
            return {}
        case int() | float():
            return {"content": (Logprob(text, _number(data), _bytes(text)),)}
    return {}


def _entries(data: object, most: int | None) -> tuple[Logprob, ...]:
    return tuple(_entry(one, most) for one in data if isinstance(one, Mapping)) if isinstance(data, list) else ()


def _entry(data: Mapping[str, Any], most: int | None) -> Logprob:
    token = _token(data)
    return Logprob(token.token, token.logprob, token.bytes, tuple(_candidates(data.get("top_logprobs"))[:most]))


def _columns(tokens: list[Any], data: Mapping[object, Any], most: int | None) -> tuple[Logprob, ...]:
    """Read the form of legacy completions: one list per property."""
    values, tops = (_list(data.get(name)) for name in ("token_logprobs", "top_logprobs"))
    return tuple(
        Logprob(
            str(token),
            _number(values[i] if i < len(values) else None),
            _bytes(str(token)),
            tuple(_candidates(tops[i] if i < len(tops) else None)[:most]),
        )
        for i, token in enumerate(tokens)
    )


def _list(data: object) -> list[Any]:
    return data if isinstance(data, list) else []


def _candidates(data: object) -> list[TopLogprob]:
    if isinstance(data, Mapping):  # {token: logprob}
        return [TopLogprob(str(token), _number(chance), _bytes(str(token))) for token, chance in data.items()]
    return [_token(one) for one in data if isinstance(one, Mapping)] if isinstance(data, list) else []


def _token(data: Mapping[str, Any]) -> TopLogprob:
    token = str(data.get("token", data.get("text", "")))
    raw = data.get("bytes")
    own = isinstance(raw, list) and all(isinstance(byte, int) for byte in raw)
    return TopLogprob(token, _number(data.get("logprob")), tuple(raw) if own and raw is not None else _bytes(token))


def _number(data: object) -> float:
    if isinstance(data, int | float) and not isinstance(data, bool) and data >= _LEAST:
        return float(data)
    return _LEAST


def _bytes(token: str) -> tuple[int, ...]:
    return tuple(token.encode("utf-8", "replace"))


class WirePart(Struct, gc=False):
    """A part of a message's content, or of reasoning."""

    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    thinking: "str | list[WirePart] | None" = None


class WireFunction(Struct, gc=False):
    """The function of a tool call, whole or a delta."""

    name: str | None = None
    arguments: Raw = Raw()
    provider_specific_fields: Any = None


class Custom(Struct, gc=False):
    """The custom tool of a tool call, whole or a delta."""

    name: str | None = None
    input: str | None = None


class WireToolCall(Struct, gc=False):
    """A tool call, whole or a delta."""

    index: LenientNumber = None
    id: str | int | None = None
    function: WireFunction | None = None
    custom: Custom | None = None
    provider_specific_fields: Any = None
    extra_content: Any = None


class WireMessage(Struct, gc=False):
    """A message, whole or a delta, with all names of reasoning and signatures."""

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
    """The members of a `…_tokens_details` object."""

    cached_tokens: LenientNumber = None
    cache_write_tokens: LenientNumber = None
    created_cache_tokens: LenientNumber = None
    reasoning_tokens: LenientNumber = None


class WireUsage(Struct, gc=False):
    """Usage under all names that servers use."""

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
    """A choice of a chat or legacy completion, whole or in a chunk."""

    index: LenientNumber = None
    delta: WireMessage | None = None
    message: WireMessage | None = None
    text: str | None = None
    logprobs: Any = None
    finish_reason: Any = None
    usage: WireUsage | None = None  # Moonshot has the usage here
    error: Any = None  # OpenRouter has the error of a provider here


class GroqExtension(Struct, gc=False):
    """The member that Groq adds to the first and the last chunk."""

    usage: WireUsage | None = None


class WireChunk(WireUsage, gc=False):
    """A chunk, or a whole chat completion; some servers put token counts beside its choices."""

    choices: Sequence[WireChoice] | None = None
    usage: WireUsage | None = None
    x_groq: GroqExtension | None = None
    timings: Any = None
    error: Any = None
    object: Any = None


# The same types without uninterpreted members: a payload that fits is decoded in one pass.


class PlainMessage(WireMessage, forbid_unknown_fields=True, gc=False):
    """A message whose members are all interpreted."""

    role: Any = None


class PlainChoice(WireChoice, forbid_unknown_fields=True, gc=False):
    """A choice whose members are all interpreted, or empty."""

    delta: PlainMessage | None = None
    message: PlainMessage | None = None
    # vLLM writes them without a value into each chunk
    stop_reason: None = None
    token_ids: None = None
    prompt_token_ids: None = None


class PlainChunk(WireChunk, forbid_unknown_fields=True, gc=False):
    """A chunk whose members are all interpreted or empty, but for `system_fingerprint`, which is passed on."""

    system_fingerprint: Raw = Raw()  # llama.cpp writes it into each chunk
    prompt_text: None = None
    prompt_token_ids: None = None
    id: Any = None
    created: Any = None
    model: Any = None
    obfuscation: Any = None
    choices: Sequence[PlainChoice] | None = None
    timings: None = None  # timings are read as counts and also passed on, so they rule out a plain chunk
    # counts beside the choices also rule it out
    prompt_tokens: None = None
    completion_tokens: None = None
    prompt_eval_count: None = None
    eval_count: None = None
    input_tokens: None = None
    output_tokens: None = None
    tokens_evaluated: None = None
    tokens_predicted: None = None


class SignedBlock(Struct, frozen=True):
    """A piece of reasoning.  `signature`: the signature that ends here, as in `events.ReasoningDelta`."""

    text: str
    signature: str = ""


def signed_blocks(value: object) -> Iterator[SignedBlock]:
    """Yield the pieces of `thinking_blocks`; skip anything else."""
    for one in value if isinstance(value, list) else ():
        match one:
            case {"type": "redacted_thinking", "data": str(data)} if data:
                yield SignedBlock("", _encode(type="redacted_thinking", data=data))
            case {"type": "thinking", "signature": str(signature), **rest} if signature:
                yield SignedBlock(str(rest.get("thinking") or ""), _encode(type="thinking", signature=signature))
            case {"type": "thinking", "thinking": str(text)} if text:
                yield SignedBlock(text)


def signature_of_call(call: WireToolCall) -> str:
    """Return the signature of a call, "" for none."""
    function = call.function.provider_specific_fields if call.function else None
    for data in (call.provider_specific_fields, function, call.extra_content):
        match data:
            case {"thought_signature": str(signature)} | {"google": {"thought_signature": str(signature)}} if signature:
                return signature
    return ""


def _encode(**data: str) -> str:
    return json.encode(data).decode()
