"""Convert errors of a backend to the Problem that a client sees (`spec.md` A6)."""

import re

from msgspec import DecodeError, json

from gateway.backends.openai.limits import excess
from gateway.errors import Problem

# A prompt that is too long, in the words of everybody; for a token limit that is too high see limits.py.
_OVERFLOW = re.compile(
    r"maximum (context|prompt) length|(longer than|exceeds) .{0,40}max_model_len"
    r"|exceeds? the (available|maximum|model'?s)? ?(context|number of tokens)"
    r"|exceeds?( the)? maximum (allowed )?(input )?length"
    r"|context (length|window|size) (has been )?(exceeded|of)|context length is only|context (the )?overflow"
    r"|(prompt|input)( \(.{0,40}\))? is too long|longer than the (model's )?(context|maximum)"
    r"|greater than the context length|n_keep .{0,40}n_ctx"  # LM Studio
    r"|requested tokens exceed context"  # llama-cpp-python
    r"|`inputs` (tokens \+ `max_new_tokens` must be <=|must have less than)"  # TGI
    r"|input length of input_ids is \d+, but `max_length`"  # transformers
    r"|token count .{0,40}exceeds the (limit|maximum)|reduce the length of the messages"
    r"|max_(completion_)?tokens must be at least 1, got -",  # vLLM, which made that limit itself
    re.IGNORECASE,
)
_OVERFLOWS = frozenset(  # as the word of an error
    ("context_length_exceeded", "context_window_exceeded", "exceed_context_size_error", "model_context_window_exceeded")
)
_CLIENTS_FAULT = re.compile(  # llama.cpp answers these with 500
    r"failed to parse (messages|tools|input)|requires --jinja|is not supported|missing tool|unable to generate parser"
    r"|missing function|failed to initialize samplers|invalid (json schema|grammar)",
    re.IGNORECASE,
)
_NO_MODEL = {  # by status
    404: re.compile(r"model\b.*\b(not found|does not exist|not loaded)|no such model|unknown model", re.IGNORECASE),
    400: re.compile(r"^server is pinned to '", re.IGNORECASE),  # transformers
}
_PLACE = re.compile(r"\.(\d+)(?=\.|$)")  # in a list, as Pydantic writes it
_UNREADABLE = "The backend answered {} without an error that can be read."


def problem_from_status(status: int, body: bytes) -> Problem:
    """For an answer with a status that is not 200."""
    try:
        said = json.decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        said = None
    return _mapped(status, _message(said) or _UNREADABLE.format(status), _word(said), _param(said))


def problem_from_error_object(error: object) -> Problem:
    """For an error object inside an answer with status 200, whole or streamed."""
    inner = _inner(error)
    code = inner.get("code") if isinstance(inner, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return _mapped(status, _message(error) or "The backend reported an error.", _word(error), _param(error))


def _mapped(status: int, message: str, word: str | None, param: str | None) -> Problem:
    if status in (401, 403):
        return Problem(502, "The backend refused the gateway's credentials.", "upstream_auth_error")
    if status != 429 and (too_long := _too_long(message, word)):
        return too_long
    if status in _NO_MODEL and (word == "model_not_found" or _NO_MODEL[status].search(message)):
        return Problem(404, message, "model_not_found", "model")
    if status == 404:
        return Problem(502, message, "upstream_error")
    if status in (400, 422) or (status == 500 and _CLIENTS_FAULT.search(message)):
        return Problem(400, message, word, param)
    return _by_status(status, message)


def _too_long(message: str, word: str | None) -> Problem | None:
    """Return the problem of a prompt, or of a token limit beside it, that does not fit."""
    found = excess(message)
    if found and found.room:
        return Problem(400, message, None if word in _OVERFLOWS else word, "max_tokens")
    if word in _OVERFLOWS or _OVERFLOW.search(message):
        return Problem(400, message, "context_length_exceeded", "messages")
    return None


def _by_status(status: int, message: str) -> Problem:
    loading = "loading" in message.lower()
    fixed = {
        413: Problem(413, message, "request_too_large"),
        429: Problem(429, message, "rate_limit_exceeded"),
        501: Problem(400, message, "unsupported_value"),
        503: Problem(503, message, "model_loading" if loading else "server_is_overloaded"),
        504: Problem(504, message, "upstream_timeout"),
    }
    return fixed.get(status, Problem(502, message, "upstream_error"))


def _inner(said: object) -> object:
    """The error itself; Ollama repeats that of its runner, which is JSON, as the text of its own."""
    inner = said.get("error", said) if isinstance(said, dict) else said
    if isinstance(inner, str) and inner.startswith("{"):
        try:
            return _inner(json.decode(inner))
        except (DecodeError, RecursionError):
            return inner
    return inner


def _message(said: object) -> str:
    """The text of an error in any of the shapes that servers have."""
    inner = _inner(said)
    if isinstance(inner, dict):
        inner = inner.get("message") or inner.get("detail") or ""
    if isinstance(inner, list):  # FastAPI's validation errors
        return "; ".join(str(one.get("msg", one)) if isinstance(one, dict) else str(one) for one in inner)
    return str(inner or "")


def _word(said: object) -> str | None:
    """The machine-readable word of an error, if it has one that says more than its status."""
    kind = _text(said, "type")
    return _text(said, "code") or (kind if kind == "exceed_context_size_error" else None)


def _param(said: object) -> str | None:
    """The place of an error; vLLM's begins with the body, and has the places of lists between dots."""
    param = _text(said, "param")
    return param and _PLACE.sub(r"[\1]", param.removeprefix("body."))


def _text(said: object, name: str) -> str | None:
    inner = _inner(said)
    value = inner.get(name) if isinstance(inner, dict) else None
    return value if isinstance(value, str) and value else None
