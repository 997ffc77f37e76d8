"""Tokens, from whatever names and types a server has for them (the promise of `events.Usage`)."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

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


def _first(*said: Count) -> int:
    """The first that is a count of something, else 0."""
    for one in said:
        if one and (count := number(one)):
            return count
    return 0


def counted(counts: Counts) -> Usage | None:
    """None if nothing was counted."""
    prompt, completion = _prompt(counts), _completion(counts)
    if not (prompt and completion):  # a total may know of the other
        missing = max(number(counts.total_tokens) - prompt - completion, 0)
        prompt, completion = prompt or missing, completion or (missing if prompt else 0)
    if not (prompt or completion):
        return None
    read = counts.prompt_tokens_details or counts.input_tokens_details or _NO_DETAILS
    made = counts.completion_tokens_details or counts.output_tokens_details or _NO_DETAILS
    cached = _first(read.cached_tokens, counts.cache_read_input_tokens, counts.prompt_cache_hit_tokens)
    kept = _first(read.cache_write_tokens, read.created_cache_tokens, counts.cache_creation_input_tokens)
    return Usage(prompt, completion, cached, _first(made.reasoning_tokens), kept)


def timed(timings: Mapping[str, Any]) -> Usage | None:
    """The same from llama.cpp's timings: tokens from the cache, tokens read, tokens written."""
    cached, written = number(timings.get("cache_n")), number(timings.get("predicted_n"))
    prompt = cached + number(timings.get("prompt_n"))
    return Usage(prompt, written, cached) if prompt or written else None


def _prompt(counts: Counts) -> int:
    """By Anthropic's names, what came from or went to the cache is not in input_tokens."""
    return (
        _first(counts.prompt_tokens)
        or sum(map(number, (counts.input_tokens, counts.cache_read_input_tokens, counts.cache_creation_input_tokens)))
        or _first(counts.prompt_eval_count, counts.tokens_evaluated)
    )


def _completion(counts: Counts) -> int:
    return _first(counts.completion_tokens, counts.output_tokens, counts.eval_count, counts.tokens_predicted)


def shared(usage: Usage, thought: int, said: int) -> Usage:
    """The same, with as much of the answer's tokens for reasoning as it has of the answer's characters."""
    return replace(usage, reasoning=min(-(-usage.completion * thought // max(said, thought)), usage.completion))


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
                self.before += Usage(0, self.stated.completion, reasoning=self.stated.reasoning)
            self.stated, self.finished = usage, False
        return usage + self.before
