"""A neutral Request as the body of a chat completion that a kind of server takes; what it does not is in the ledger."""

import re
from collections.abc import Set
from typing import Any

from msgspec import Struct, json

from gateway.backends import Kind
from gateway.backends.openai.messages import Policy, messages
from gateway.ledger import Ledger
from gateway.request import Message, Named, Request, Tool

_encode = json.Encoder().encode
_UNFIT = re.compile(r"[^!-+\--~]+")  # for a list in a header: all but visible ASCII without the comma
_LIMITS = ("max_completion_tokens", "max_tokens")
_EXTRAS = {  # what a client sends → what it gets for it, in fields that the API does not have
    "prompt_logprobs": ("prompt_logprobs",),
    "return_token_ids": ("token_ids", "prompt_token_ids"),
    "kv_transfer_params": ("kv_transfer_params",),
    "return_progress": ("prompt_progress",),
    "timings_per_token": ("timings",),
}


class Target(Struct, frozen=True):
    """Whom a request is put to.  `model` is the backend's name for it.

    parsed_here: calls are looked for in the model's text, so the server needs no parser of its own for them.
    special: the tags in the model's text are special tokens.
    """

    model: str
    kind: Kind
    policy: Policy
    parsed_here: bool = False
    special: bool = False


def body(request: Request, target: Target, known: Set[str], ledger: Ledger) -> bytes:
    """`known` are the fields of the API; all others are an extension."""
    kind = target.kind
    said: dict[str, Any] = {
        "model": target.model,
        "messages": _messages(request, target, ledger),
        "stream": request.stream,
    }
    if target.special:
        said |= kind.raw
    said |= _rest(request, kind, known, ledger)
    said |= _tools(request, target, ledger)
    if request.max_tokens is not None:
        theirs = next((name for name in _LIMITS if name in request.rest), _LIMITS[0])
        said[kind.limit or theirs] = request.max_tokens
    if request.n != 1:
        said["n"] = request.n
    if request.stream:
        options = request.rest.get("stream_options") or {}
        said["stream_options"] = {**_without(options, "include_obfuscation"), "include_usage": True}
    return _encode(said)


def wanted(request: Request) -> frozenset[str]:
    """The fields beyond the API that the client asked for."""
    return frozenset(
        name for field, names in _EXTRAS.items() if request.rest.get(field, False) is not False for name in names
    )


def _messages(request: Request, target: Target, ledger: Ledger) -> list[Message]:
    """The messages; where a server would go on with its own last one, something follows that it can answer."""
    said = messages(request.messages, target.policy, ledger)
    if request.fresh and target.kind.continues and said[-1]["role"] == "assistant":
        ledger.note("translated", "messages")
        said.append({"role": "user", "content": ""})
    return said


def _rest(request: Request, kind: Kind, known: Set[str], ledger: Ledger) -> dict[str, Any]:
    passed = {}
    for name, value in request.rest.items():
        if name in kind.unheard or _is_default(name, value, request):
            continue
        if name in kind.undone:
            ledger.note("dropped", name)
            continue
        if name not in known:
            ledger.note("forwarded", _UNFIT.sub("?", name)[:64])
        passed[name] = value
    if not kind.logprobs_with_tools and request.stream and request.callable_tools and "logprobs" in passed:
        ledger.note("dropped", "logprobs")
        passed = _without(passed, "logprobs", "top_logprobs")
    return _without(passed, "stream_options", *_LIMITS)


def _is_default(name: str, value: object, request: Request) -> bool:
    """True for what says no more than its absence."""
    if name == "parallel_tool_calls":
        return not request.callable_tools
    return name == "verbosity" and value == "medium"


def _tools(request: Request, target: Target, ledger: Ledger) -> dict[str, Any]:
    """The tools and which of them to call.  Where none may be called, none is sent: no backend then calls one."""
    tools, choice, kind = request.callable_tools, request.tool_choice, target.kind
    if not tools:
        return {}
    said = {"tools": [_tool(tool) for tool in tools]}
    if choice is None or choice == "auto":
        refused = kind.refuses_tools and target.parsed_here
        return {**said, "tool_choice": "none"} if refused else said | ({"tool_choice": choice} if choice else {})
    if kind.named_choice == "ignored":
        ledger.note("unenforced", "tool_choice")
        return said
    if not isinstance(choice, Named):
        return {**said, "tool_choice": choice}
    if kind.named_choice == "alone":
        return {"tools": [_tool(tool) for tool in tools if tool.name == choice.name], "tool_choice": "required"}
    return {**said, "tool_choice": {"type": "function", "function": {"name": choice.name}}}


def _tool(tool: Tool) -> dict[str, Any]:
    return {"type": tool.kind, tool.kind: tool.definition}


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
