"""A request whose last message is the beginning of the answer: the server goes on behind it."""

from msgspec import Struct

from gateway.backends import Kind
from gateway.backends.extensions import field_rule
from gateway.backends.verdicts import PassedRule
from gateway.request import Request


class Prefill(Struct, frozen=True):
    """The beginning: its text, which is a thought without an end if `in_thought`.  `echoed`: the answer repeats it."""

    text: str
    in_thought: bool
    echoed: bool


def prefill_of(request: Request, kind: Kind) -> Prefill | None:
    """None for an answer from its beginning."""
    last = request.messages[-1] if request.messages else {}
    if last.get("role") != "assistant" or last.get("tool_calls") or (request.fresh and kind.continues):
        return None
    asked = request.rest.get("continue_final_message") is True
    if not (kind.continues or (asked and isinstance(field_rule("continue_final_message", kind), PassedRule))):
        return None
    text, thought = _text(last.get("content")), last.get("reasoning_content") or last.get("reasoning")
    echoed = (kind.echoes and not request.stream) or request.rest.get("echo") is True
    return Prefill(text or str(thought or ""), bool(thought) and not text, echoed)


def _text(content: object) -> str:
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    return "".join(str(part.get("text") or "") for part in parts)
