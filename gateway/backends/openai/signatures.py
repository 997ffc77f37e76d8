"""Read signatures of an upstream: of parts of the reasoning, and of tool calls.  They go back to it unchanged.

LiteLLM has `thinking_blocks` in a message and `provider_specific_fields` in a call or its function; Google's own
endpoint has `extra_content` in a call.
"""

from collections.abc import Iterator

from msgspec import Struct, json

from gateway.backends.openai.wire import WireToolCall


class SignedBlock(Struct, frozen=True):
    """A piece of a thought.  `signature`: the one that ends here, as in `events.Reasoning`."""

    text: str
    signature: str = ""


def signed_blocks(said: object) -> Iterator[SignedBlock]:
    """The pieces of `thinking_blocks`; what is no such piece is none."""
    for one in said if isinstance(said, list) else ():
        match one:
            case {"type": "redacted_thinking", "data": str(data)} if data:
                yield SignedBlock("", _encode(type="redacted_thinking", data=data))
            case {"type": "thinking", "signature": str(signature), **rest} if signature:
                yield SignedBlock(str(rest.get("thinking") or ""), _encode(type="thinking", signature=signature))
            case {"type": "thinking", "thinking": str(text)} if text:
                yield SignedBlock(text)


def signature_of_call(call: WireToolCall) -> str:
    """The signature of a call, "" for none."""
    function = call.function.provider_specific_fields if call.function else None
    for said in (call.provider_specific_fields, function, call.extra_content):
        match said:
            case {"thought_signature": str(signature)} | {"google": {"thought_signature": str(signature)}} if signature:
                return signature
    return ""


def _encode(**said: str) -> str:
    return json.encode(said).decode()
