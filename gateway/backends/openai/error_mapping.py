"""Convert error responses of backends to the Problem that a client sees (`spec.md` A6).

Each row of `_WORDINGS` is one wording of a token limit that does not fit.  Its groups are numbers of tokens.  `window`
is the context, `prompt` the prompt, and `room` the largest limit.  `total` and `limit` of the request yield the prompt.
A row without groups states no useful number.
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import ceil
from types import MappingProxyType
from typing import Any

from msgspec import DecodeError, Struct, json

from gateway.errors import Problem

_NUMBER = re.compile(r"\d{1,9}(\.\d*)?", re.ASCII)
_LONGEST = 2000  # characters of an error message that are searched
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
        r"your request has \d+ input tokens\. Please reduce the length of the input messages",  # window minus limit
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
        # Limits of the response that do not depend on the prompt: OpenAI, DeepSeek, Groq, TGI
        rf"{_FIELD} is too large: \d+\. This model supports at most {_ROOM} completion tokens",
        rf"valid range of {_FIELD} is \[\d+, ?{_ROOM}\]",
        rf"{_FIELD}\W{{0,3}} must be (?:less than or equal to|at most|no more than|<=) \W?{_ROOM}",
        # Other wordings, with both numbers or with none
        rf"\A(?=.*{_FIELD})(?=.*(?:context|window|max_model_len|max_seq_len|n_ctx)\D{{1,40}}{_WINDOW})"
        rf"(?=.*?(?<!\d){_PROMPT}(?: of)? (?:\w+ )?(?:input|prompt) tokens)",
        rf"\A(?=.*{_FIELD})(?=.*(?:context|window|max_model_len|max_seq_len|n_ctx)\D{{1,40}}{_WINDOW})"
        rf"(?=.*(?:prompt|input)\b(?!\w)\D{{1,30}}{_PROMPT}\b)",
        rf"{_FIELD}\W.{{0,80}}?(?:too (?:large|high|big)|exceed|(?:greater|larger|higher|more) than"
        r"|must be (?:less|smaller|lower|<))",
    )
)

# All known wordings for a prompt that is too long.  `_WORDINGS` has those for a token limit that is too high.
_OVERFLOW = re.compile(
    r"maximum (context|prompt) length|(longer than|exceeds) .{0,40}max_model_len"
    r"|exceeds? the (available|maximum|model'?s)? ?(context|number of tokens)"
    r"|exceeds?( the)? maximum (allowed )?(input )?length"
    r"|exceed(s|ed) this model'?s? context"  # Cloudflare
    r"|context (length|window|size) (has been )?(exceeded|of)|context length is only|context (the )?overflow"
    r"|(prompt|input)( \(.{0,40}\))? is too long|longer than the (model's )?(context|maximum)"
    r"|greater than the context length|n_keep .{0,40}n_ctx"  # LM Studio
    r"|requested tokens exceed context"  # llama-cpp-python
    r"|`inputs` (tokens \+ `max_new_tokens` must be <=|must have less than)"  # TGI
    r"|input length of input_ids is \d+, but `max_length`"  # transformers
    r"|token count .{0,40}exceeds the (limit|maximum)|reduce the length of the messages"
    r"|max_(completion_)?tokens must be at least 1, got -",  # vLLM, after computing the limit itself
    re.IGNORECASE,
)
_OVERFLOWS = frozenset(  # error codes
    ("context_length_exceeded", "context_window_exceeded", "exceed_context_size_error", "model_context_window_exceeded")
)
_NO_CREDIT = "insufficient_quota"
_NO_CREDITS = (_NO_CREDIT, "exceeded_current_quota_error", "1113")  # OpenAI, Moonshot, z.ai
_TYPES_WITH_A_MEANING = ("exceed_context_size_error", *_NO_CREDITS)  # types of errors that may have no such code
_CLIENTS_FAULT = re.compile(  # llama.cpp reports these with status 500
    r"failed to parse (messages|tools|input)|requires --jinja|is not supported|missing tool|unable to generate parser"
    r"|missing function|failed to initialize samplers|invalid (json schema|grammar)"
    r"|does not support multimodal|failed to load image|failed to tokenize prompt",
    re.IGNORECASE,
)
_NO_MODEL = {  # by status
    404: re.compile(
        r"model\b.*\b(not found|does not exist|not loaded)|no such model|unknown model|^model: ", re.IGNORECASE
    ),
    400: re.compile(r"^server is pinned to '", re.IGNORECASE),  # transformers
}
_STATUS = re.compile(r"[45]\d\d", re.ASCII)
# The status of an error that only its type or code tells: Anthropic in a stream, proxies before OpenAI's services.
_STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "invalid_request_error": 400,
        "authentication_error": 401,
        "billing_error": 402,
        "permission_error": 403,
        "not_found_error": 404,
        "request_too_large": 413,
        "rate_limit_error": 429,
        "rate_limit_exceeded": 429,
        **dict.fromkeys(_NO_CREDITS, 429),
        "timeout_error": 504,
        "overloaded_error": 529,
    }
)
_TEXTS = ("message", "detail", "errors")  # the members with the text of an error
_PLACE = re.compile(r"\.(\d+)(?=\.|$)")  # a list index, as Pydantic writes it
_KEY_REJECTED = re.compile(
    r"\A\W*(incorrect api key|api key (not valid|expired|not found))", re.IGNORECASE
)  # xAI, Gemini
_FILTERED = ("content_policy_violation", "content_filter")  # error codes
_FILTER = re.compile(  # OpenRouter, xAI, Mistral: filters that refuse a request with 403
    r"moderation|\bflagged\b|guardrail|prompt injection|violates? .{0,40}(guideline|polic)"
    r"|content (filter|policy|safety)|safety_check",
    re.IGNORECASE,
)
_UNPAID = re.compile(  # xAI, SiliconFlow, Volcengine: accounts without credit, with 403
    r"\bcredits\b|spending limit|\b(insufficient|overdue) .{0,20}balance|balance .{0,20}insufficient", re.IGNORECASE
)
_REFUSED_CONTENT = "A content filter of the backend refused the request (HTTP 403)."
_WRONG_KEY = "The backend rejected the gateway's API key. The operator must check 'api_key'."
_NO_ACCESS = (
    "The backend refuses access (HTTP 403): the account of the gateway's API key may lack the right to this model, or "
    "the region may not be served. The operator must check 'api_key'."
)
_NOT_PAID = (
    "The account of the gateway's API key has no credit left at the backend, or has reached its limit (HTTP 403). The "
    "operator must check it."
)
_NO_PATH = "If the backend has no such path, its 'url' or 'kind' in the configuration is wrong."
_UNREADABLE = "The backend returned HTTP {} without a readable error."
_ENCODED = (
    "The backend returned HTTP {} with an error that the gateway cannot decode (content-encoding: {}). Switch "
    "compression off at the server or its proxy."
)


class Excess(Struct, frozen=True):
    """A token limit that does not fit the context.

    room: the largest limit that fits; None if the error does not state it.
    """

    room: int | None


def excess(message: str) -> Excess | None:
    """Return the token limit error that a message reports.

    None stands for any other error, such as a prompt that is too long.
    """
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


def problem_from_status(status: int, body: bytes, encoding: str = "") -> Problem:
    """Return the Problem for a response with a status other than 200.

    encoding: the content-encoding of a body that cannot be decoded; `body` is empty then.
    """
    try:
        data = json.decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        data = None
    unreadable = _ENCODED if encoding else _UNREADABLE
    return _mapped(status, _message(data) or unreadable.format(status, encoding), _word(data), _param(data))


def problem_from_error_object(error: object) -> Problem:
    """Return the Problem for an error object in a response with status 200, whole or streamed."""
    return _mapped(
        _stated_status(_inner(error)),
        _message(error) or "The backend reported an error without a message.",
        _word(error),
        _param(error),
    )


def _stated_status(error: object) -> int:
    """Return the status that follows from the code or the type of an error; 500 if none does."""
    stated = (error.get("code"), error.get("type")) if isinstance(error, dict) else ()
    for one in stated:
        if isinstance(one, str) and one in _STATUSES:
            return _STATUSES[one]
        status = int(one) if isinstance(one, str) and _STATUS.fullmatch(one) else one
        if isinstance(status, int) and 400 <= status < 600:
            return status
    return 500


def _mapped(status: int, message: str, word: str | None, param: str | None) -> Problem:
    if status == 400 and _KEY_REJECTED.search(message[:_LONGEST]):
        status = 401
    if status not in (401, 429) and (too_long := _too_long(message, word)):
        return too_long
    if status in _NO_MODEL and (word == "model_not_found" or _NO_MODEL[status].search(message)):
        return Problem(404, message, "model_not_found", "model")
    if status == 404:
        return Problem(502, f"{message.rstrip('.')}. {_NO_PATH}", "upstream_error")
    if status in (400, 422) or (status == 500 and _CLIENTS_FAULT.search(message)):
        return Problem(400, message, word, param)
    return _by_status(status, message, word)


def _forbidden(message: str, word: str | None) -> Problem:
    """Return the Problem for a 403, without the backend's words, which may name the operator's account or key."""
    if word in _FILTERED or _FILTER.search(message[:_LONGEST]):
        return Problem(400, _REFUSED_CONTENT, _FILTERED[0])
    if word in _NO_CREDITS or _UNPAID.search(message[:_LONGEST]):
        return Problem(429, _NOT_PAID, _NO_CREDIT)
    return Problem(502, _NO_ACCESS, "upstream_auth_error")


def _too_long(message: str, word: str | None) -> Problem | None:
    """Return the Problem for a prompt or a token limit that does not fit; None for any other error."""
    found = excess(message)
    if found and found.room:
        return Problem(400, message, None if word in _OVERFLOWS else word, "max_tokens")
    if word in _OVERFLOWS or _OVERFLOW.search(message):
        return Problem(400, message, "context_length_exceeded", "messages")
    return None


def _by_status(status: int, message: str, word: str | None) -> Problem:
    loading = "loading" in message.lower()
    fixed = {
        401: Problem(502, _WRONG_KEY, "upstream_auth_error"),
        402: Problem(429, message, _NO_CREDIT),  # Anthropic, DeepSeek, OpenRouter
        403: _forbidden(message, word),
        408: Problem(504, message, "upstream_timeout"),  # OpenRouter
        413: Problem(413, message, "request_too_large"),
        429: Problem(429, message, _NO_CREDIT if word in _NO_CREDITS else "rate_limit_exceeded"),
        501: Problem(400, message, "unsupported_value"),
        503: Problem(503, message, "model_loading" if loading else "server_is_overloaded"),
        504: Problem(504, message, "upstream_timeout"),
        529: Problem(503, message, "server_is_overloaded"),  # Anthropic
    }
    return fixed.get(status, Problem(502, message, "upstream_error"))


def _inner(data: object) -> object:
    """Return the error object itself.

    Ollama's error text may be the JSON of its runner's error, which is then unwrapped.  Gemini's is in a list of one.
    Mistral's `message` may be FastAPI's object with `detail`.
    """
    if isinstance(data, list) and len(data) == 1 and isinstance(data[0], dict) and "error" in data[0]:
        data = data[0]
    inner = data.get("error", data) if isinstance(data, dict) else data
    if isinstance(inner, str) and inner.startswith("{"):
        try:
            return _inner(json.decode(inner))
        except (DecodeError, RecursionError):
            return inner
    if isinstance(inner, dict) and isinstance(inner.get("message"), dict):
        return inner["message"]
    return inner


def _message(data: object) -> str:
    """Return the text of an error in any of the shapes that servers use."""
    inner = _inner(data)
    if isinstance(inner, dict):
        inner = next(filter(None, map(inner.get, _TEXTS)), "")
    if isinstance(inner, list):
        return "; ".join(map(_validation_message, inner))
    return str(inner or "")


def _validation_message(error: object) -> str:
    """Return the text of one of several errors: FastAPI's behind the path of its field, Cloudflare's alone."""
    if not isinstance(error, dict):
        return str(error)
    path, text = ".".join(map(str, _validation_path(error))), error.get("msg") or error.get("message") or error
    return f"{path}: {text}" if path else str(text)


def _validation_path(error: object) -> list[Any]:
    """Return the path of a field in the body; empty for an error of the body itself."""
    match error:
        case {"loc": ["body", str(name), *inner]}:
            return [name, *inner]
    return []


def _word(data: object) -> str | None:
    """Return the error code, if it says more than the status."""
    kind = _text(data, "type")
    return _text(data, "code") or (kind if kind in _TYPES_WITH_A_MEANING else None)


def _param(data: object) -> str | None:
    """Return the path of the faulty field.

    vLLM's path begins with `body`, and has list indices between dots.  FastAPI's has names of types, so only its first
    name counts.
    """
    details = _inner(data)
    details = details.get("detail") if isinstance(details, dict) else None
    if isinstance(details, list) and details and (path := _validation_path(details[0])):
        return str(path[0])
    param = _text(data, "param")
    return param and _PLACE.sub(r"[\1]", param.removeprefix("body."))


def _text(data: object, name: str) -> str | None:
    inner = _inner(data)
    value = inner.get(name) if isinstance(inner, dict) else None
    return value if isinstance(value, str) and value else None


def stated_wait(headers: Mapping[str, str], now: float) -> str | None:
    """Return the wait in whole seconds, as a `retry-after` that all clients read; None if the response states none.

    now: Unix time.  A date counts from that of the response, as the clocks may differ.
    """
    stated = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(stated):
        return str(ceil(float(stated)))
    milliseconds = headers.get("retry-after-ms", "").strip()  # OpenAI, Azure
    if _NUMBER.fullmatch(milliseconds):
        return str(ceil(float(milliseconds) / 1000))
    if (until := _time(stated)) is None:
        return None
    sent = _time(headers.get("date", ""))
    return str(max(0, ceil(until - (now if sent is None else sent))))


def _time(date: str) -> float | None:
    """Return the Unix time of an HTTP date; None for anything else."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
