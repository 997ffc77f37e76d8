"""The body of a legacy completion, decoded once, as a neutral Request and what its encoder has to know."""

from typing import Any

from msgspec import Struct

from gateway.endpoints.body import check_stream_options, decode_body
from gateway.endpoints.completions.fields import body as check_body
from gateway.endpoints.counts import COUNTS, Counts
from gateway.endpoints.texts import text_list
from gateway.errors import BadRequest
from gateway.request import Request

_OWN = frozenset(("model", "max_tokens", "stream"))
_MAX_TOKENS = 16  # the API's own limit where a client names none


class CompletionParams(Struct, frozen=True, kw_only=True):
    """A completion as it was asked for.

    request: without messages; `prompt` and `n` are in its `rest`, and its own `n` is the choices of all prompts.
    include_usage, continuous_usage: a count at the end, with each chunk.
    logprobs: how many candidates are wanted besides each token; None: nothing of the kind.
    """

    request: Request
    include_usage: bool = False
    continuous_usage: bool = False
    logprobs: int | None = None


def parse_completion(raw: bytes, counts: Counts = COUNTS) -> CompletionParams:
    """Raise BadRequest, in OpenAI's words, for what the API does not allow."""
    body = decode_body(raw, counts)
    check_body(body, "")
    _check_together(body)
    options = body.get("stream_options") or {}
    request = Request(
        model=body["model"],
        messages=(),
        max_tokens=body.get("max_tokens", _MAX_TOKENS),
        n=len(text_list(body["prompt"])) * body.get("n", 1),
        stream=body.get("stream", False),
        rest={name: value for name, value in body.items() if name not in _OWN},
    )
    return CompletionParams(
        request=request,
        include_usage=options.get("include_usage") or False,
        continuous_usage=options.get("continuous_usage_stats") is True,
        logprobs=body.get("logprobs"),
    )


def _check_together(body: dict[str, Any]) -> None:
    check_stream_options(body)
    n, best_of = body.get("n", 1), body.get("best_of")
    if best_of is not None and best_of < n:
        raise BadRequest(f"'best_of' ({best_of}) must be at least 'n' ({n}).", code="invalid_value", param="best_of")
    if best_of is not None and best_of > n and body.get("stream"):
        message = "'best_of' cannot be streamed where it is greater than 'n'."
        raise BadRequest(message, code="invalid_value", param="best_of")
