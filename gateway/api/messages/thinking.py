"""Convert thinking settings to neutral fields, and reasoning to and from the signatures of thinking blocks.

A signature holds sealed reasoning.  If the client sees the text, the seal has a digest in place of the text.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from gateway.api.messages.params import THINKS
from gateway.request import StoredReasoning
from gateway.warnings import Warnings

OpenSeal = Callable[[str], StoredReasoning | None]
_LEAST_BUDGET = 1024  # tokens; the API takes no smaller budget
_CLEARS = "clear_thinking_"


class PastThought(Struct, frozen=True):
    """Past reasoning.  blocks: the parts that the upstream signed, for the model that wrote them."""

    text: str
    blocks: tuple[dict[str, Any], ...] = ()


class ThoughtReader(Struct, frozen=True):
    """Read the reasoning in blocks.

    open: opens a signature; None if the gateway did not seal it.  model: the requested model.
    """

    open: OpenSeal
    model: str
    ledger: Warnings

    def thinking(self, block: Mapping[str, Any]) -> PastThought:
        """Read a thinking block; with a foreign signature its text remains."""
        text, sealed = block["thinking"], block.get("signature")
        opened = self.open(sealed) if sealed else None
        if not opened:
            if sealed and not text:
                self.ledger.add("dropped", "thinking")
            return PastThought(text)
        unchanged = text in ("", opened.text) or opened.digest == _digest(text)
        return PastThought(text or opened.text, self._blocks(opened) if unchanged else ())

    def redacted(self, block: Mapping[str, Any]) -> PastThought:
        """Read a redacted block; a foreign one is dropped with a warning."""
        opened = self.open(block["data"])
        if not opened:
            self.ledger.add("dropped", "redacted_thinking")
            return PastThought("")
        return PastThought("", self._blocks(opened))

    def _blocks(self, opened: StoredReasoning) -> tuple[dict[str, Any], ...]:
        return opened.blocks if opened.model == self.model else ()


def sealable(text: str, blocks: Sequence[dict[str, Any]], model: str, *, shown: bool) -> StoredReasoning:
    """Return the reasoning to seal.  shown: the client sees its text."""
    if shown:
        return StoredReasoning("", tuple(blocks), model, _digest(text))
    return StoredReasoning(text, tuple(blocks), model)


def seal_thinking(
    seal: Callable[[StoredReasoning], str], model: str, shown: bool, text: str, signed: list[dict[str, Any]]
) -> str:
    """Return thinking as `seal` encrypts it."""
    return seal(sealable(text, signed, model, shown=shown))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_thinking_on(body: Mapping[str, Any]) -> bool:
    """Return True if the client turns thinking on."""
    return (body.get("thinking") or {}).get("type") in THINKS


def thinking_fields(body: Mapping[str, Any], max_tokens: int | None) -> dict[str, Any]:
    """Return the effort, and the switch or the budget, as neutral fields; empty if none is set."""
    thinking, effort = body.get("thinking") or {}, (body.get("output_config") or {}).get("effort")
    if thinking.get("type") == "disabled":
        return {"reasoning_effort": "none"}
    fields = {"reasoning_effort": effort} if effort else {}
    if not is_thinking_on(body):
        return fields
    budget = thinking.get("budget_tokens") or 0
    if budget >= _LEAST_BUDGET and (max_tokens is None or budget < max_tokens):
        return {**fields, "thinking": {"type": "enabled", "budget_tokens": budget}}
    return fields or {"thinking": {"type": "enabled"}}


def kept_thoughts(body: Mapping[str, Any], ledger: Warnings) -> int | None:
    """Return the number of last turns whose reasoning stays, None: all.  Warn about other context edits."""
    kept: int | None = None
    for edit in (body.get("context_management") or {}).get("edits") or ():
        if not edit["type"].startswith(_CLEARS):
            ledger.add("dropped", f"context_management.{edit['type']}")
            continue
        keep = edit.get("keep") or {"value": 1}
        turns = keep.get("value") if isinstance(keep, dict) else None
        kept = turns if type(turns) is int and turns > 0 else None
    return kept
