"""Reduce a token limit that does not fit beside the prompt: to the window before the request, or after an error.

Many clients always send 32,000 tokens or more.  Some servers refuse this, however short the prompt is.
"""

from msgspec.structs import replace

from gateway.backends.openai.error_mapping import excess
from gateway.errors import Problem
from gateway.request import Request
from gateway.server.limits.rate_limiter import estimate_tokens
from gateway.server.upstream import model_registry
from gateway.server.upstream.model_registry import BackendRoute
from gateway.warnings import Warnings

_NAMES = {"input": "max_output_tokens", "prompt": "max_tokens"}  # by the API's name of the messages


def name(request: Request, conversation: str) -> str:
    """Return the name that the limit has in a request."""
    newer = "max_completion_tokens" in request.rest
    return _NAMES.get(conversation) or ("max_completion_tokens" if newer else "max_tokens")


def fitted(request: Request, route: BackendRoute, ledger: Warnings, name: str) -> Request:
    """Return the request with a limit within the window, if the window is known without asking.

    The prompt is only estimated, so it takes at most a quarter of the window here; the backend knows better.
    """
    limit = request.max_tokens
    known = model_registry.remembered(route) if limit else None
    if not limit or not known or limit <= known * 3 // 4:
        return request
    prompt = max(estimate_tokens(replace(request, max_tokens=None)), 1)
    room = max(known - prompt, known * 3 // 4, 1)
    if limit <= room:
        return request
    ledger.add("translated", name)
    return replace(request, max_tokens=room)


def smaller(request: Request, problem: Problem, *, again: bool) -> Request | None:
    """Return the request with the limit that an error leaves, else without one; None if the error is not about it.

    again: the server has refused such a limit as well, as some servers count only the beginning of a prompt.
    """
    found = excess(problem.message) if problem.status == 400 else None
    if not found:
        return None
    limit, room = request.max_tokens, found.room
    if room and not again and (limit is None or room < limit):
        return replace(request, max_tokens=room)
    return None if limit is None else replace(request, max_tokens=None)
