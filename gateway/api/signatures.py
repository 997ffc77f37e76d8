"""Write and read the upstream's signatures in the fields that clients send back: reasoning and tool calls."""

from dataclasses import dataclass, field
from typing import Any

from msgspec import json

from gateway.events import ReasoningDelta, ToolCallStart

_decode = json.Decoder(dict[str, Any]).decode


def call_signature(start: ToolCallStart) -> dict[str, Any]:
    """Return the members that carry a tool call's signature; none if it has none."""
    return {"provider_specific_fields": {"thought_signature": start.signature}} if start.signature else {}


@dataclass(slots=True, eq=False)
class ThinkingBlocks:
    """The `thinking_blocks` of one choice.

    Each block begins where the last one ended.  Unsigned text is in no block.
    """

    _texts: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, thought: ReasoningDelta) -> dict[str, Any] | None:
        """Return the block that ends with this piece of reasoning, if one does."""
        self._texts.append(thought.text)
        if not thought.signature:
            return None
        self.count += 1
        text, signed = "".join(self._texts), _decode(thought.signature)
        self._texts.clear()
        return {"type": "thinking", "thinking": text, **signed} if signed["type"] == "thinking" else signed
