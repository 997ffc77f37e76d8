"""Tokens, from whatever names and types a server has for them (the promise of `events.Usage`)."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.backends.openai.wire import Count, Counts, Details
from gateway.events import Usage

_NO_DETAILS = Details()


def number(said: Count) -> int:
    """Strings, floats and booleans are counts too; what is none is 0."""
    if type(said) is int:
        return max(said, 0)
    try:
        return max(int(float(said or 0)), 0)
    except (TypeError, ValueError, OverflowError):
        return 0


def counted(counts: Counts) -> Usage | None:
    """None if nothing was counted."""
    prompt = number(counts.prompt_tokens)
    cached = _cached(counts)
    if not prompt:  # Anthropic's names: what came from or went to the cache is not in input_tokens
        outside = number(counts.cache_read_input_tokens) + number(counts.cache_creation_input_tokens)
        prompt = number(counts.input_tokens) + outside
    completion = number(counts.completion_tokens) or number(counts.output_tokens)
    details = counts.completion_tokens_details or counts.output_tokens_details or _NO_DETAILS
    return Usage(prompt, completion, cached, number(details.reasoning_tokens)) if prompt or completion else None


def timed(timings: Mapping[str, Any]) -> Usage | None:
    """The same from llama.cpp's timings: tokens from the cache, tokens read, tokens written."""
    cached, written = number(timings.get("cache_n")), number(timings.get("predicted_n"))
    prompt = cached + number(timings.get("prompt_n"))
    return Usage(prompt, written, cached) if prompt or written else None


def _cached(counts: Counts) -> int:
    details = counts.prompt_tokens_details or counts.input_tokens_details or _NO_DETAILS
    return (
        number(details.cached_tokens)
        or number(counts.cache_read_input_tokens)
        or number(counts.prompt_cache_hit_tokens)
    )


class Total(Struct):
    """Adds up what servers state per choice (llama.cpp with n > 1); a repeated statement replaces the one before.

    A statement that belongs to one choice stands alone in its chunk and follows that choice's finish reason.
    """

    stated: Usage | None = None
    before: Usage = Usage(0, 0)
    finished: bool = False

    def add(self, usage: Usage, alone: bool) -> Usage:
        if alone:
            if self.stated and self.finished:
                self.before += Usage(0, self.stated.completion, 0, self.stated.reasoning)
            self.stated, self.finished = usage, False
        return usage + self.before
