"""Errors of backends about a token limit that does not fit, and how many tokens they leave for the response.

A row is one wording. Its groups are numbers of tokens: `window` of the context, `prompt` of the prompt, or `total` and
`limit` of the request, from which the prompt follows; or `room`, the largest limit. A row without groups names nothing
that helps.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

_LONGEST = 2000  # characters of an error that are read
_FIELD = r"max[_ -]?(?:completion|new|output|total)?[_ -]?tokens"
_WINDOW, _PROMPT, _LIMIT, _TOTAL, _ROOM = (
    rf"(?P<{name}>\d+)(?:\.0)?" for name in ("window", "prompt", "limit", "total", "room")
)
_WORDINGS = tuple(
    re.compile(wording, re.IGNORECASE | re.DOTALL)
    for wording in (
        # OpenAI, DeepSeek, vLLM until 0.9, OpenRouter, LiteLLM: "… (100 in the messages, 4000 in the completion)"
        rf"context length is {_WINDOW} tokens.{{0,20}}you requested (?:about )?{_TOTAL} tokens "
        rf"\(.{{1,200}}?{_LIMIT}\s+(?:in|for)\s+the\s+(?:completion|output)\)",
        # SGLang
        rf"context length of {_WINDOW} tokens\. You requested a total of {_TOTAL} tokens: "
        rf"{_PROMPT} tokens from the .{{1,60}}for the completion",
        r"Requested token count exceeds the model's maximum context length",
        # vLLM
        r"your request has \d+ input tokens\. Please reduce the length of the input messages",  # window less limit
        rf"context length is {_WINDOW} tokens.{{1,80}}?\b{_PROMPT} input tokens",
        rf"passed {_PROMPT} input tokens and requested {_LIMIT} output tokens.{{1,40}}context length is only {_WINDOW}",
        r"(?:passed \d+ input characters and )?requested [1-9]\d* output tokens\b(?!.{1,60}input tokens)",
        # TGI
        rf"`inputs` tokens \+ `max_new_tokens` must be <= {_WINDOW}\. Given: {_PROMPT} `inputs`",
        r"`inputs` tokens \+ `max_new_tokens` must be <= \d+\W*$",
        # Anthropic
        rf"input length and `max_tokens` exceed context limit: {_PROMPT} \+ \d+ > {_WINDOW}",
        rf"max_tokens: \d+ > {_ROOM}, which is the maximum",
        # TensorRT-LLM
        rf"prompt length \({_PROMPT}\).{{1,60}}max_(?:new_)?tokens \(\d+\) should not exceed max_seq_len \({_WINDOW}\)",
        # llama-cpp-python
        r"Requested tokens exceed context window",
        # Limits of responses, whatever the prompt: OpenAI, DeepSeek, Groq, TGI
        rf"{_FIELD} is too large: \d+\. This model supports at most {_ROOM} completion tokens",
        rf"valid range of {_FIELD} is \[\d+, ?{_ROOM}\]",
        rf"{_FIELD}\W{{0,3}} must be (?:less than or equal to|at most|no more than|<=) \W?{_ROOM}",
        # Any other words, with both numbers or without
        rf"\A(?=.*{_FIELD})(?=.*(?:context|window|max_model_len|max_seq_len|n_ctx)\D{{1,40}}{_WINDOW})"
        rf"(?=.*?(?<!\d){_PROMPT}(?: of)? (?:\w+ )?(?:input|prompt) tokens)",
        rf"\A(?=.*{_FIELD})(?=.*(?:context|window|max_model_len|max_seq_len|n_ctx)\D{{1,40}}{_WINDOW})"
        rf"(?=.*(?:prompt|input)\b(?!\w)\D{{1,30}}{_PROMPT}\b)",
        rf"{_FIELD}\W.{{0,80}}?(?:too (?:large|high|big)|exceed|(?:greater|larger|higher|more) than"
        r"|must be (?:less|smaller|lower|<))",
    )
)


class Excess(Struct, frozen=True):
    """room: the largest limit that fits, None if the error does not name it."""

    room: int | None


def excess(message: str) -> Excess | None:
    """Return what an error says of a limit that does not fit; None if it is about something else, as a long prompt."""
    text = message[:_LONGEST]
    found = next(filter(None, (wording.search(text) for wording in _WORDINGS)), None)
    if not found:
        return None
    room = _room({name: int(number) for name, number in found.groupdict().items()})
    return None if room is not None and room < 1 else Excess(room)


def _room(named: Mapping[str, int]) -> int | None:
    if "window" not in named:
        return named.get("room")
    return named["window"] - (named["prompt"] if "prompt" in named else named["total"] - named["limit"])
