"""Convert a neutral Request to the body of a chat completion or of a legacy completion, by the rules of a kind.

Fields that the kind does not support become warnings.
"""

from collections.abc import Set
from typing import Any

from msgspec import Raw, Struct, json
from msgspec.structs import replace

from gateway.backends import Kind
from gateway.backends.extra_fields import field_rule
from gateway.backends.field_rules import PASSED, EmulatedRule, PassedRule
from gateway.backends.openai.body_encoder import encoded
from gateway.backends.openai.decoder import ChatDecoder
from gateway.backends.openai.messages import MessagePolicy, convert_messages, order_messages
from gateway.backends.request_fields import convert_parts, request_fields
from gateway.backends.services import CompletionsSupport
from gateway.errors import BadRequest
from gateway.request import Message, Request, Tool, ToolName, replace_past
from gateway.warnings import Warnings

_encode = json.Encoder().encode
_NO_PARAMETERS = {"type": "object", "properties": {}}
_EXTRAS = {  # a request field → the response fields beyond the API that it asks for
    "prompt_logprobs": ("prompt_logprobs",),
    "return_token_ids": ("token_ids", "prompt_token_ids"),
    "kv_transfer_params": ("kv_transfer_params",),
    "return_progress": ("prompt_progress",),
    "timings_per_token": ("timings",),
}
PATH = "/v1/completions"
_CONTINUES = "continue_final_message"
_OF_PREFILL = (_CONTINUES, "add_generation_prompt")


class BodyTarget(Struct, frozen=True):
    """The upstream that a request body is written for.

    model: the backend's name of the model.
    parsed_here: the gateway looks for tool calls in the model's text, so the server needs no parser for them.
    special: the tags in the model's text are special tokens.
    thinks: the model accepts a reasoning effort, as far as is known.
    prompted: the messages describe the tools, and the server is sent none.
    caches: the gateway sets points of the prompt cache.
    """

    model: str
    kind: Kind
    policy: MessagePolicy
    parsed_here: bool = False
    special: bool = False
    thinks: bool = True
    prompted: bool = False
    caches: bool = False

    @property
    def cannot_force_tools(self) -> bool:
        """Return True if the server cannot force a tool call: it has no parser for calls, or is sent no tools."""
        return self.prompted or (self.kind.refuses_tools and self.parsed_here)


def chat_body(request: Request, target: BodyTarget, known: Set[str], ledger: Warnings) -> bytes:
    """Return the body of a chat completion.

    known: the fields of the API; all others are extensions.
    ledger: receives a warning for each field that is not sent unchanged.

    Raises BadRequest for message parts that the kind does not accept.
    """
    kind = target.kind
    messages: list[Any] = upstream_messages(request, target, ledger)
    if request.past:
        messages = replace_past(messages, [Raw(request.past.sent(lists=target.policy.lists))])
    fields: dict[str, Any] = {
        "model": target.model,
        "messages": messages,
        "stream": request.stream,
    }
    if target.special:
        fields |= kind.raw
    fields |= request_fields(request, kind, known, ledger)
    if request.tools:
        fields |= _tools(request, target, ledger)
    if kind.counts_one and request.n > 1 and not request.stream:
        ledger.add("estimated", "usage")
    return encoded(fields, request.texts) if request.large or request.texts else _encode(fields)


def chat_decoder(request: Request, ledger: Warnings) -> ChatDecoder:
    """Return a decoder for the response to a chat completion."""
    return ChatDecoder(ledger, request.n, requested_extra_fields(request), requested_top_logprobs(request))


def requested_extra_fields(request: Request) -> frozenset[str]:
    """Return the response fields beyond the API that the client requested."""
    if not request.rest or request.rest.keys().isdisjoint(_EXTRAS):
        return frozenset()
    return frozenset(
        name for field, names in _EXTRAS.items() if request.rest.get(field, False) is not False for name in names
    )


def requested_top_logprobs(request: Request) -> int | None:
    """Return the number of alternatives per token that a chat requested; None without log-probabilities."""
    return request.rest.get("top_logprobs", 0) if request.rest.get("logprobs") is True else None


def upstream_messages(request: Request, target: BodyTarget, ledger: Warnings) -> list[Message]:
    """Return the messages as the server accepts them.

    An empty user message follows a last message of the assistant if the server would continue that message against the
    request.

    Raises BadRequest for message parts that the kind does not accept.
    """
    policy, given = target.policy, [*request.messages]
    if not request.is_text_only:
        given = convert_messages(convert_parts(request, target.kind, ledger), policy, ledger)
    items = order_messages(given, policy, ledger)
    if request.fresh and target.kind.continues and items[-1]["role"] == "assistant":
        ledger.add("translated", "messages")
        items.append({"role": "user", "content": ""})
    return items


def upstream_tools(request: Request, target: BodyTarget, ledger: Warnings) -> list[dict[str, Any]]:
    """Return the tools that may be called; deferred ones are offered at once if the server does not know such tools.

    If one tool is forced and the server does not accept its name, return only that tool.
    """
    defers = target.kind.defers and not target.prompted
    if not defers and any([tool.deferred for tool in request.callable_tools]):
        ledger.add("emulated", "defer_loading")
    if target.prompted:
        return []
    choice, can_force = (
        request.tool_choice,
        target.kind.fields["tool_choice"] == PASSED and not target.cannot_force_tools,
    )
    only = choice.name if isinstance(choice, ToolName) and not can_force else None
    return [_offer(tool, defers=defers) for tool in request.callable_tools if only in (None, tool.name)]


def _offer(tool: Tool, *, defers: bool) -> dict[str, Any]:
    """Return the definition of a tool as the strictest servers and templates need it.

    llama.cpp and SGLang reject null members, and templates read the parameters of every tool.
    """
    fields = {**tool.definition}
    if None in fields.values():
        fields = {name: value for name, value in fields.items() if value is not None}
    if not fields.get("parameters"):
        fields["parameters"] = _NO_PARAMETERS
    if tool.deferred and defers:
        fields["defer_loading"] = True
    return {"type": tool.kind, tool.kind: fields}


def _tools(request: Request, target: BodyTarget, ledger: Warnings) -> dict[str, Any]:
    """Return the tools and the tool choice.  With `none`, send no tools, as no backend then calls one."""
    tools, choice = upstream_tools(request, target, ledger), _choice(request, target)
    return {"tools": tools} | ({"tool_choice": choice} if choice else {}) if tools else {}


def _choice(request: Request, target: BodyTarget) -> object:
    """Return the tool choice to send; None to send none."""
    choice, verdict = request.tool_choice, target.kind.fields["tool_choice"]
    if target.cannot_force_tools:
        return "none"
    if choice is None or choice == "auto":
        return choice
    if isinstance(verdict, EmulatedRule) or request.guided:
        return None
    if not isinstance(choice, ToolName):
        return choice
    return {"type": "function", "function": {"name": choice.name}} if verdict == PASSED else "required"


class Prefill(Struct, frozen=True):
    """The beginning of a response that the client sent as the last message.

    in_thought: the text is reasoning that has not ended.
    echoed: the response repeats the text.
    """

    text: str
    in_thought: bool
    echoed: bool


def prefill_of(request: Request, kind: Kind) -> Prefill | None:
    """Return the beginning that the server continues; None if it starts a new message."""
    last = request.messages[-1] if request.messages else {}
    if last.get("role") != "assistant" or last.get("tool_calls") or (request.fresh and kind.continues):
        return None
    wanted = request.rest.get("continue_final_message") is True
    if not (kind.continues or (wanted and isinstance(field_rule("continue_final_message", kind), PassedRule))):
        return None
    text, thought = _text(last.get("content")), last.get("reasoning_content") or last.get("reasoning")
    echoed = (kind.echoes and not request.stream) or request.rest.get("echo") is True
    return Prefill(text or str(thought or ""), bool(thought) and not text, echoed)


def fit_prefill(request: Request, kind: Kind, ledger: Warnings) -> Request:
    """Return the request with the prefill that its API implies as the fields that the kind takes for it."""
    if _CONTINUES not in request.own_fields or not request.rest.get(_CONTINUES):
        return request
    if not prefill_of(request, kind):
        return without_prefill(request, ledger)
    taken = [name for name in _OF_PREFILL if isinstance(field_rule(name, kind), PassedRule)]
    rest = {name: value for name, value in request.rest.items() if name in taken or name not in _OF_PREFILL}
    return replace(request, rest=rest)


def without_prefill(request: Request, ledger: Warnings) -> Request:
    """Return the request for a new message, with a warning if the client wants its last one to be continued."""
    if request.rest.get(_CONTINUES) and request.messages[-1]["role"] == "assistant":
        ledger.add("unenforced", "prefill" if _CONTINUES in request.own_fields else _CONTINUES)
    rest = {name: value for name, value in request.rest.items() if name not in _OF_PREFILL}
    return replace(request, fresh=True, rest=rest)


def _text(content: object) -> str:
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    return "".join(str(part.get("text") or "") for part in parts)


def completion_body(
    does: CompletionsSupport, request: Request, target: BodyTarget, known: Set[str], ledger: Warnings
) -> bytes:
    """Return the body of a legacy completion.

    known: the fields of the API; all others are extensions.

    Raises BadRequest for a prompt that the kind does not accept.
    """
    fields = {"model": target.model, "prompt": _prompt(request, does, ledger), "stream": request.stream}
    n = request.rest.get("n", 1)
    own = {name: value for name, value in request.rest.items() if not _is_default(name, value, n)}
    if "logprobs" in own:
        own["logprobs"] = max(own["logprobs"], 1)  # some servers take 0 for none at all, others for the token itself
    if does.kind.counts_one and request.n > 1:
        ledger.add("estimated", "usage")
    return _encode({**fields, **request_fields(replace(request, n=n, rest=own), does.kind, known, ledger)})


def prompt_list(request: Request) -> list[Any]:
    """Return the prompts; each is a text or a list of token ids."""
    data = request.rest["prompt"]
    return data if isinstance(data, list) and not isinstance(data[0], int) else [data]


def prompts_to_echo(request: Request, does: CompletionsSupport, ledger: Warnings) -> list[str]:
    """Return the prompts that the gateway itself has to echo; [] if there are none.

    The gateway cannot echo token ids or log-probabilities, so it drops `echo` with a warning in these cases.
    """
    if not request.rest.get("echo") or not isinstance(does.kind.fields.get("echo"), EmulatedRule):
        return []
    items = prompt_list(request)
    if "logprobs" in request.rest or not all(isinstance(prompt, str) for prompt in items):
        ledger.add("dropped", "echo")
        return []
    ledger.add("emulated", "echo")
    return items


def supports_suffix(request: Request, does: CompletionsSupport) -> bool:
    """Return True if the request has a suffix and the kind fills in the text before it."""
    return bool(request.rest.get("suffix")) and isinstance(does.kind.fields.get("suffix"), PassedRule)


def _prompt(request: Request, does: CompletionsSupport, ledger: Warnings) -> object:
    """Return the prompt unchanged if the kind accepts lists, else the single text."""
    if does.templated:
        ledger.add("translated", "prompt")
    if does.several:
        return request.rest["prompt"]
    prompt, *more = prompt_list(request)
    if more or not isinstance(prompt, str):
        message = "This model's backend completes one text at a time. Send 'prompt' as a string, not as a list."
        raise BadRequest(message, code="unsupported_value", param="prompt")
    return prompt


def _is_default(name: str, value: object, n: int) -> bool:
    """Return True for a field that is set elsewhere, or whose value means the same as its absence."""
    return name in ("prompt", "n") or (name, value) in (("best_of", n), ("echo", False), ("suffix", ""))
