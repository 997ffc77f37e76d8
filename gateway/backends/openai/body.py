"""A neutral Request as the body of a chat completion that a kind of server takes; what it does not is in the ledger."""

from collections.abc import Set
from typing import Any

from msgspec import Struct, json

from gateway.backends import Kind, parts
from gateway.backends.fields import request_fields
from gateway.backends.openai.messages import MessagePolicy, convert_messages, order_messages
from gateway.backends.openai.steps import encoded
from gateway.backends.verdicts import PASSED, EmulatedRule
from gateway.ledger import Warnings
from gateway.request import Message, Request, Tool, ToolName

_encode = json.Encoder().encode
_NO_PARAMETERS = {"type": "object", "properties": {}}
_EXTRAS = {  # what a client sends → what it gets for it, in fields that the API does not have
    "prompt_logprobs": ("prompt_logprobs",),
    "return_token_ids": ("token_ids", "prompt_token_ids"),
    "kv_transfer_params": ("kv_transfer_params",),
    "return_progress": ("prompt_progress",),
    "timings_per_token": ("timings",),
}


class BodyTarget(Struct, frozen=True):
    """Whom a request is put to.  `model` is the backend's name for it.

    parsed_here: calls are looked for in the model's text, so the server needs no parser of its own for them.
    special: the tags in the model's text are special tokens.
    thinks: the model can be told how much to think, as far as is known.
    prompted: the messages tell of the tools, and the server is sent none.
    """

    model: str
    kind: Kind
    policy: MessagePolicy
    parsed_here: bool = False
    special: bool = False
    thinks: bool = True
    prompted: bool = False

    @property
    def mute(self) -> bool:
        """The server cannot be told that a tool has to be called: it has no parser for calls, or knows of no tools."""
        return self.prompted or (self.kind.refuses_tools and self.parsed_here)


def chat_body(request: Request, target: BodyTarget, known: Set[str], ledger: Warnings) -> bytes:
    """`known` are the fields of the API; all others are an extension."""
    kind = target.kind
    said: dict[str, Any] = {
        "model": target.model,
        "messages": upstream_messages(request, target, ledger),
        "stream": request.stream,
    }
    if target.special:
        said |= kind.raw
    said |= request_fields(request, kind, known, ledger)
    if request.tools:
        said |= _tools(request, target)
    if kind.counts_one and request.n > 1 and not request.stream:
        ledger.note("estimated", "usage")
    return encoded(said) if request.large else _encode(said)


def requested_extra_fields(request: Request) -> frozenset[str]:
    """The fields beyond the API that the client asked for."""
    if request.rest.keys().isdisjoint(_EXTRAS):
        return frozenset()
    return frozenset(
        name for field, names in _EXTRAS.items() if request.rest.get(field, False) is not False for name in names
    )


def requested_top_logprobs(request: Request) -> int | None:
    """Of how many other tokens the client wants to hear with each token of a chat; None: nothing is known of that."""
    return request.rest.get("top_logprobs", 0) if request.rest.get("logprobs") is True else None


def upstream_messages(request: Request, target: BodyTarget, ledger: Warnings) -> list[Message]:
    """The messages; where a server would go on with its own last one, something follows that it can answer."""
    policy, given = target.policy, [*request.messages]
    if not request.plain:
        given = convert_messages(parts.convert_parts(request, target.kind, ledger), policy, ledger)
    said = order_messages(given, policy, ledger)
    if request.fresh and target.kind.continues and said[-1]["role"] == "assistant":
        ledger.note("translated", "messages")
        said.append({"role": "user", "content": ""})
    return said


def upstream_tools(request: Request, target: BodyTarget) -> list[dict[str, Any]]:
    """The tools that may be called; of these only the one that has to be, where the server is not told its name."""
    if target.prompted:
        return []
    choice, told = request.tool_choice, target.kind.fields["tool_choice"] == PASSED and not target.mute
    only = choice.name if isinstance(choice, ToolName) and not told else None
    return [_offer(tool) for tool in request.callable_tools if only in (None, tool.name)]


def _offer(tool: Tool) -> dict[str, Any]:
    """Without nulls, for which llama.cpp and SGLang refuse it; with parameters, as templates look into them."""
    said = {**tool.definition}
    if None in said.values():
        said = {name: value for name, value in said.items() if value is not None}
    if not said.get("parameters"):
        said["parameters"] = _NO_PARAMETERS
    return {"type": tool.kind, tool.kind: said}


def _tools(request: Request, target: BodyTarget) -> dict[str, Any]:
    """The tools and which of them to call.  Where none may be called, none is sent: no backend then calls one."""
    tools, choice = upstream_tools(request, target), _choice(request, target)
    return {"tools": tools} | ({"tool_choice": choice} if choice else {}) if tools else {}


def _choice(request: Request, target: BodyTarget) -> object:
    """None if nothing is to be said of it."""
    choice, verdict = request.tool_choice, target.kind.fields["tool_choice"]
    if target.mute:
        return "none"
    if choice is None or choice == "auto":
        return choice
    if isinstance(verdict, EmulatedRule) or request.guided:
        return None
    if not isinstance(choice, ToolName):
        return choice
    return {"type": "function", "function": {"name": choice.name}} if verdict == PASSED else "required"
