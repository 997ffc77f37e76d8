"""Convert a Problem to an error of Anthropic's API: its status, its type, its message and its body.

A path that stands as `messages[0].content[1]` in a Problem is `messages.0.content.1` here, before the message.
"""

import re
from typing import Any

from msgspec import json

from gateway.errors import BadRequest, Problem

ErrorObject = dict[str, Any]

THREAD_UNSUPPORTED = "thread_unsupported_request"
_OVERLOADED = 529
_STATUSES = {503: _OVERLOADED}
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    _OVERLOADED: "overloaded_error",
}
_DETAILED = frozenset((THREAD_UNSUPPORTED,))  # codes that clients read
_BUSY = (429, 503)
_INDEX = re.compile(r"\[(\d+)\]")
_LEAD = re.compile(r"Invalid (?:type for |value for )?'[^']*': ")
_QUOTED = re.compile(r"'([^']+)'")
_TOO_LONG = "prompt is too long"
_WINDOW = re.compile(r"(?:context|window|maximum|max_model_len|n_ctx)\D{1,40}(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_LONGEST = 2000  # characters of a message that are searched for numbers


def refused(text: str, param: str, code: str = "invalid_value") -> BadRequest:
    """Return an error in the form of Anthropic's API.  param: the path, with list indexes in brackets."""
    return BadRequest(f"{dotted_path(param)}: {text}", code=code, param=param)


def dotted_path(param: str) -> str:
    """Return a path as Anthropic's API writes it."""
    return _INDEX.sub(r".\1", param)


def error_status(problem: Problem) -> int:
    """Return the HTTP status of a problem."""
    return _STATUSES.get(problem.status, problem.status)


def error_body(problem: Problem, request_id: str) -> bytes:
    """Return the body of an error response."""
    status = error_status(problem)
    type = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return json.encode(_error_object(type, problem, request_id))


def stream_error(problem: Problem, request_id: str) -> ErrorObject:
    """Return the payload of an error amid a stream, which has no status."""
    return _error_object("overloaded_error" if problem.status in _BUSY else "api_error", problem, request_id)


def error_message(problem: Problem) -> str:
    """Return the message: the words that clients act on, or the path with its error."""
    text, path = problem.message, dotted_path(problem.param or "")
    if problem.code == "context_length_exceeded":
        return _too_long(text)
    if problem.code == "model_not_found":
        name = _QUOTED.search(text)
        return f"model: {name[1]}. {text}" if name else f"model: {text}"
    if not path or text.startswith(f"{path}: "):
        return text
    if problem.code == "missing_required_parameter":
        return f"{path}: Field required"
    return f"{path}: {_LEAD.sub('', text, count=1)}"


def _error_object(type: str, problem: Problem, request_id: str) -> ErrorObject:
    error: ErrorObject = {"type": type, "message": error_message(problem)}
    if problem.code in _DETAILED:
        error["details"] = {"error_code": problem.code}
    return {"type": "error", "error": error, "request_id": request_id}


def _too_long(text: str) -> str:
    """Return the message of an overlong prompt, with the backend's numbers if it gives any."""
    if text.lower().startswith(_TOO_LONG):
        return text
    found = _WINDOW.search(text[:_LONGEST])
    window = int(found[1]) if found else 0
    largest = max(map(int, _NUMBER.findall(text[:_LONGEST])), default=0)
    if window and largest > window:
        return f"{_TOO_LONG}: {largest} tokens > {window} maximum"
    return f"{_TOO_LONG}: {text}"
