"""Build the parts that a chunk and a whole legacy completion share."""

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.endpoints.chat.shape import CompletionHead, encode, usage_object
from gateway.events import Logprob

__all__ = ["CompletionHead", "completion_logprobs", "encode", "usage_object"]

_UNKNOWN = -9999.0  # what the events have for no number


def completion_logprobs(entries: Iterable[Logprob], most: int, begin: int = 0) -> dict[str, Any]:
    """One list per property.

    most: candidates of a token, and the token itself besides; begin: characters of the choice that came before.
    The first token of a prompt that is echoed follows nothing: null.
    """
    said: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    offset = begin
    for entry in entries:
        first = offset == 0 and entry.logprob == _UNKNOWN
        said["tokens"].append(entry.token)
        said["token_logprobs"].append(None if first else entry.logprob)
        said["top_logprobs"].append(None if first else _candidates(entry, most))
        said["text_offset"].append(offset)
        offset += len(entry.token)
    return said


def _candidates(entry: Logprob, most: int) -> dict[str, float]:
    likeliest: Sequence[Any] = sorted(entry.top_logprobs, key=lambda one: -one.logprob)[:most]
    return {one.token: one.logprob for one in likeliest} | {entry.token: entry.logprob}
