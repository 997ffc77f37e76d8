"""Read token counts under all names and types that servers use, or estimate them (see `events.Usage`)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from json import JSONDecoder
from typing import Any

from msgspec import ValidationError, convert
from msgspec.structs import replace

from gateway.backends.openai.wire import LenientNumber, TokenDetails, WireChunk, WireUsage
from gateway.errors import UpstreamInvalid
from gateway.events import Usage
from gateway.warnings import Warnings

_NO_DETAILS = TokenDetails()
_MAX = (1 << 53) - 1  # the largest integer that is exact in JavaScript
CHARACTERS_PER_TOKEN = 4
_USAGE = re.compile(r'"usage"\s*:\s*(?=\{)')


def count_value(value: LenientNumber) -> int:
    """Return a token count as an integer; 0 if it is no number, negative, or above 2^53 - 1.

    Strings, floats and booleans are accepted.  Some clients cannot read larger numbers.
    """
    if type(value) is int:
        return value if 0 < value <= _MAX else 0
    if not value:
        return 0
    try:
        return count_value(int(float(value)))
    except (TypeError, ValueError, OverflowError):
        return 0


def usage_from_counts(counts: WireUsage) -> Usage | None:
    """Return the usage that these members state; None if no token is counted."""
    prompt = count_value(counts.prompt_tokens) or _prompt(counts)
    completion = count_value(counts.completion_tokens) or _completion(counts)
    if not (prompt and completion):  # the total may yield the missing count
        missing = max(count_value(counts.total_tokens) - prompt - completion, 0)
        prompt, completion = prompt or missing, completion or (missing if prompt else 0)
    if not (prompt or completion):
        return None
    made = counts.completion_tokens_details or counts.output_tokens_details
    reasoning = (made.reasoning_tokens if made else 0) or counts.reasoning_tokens
    read = counts.prompt_tokens_details or counts.input_tokens_details
    cached, cache_written = _cache(counts, read or _NO_DETAILS)
    return Usage(prompt, completion, cached, count_value(reasoning) if reasoning else 0, cache_written)


def usage_at_end(tail: bytes) -> Usage | None:
    """Return the last usage in the end of a response, in JSON or events; None without one."""
    text = tail.decode("utf-8", "replace")
    for found in reversed([*_USAGE.finditer(text)]):
        try:
            counts, _ = JSONDecoder().raw_decode(text, found.end())
            return usage_from_counts(convert(counts, WireUsage))
        except (ValueError, ValidationError, RecursionError):
            continue
    return None


def usage_from_timings(timings: Mapping[str, Any]) -> Usage | None:
    """Return the usage from llama.cpp's timings; None without counts.

    The timings count tokens from the cache, tokens read, and tokens written.
    """
    cached, written = count_value(timings.get("cache_n")), count_value(timings.get("predicted_n"))
    prompt = cached + count_value(timings.get("prompt_n"))
    return Usage(prompt, written, cached) if prompt or written else None


def _prompt(counts: WireUsage) -> int:
    """Return the prompt tokens under another name.

    Under Anthropic's names, `input_tokens` excludes the tokens read from and written to the cache.
    """
    return (
        sum(map(count_value, (counts.input_tokens, counts.cache_read_input_tokens, counts.cache_creation_input_tokens)))
        or count_value(counts.prompt_eval_count)
        or count_value(counts.tokens_evaluated)
    )


def _completion(counts: WireUsage) -> int:
    """Return the completion tokens under another name."""
    return count_value(counts.output_tokens) or count_value(counts.eval_count) or count_value(counts.tokens_predicted)


def _cache(counts: WireUsage, read: TokenDetails) -> tuple[int, int]:
    """Return the prompt tokens read from the cache, and those written to it."""
    came = (
        read.cached_tokens or counts.cached_tokens or counts.cache_read_input_tokens or counts.prompt_cache_hit_tokens
    )
    went = read.cache_write_tokens or read.created_cache_tokens or counts.cache_creation_input_tokens
    return count_value(came) if came else 0, count_value(went) if went else 0


def split_reasoning_tokens(usage: Usage, thought: int, total: int) -> Usage:
    """Return the usage with the reasoning tokens estimated by their share of the characters.

    thought: the characters of the reasoning.
    total: the characters of all of the response.
    """
    return replace(usage, reasoning=min(-(-usage.completion * thought // max(total, thought)), usage.completion))


@dataclass(slots=True)
class UsageTotal:
    """Add up the usage that a server states per choice.

    A repeated statement replaces the one before.  Moonshot states the usage of a choice in the choice, and that of all
    choices in the last chunk.  With n > 1, llama.cpp states that of one choice in a chunk of its own, after that
    choice's finish reason.
    """

    choices: dict[int, Usage] = field(default_factory=dict)
    stated: Usage | None = None
    before: Usage | None = None
    finished: bool = False

    def of_choice(self, index: int, usage: Usage) -> Usage:
        """Return the total with the usage that a choice states."""
        self.choices[index] = usage
        return sum((_written(other) for place, other in self.choices.items() if place != index), start=usage)

    def add(self, usage: Usage, alone: bool) -> Usage:
        """Return the total with this usage.  `alone`: its chunk has no choices, and there are several."""
        if alone and not self.choices:
            if self.stated and self.finished:
                other = _written(self.stated)
                self.before = self.before + other if self.before else other
            if self.stated or self.finished:  # before that it is a forecast, which some servers begin with
                self.stated = usage
            self.finished = False
        return usage + self.before if self.before else usage


def _written(usage: Usage) -> Usage:
    """Return the usage without the prompt, which all choices share."""
    return Usage(0, usage.completion, reasoning=usage.reasoning)


def list_entries(data: Any, *names: str) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - decoded JSON
    """Yield the objects of a response that is a list, or that has a list under one of these names.

    Raises UpstreamInvalid if there is no such list of objects.
    """
    lists = [data, *(data.get(name) for name in names)] if isinstance(data, dict) else [data]
    found = next((one for one in lists if isinstance(one, list)), None)
    if found is None or not all(isinstance(entry, dict) for entry in found):
        raise UpstreamInvalid(f"The backend's response has no list '{names[0]}'.")
    yield from found


def service_usage(data: Any, characters: int, ledger: Warnings) -> dict[str, int]:  # noqa: ANN401 - decoded JSON
    """Return the usage of the tokens that the backend read.

    If the backend states none, the usage is estimated from the characters, with a warning.
    """
    counts = data.get("usage") if isinstance(data, dict) else None
    counts = counts if isinstance(counts, dict) else {}
    known = count_value(counts.get("prompt_tokens")) or count_value(counts.get("total_tokens"))
    if not known:
        ledger.add("estimated", "usage")
    count = known or estimate_tokens_from_characters(characters)
    return {"prompt_tokens": count, "total_tokens": count}


def estimate_tokens_from_characters(characters: int) -> int:
    """Return a rough number of tokens for a number of characters, rounded up."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def text_characters(data: Any) -> int:  # noqa: ANN401 - decoded JSON
    """Return the number of characters of all texts.

    A number is one token of a prompt given as tokens.  Data URLs do not count, as files are no text.
    """
    match data:
        case str():
            return 0 if data.startswith("data:") else len(data)
        case dict():
            return sum(map(text_characters, data.values()))
        case list() | tuple():
            return sum(map(text_characters, data))
        case int():
            return CHARACTERS_PER_TOKEN
    return 0


def usage_beside_choices(chunk: WireChunk) -> Usage | None:
    """Return the usage of a chunk that has none in `usage`."""
    groq = chunk.x_groq.usage if chunk.x_groq else None
    usage = (usage_from_counts(groq) if groq else None) or usage_from_counts(chunk)
    return usage_from_timings(chunk.timings) if not usage and isinstance(chunk.timings, dict) else usage


def has_counts_beside_choices(chunk: WireChunk) -> bool:
    """Return True if a chunk has token counts beside its choices."""
    prompt = chunk.prompt_tokens or chunk.prompt_eval_count or chunk.input_tokens or chunk.tokens_evaluated
    written = chunk.completion_tokens or chunk.eval_count or chunk.output_tokens or chunk.tokens_predicted
    return bool(prompt or written)
