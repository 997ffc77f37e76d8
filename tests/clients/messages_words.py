"""What a scripted model behind the Messages API says, and what its strict server was asked."""

from typing import Any

from support.anthropic_server import faults, message, streamed
from support.upstream import Upstream

BACKEND = {"kind": "anthropic"}
MODEL = "claude-opus-4-6"
PROMPT, COMPLETION = 10, 9  # tokens of each answer, of which the prompt has some in the cache


def response_stream(*blocks: dict[str, Any]) -> list[Any]:
    """Return a streamed message, a few characters at a time."""
    reason = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    return streamed(message(*blocks, reason=reason), 5)


def bodies(upstream: Upstream, wanted: int) -> list[dict[str, Any]]:
    """Return the requests at the model, which are so many and without a fault."""
    found = [post.json for post in upstream.posts]
    assert len(found) == wanted, [body["messages"][-1] for body in found]
    for body in found:
        assert faults(body) == [], faults(body)
    return found
