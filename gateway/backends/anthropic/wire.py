"""Define the types of a message, streamed and whole, as loosely as servers write them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Raw, Struct, json

from gateway.backends.openai.usage import count_value
from gateway.backends.openai.wire import LenientNumber
from gateway.events import Usage


class WireDelta(Struct, gc=False):
    """The next piece of a block; a piece of an unknown type has other members."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    citation: Raw = Raw()


class WireEvent(Struct, gc=False):
    """An event of a stream, or a whole message."""

    type: str = ""
    index: LenientNumber = None
    delta: WireDelta | None = None
    content_block: Raw = Raw()
    content: list[Raw] | None = None
    message: Any = None
    usage: Any = None
    error: Any = None


class WireBlock(Struct, gc=False):
    """The known members of a block, at its start or whole."""

    type: str = ""
    text: str | None = None
    citations: list[Raw] | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()


@dataclass(slots=True, eq=False)
class MessageCounts:
    """The tokens of a message so far; a later statement replaces the counts that it has.

    read, written: input tokens that came from the cache, and those that went there.
    """

    input: int = 0
    output: int = 0
    read: int = 0
    written: int = 0
    thinking: int = 0

    def update(self, usage: object) -> Usage | None:
        """Take the counts of a `usage` object.  Return the usage so far, None without any tokens."""
        given = usage if isinstance(usage, dict) else {}
        details = given.get("output_tokens_details")
        self.input = _count(given, "input_tokens", self.input)
        self.output = _count(given, "output_tokens", self.output)
        self.read = _count(given, "cache_read_input_tokens", self.read)
        self.written = _count(given, "cache_creation_input_tokens", self.written)
        self.thinking = _count(details if isinstance(details, dict) else {}, "thinking_tokens", self.thinking)
        prompt = self.input + self.read + self.written
        return Usage(prompt, self.output, self.read, self.thinking, self.written) if prompt or self.output else None


def _count(given: Mapping[str, Any], name: str, before: int) -> int:
    value = given.get(name)
    return before if value is None else count_value(value)


def thinking_signature(signature: str, *, unsealed: bool) -> str:
    """Return the signature of reasoning as events have it.  unsealed: the client gets it unchanged."""
    return _json(type="thinking", signature=signature, **({"unsealed": True} if unsealed else {}))


def redacted_thinking(data: str, *, unsealed: bool) -> str:
    """Return encrypted reasoning as events have it."""
    return _json(type="redacted_thinking", data=data, **({"unsealed": True} if unsealed else {}))


def _json(**members: object) -> str:
    return json.encode(members).decode()
