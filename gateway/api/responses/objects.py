"""Build the objects of the Responses API that are not output items."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Raw, json

from gateway.api.signatures import call_signature
from gateway.errors import Problem
from gateway.events import Logprob, ToolCallStart, ToolKind, TopLogprob, Usage

JsonObject = dict[str, Any]

encode: Callable[[Any], bytes] = json.Encoder().encode

# By kind of tool call: the type of its item, and the prefix of the item's id.
_CALLS: dict[ToolKind, tuple[str, str]] = {
    "function": ("function_call", "fc_"),
    "custom": ("custom_tool_call", "ctc_"),
    "local_shell": ("local_shell_call", "lsh_"),
    "shell": ("shell_call", "sh_"),
    "apply_patch": ("apply_patch_call", "apc_"),
    "tool_search": ("tool_search_call", "tsc_"),
}
# By type of item: the prefix of its id; "item_" for other types.
PREFIXES = {
    **dict(_CALLS.values()),
    "message": "msg_",
    "reasoning": "rs_",
    "function_call_output": "fco_",
    "custom_tool_call_output": "ctco_",
    "shell_call_output": "sho_",
    "apply_patch_call_output": "apco_",
    "tool_search_output": "tso_",
    "web_search_call": "ws_",
    "file_search_call": "fs_",
    "code_interpreter_call": "ci_",
    "image_generation_call": "ig_",
    "mcp_list_tools": "mcpl_",
    "mcp_call": "mcp_",
    "mcp_approval_request": "mcpr_",
    "mcp_approval_response": "mcprs_",
    "compaction": "cmp_",
}
_IMAGE = re.compile(r"(?:data:image/[\w.+-]+;base64,)?([A-Za-z0-9+/=]+)")
_NOWHERE = {"start_index": 0, "end_index": 0}  # the position in the text is unknown
_KEPT_CODES = frozenset(("context_length_exceeded", "insufficient_quota"))


def tool_call_item(start: ToolCallStart, new_id: Callable[[str], str]) -> JsonObject:
    """Return the item of a tool call at its start, without arguments or input."""
    type, prefix = _CALLS[start.kind]
    item = {"id": new_id(prefix), "type": type, "status": "in_progress", "call_id": start.id}
    named = {"name": start.name} if start.kind in ("function", "custom") else {}
    namespace = {"namespace": start.namespace} if start.namespace else {}
    return {**item, **named, **namespace, **call_signature(start)}


def response_usage(counted: Usage) -> JsonObject:
    """Return the `usage` object of a response."""
    return {
        "input_tokens": counted.prompt,
        "input_tokens_details": {"cached_tokens": counted.cached, "cache_write_tokens": counted.cache_written},
        "output_tokens": counted.completion,
        "output_tokens_details": {"reasoning_tokens": counted.reasoning},
        "total_tokens": counted.prompt + counted.completion,
    }


def event_logprobs(items: Iterable[Logprob]) -> list[JsonObject]:
    """Return log-probabilities as events have them: without bytes."""
    return [{**_chance(one), "top_logprobs": list(map(_chance, one.top_logprobs))} for one in items]


def part_logprobs(items: Iterable[Logprob]) -> list[JsonObject]:
    """Return log-probabilities as parts have them: bytes are always a list."""
    return [{**_spelled(one), "top_logprobs": list(map(_spelled, one.top_logprobs))} for one in items]


def url_citation(raw: Raw) -> JsonObject | None:
    """Return a citation in the flat form of the Responses API; None for other kinds of annotations."""
    remark = json.decode(raw)
    if not isinstance(remark, dict) or remark.get("type") not in ("url_citation", "file_citation"):
        return None
    nested = remark.get("url_citation")
    return {"type": "url_citation", **nested} if isinstance(nested, dict) else remark


def citations(raw: Raw) -> list[JsonObject]:
    """Return the annotations for a list of sources, each a URL or an object with one."""
    found = json.decode(raw)
    sources = [{"url": one} if isinstance(one, str) else one for one in found] if isinstance(found, list) else []
    return [
        {"type": "url_citation", "url": one["url"], "title": str(one.get("title") or one["url"]), **_NOWHERE}
        for one in sources
        if isinstance(one, dict) and isinstance(one.get("url"), str)
    ]


def image(raw: Raw) -> JsonObject | None:
    """Return the members of an image generation item; None for an image without its bytes."""
    match json.decode(raw):
        case str(url) | {"image_url": str(url)} | {"image_url": {"url": str(url)}} if found := _IMAGE.fullmatch(url):
            return {"result": found[1]}
    return None


def error_object(problem: Problem) -> JsonObject:
    """Return the error of a failed response.  Clients decide by its code whether to retry."""
    code: str | None = "invalid_prompt" if problem.status < 500 else "server_error"
    if problem.code in _KEPT_CODES:
        code = problem.code
    elif problem.status == 429:
        code = "rate_limit_exceeded"
    return {"code": code, "message": problem.message}


def _chance(of: TopLogprob) -> JsonObject:
    return {"token": of.token, "logprob": of.logprob}


def _spelled(of: TopLogprob) -> JsonObject:
    return {**_chance(of), "bytes": of.bytes or ()}
