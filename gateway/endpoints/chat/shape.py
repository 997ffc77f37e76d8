"""Build the parts that a chunk and a whole chat completion share."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, json

from gateway.events import Logprob, ToolCallStart, Usage
from gateway.request import ToolName

encode: Callable[[Any], bytes] = json.Encoder().encode


class CompletionHead(Struct, frozen=True):
    """The members that are the same in all of a response.  `created` in Unix seconds; `model` as the client named it.

    reasoning: the fields that carry the model's reasoning.
    """

    id: str
    created: int
    model: str
    reasoning: tuple[str, ...] = ("reasoning_content",)


def usage_object(counted: Usage) -> dict[str, Any]:
    read = {"cached_tokens": counted.cached}
    if counted.kept:
        read["cache_write_tokens"] = counted.kept
    return {
        "prompt_tokens": counted.prompt,
        "completion_tokens": counted.completion,
        "total_tokens": counted.prompt + counted.completion,
        "prompt_tokens_details": read,
        "completion_tokens_details": {"reasoning_tokens": counted.reasoning},
    }


def logprobs_object(content: Sequence[Logprob], refusal: Sequence[Logprob]) -> dict[str, Any]:
    return {"content": content or None, "refusal": refusal or None}


def flat_tool_name(start: ToolCallStart) -> str:
    """In chat a name has no namespace of its own."""
    return ToolName(start.name, start.namespace).flat
