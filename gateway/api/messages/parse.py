"""Parse the body of a message into a neutral Request and the settings of its encoder."""

from collections.abc import Mapping
from typing import Any

from msgspec import DecodeError, json
from msgspec.structs import replace

from gateway.api.messages import input_blocks
from gateway.api.messages.block_members import report_unknown
from gateway.api.messages.errors import THREAD_UNSUPPORTED, refused
from gateway.api.messages.history import MessageHistory
from gateway.api.messages.params import UNDONE, MessageParams, check_params, further_fields
from gateway.api.messages.sent_body import readable_body, sent_body
from gateway.api.messages.thinking import ThoughtReader, is_thinking_on, kept_thoughts, thinking_fields
from gateway.api.messages.tools import parse_message_tool_choice, parse_message_tools
from gateway.api.responses.params import BuiltinToolParams
from gateway.api.responses.parse import ParseSettings
from gateway.api.responses.tools import no_builtin_tools
from gateway.errors import BadRequest
from gateway.request import Message, Request, are_large
from gateway.warnings import Warnings

_SAMPLING = ("temperature", "top_p", "top_k")
_MEMBERS = {
    "output_config": frozenset(("effort", "format")),
    "thinking": frozenset(("type", "budget_tokens", "display")),
}
_PREFILLED = {"continue_final_message": True, "add_generation_prompt": False}
_OWN_FIELDS = frozenset(("top_k", "thinking", *_PREFILLED))  # a chat completion has none of them
_THREADS = "Message threads are not supported by this gateway: send the whole conversation in 'messages'."


def parse_message(body: dict[str, Any], settings: ParseSettings, ledger: Warnings) -> MessageParams:
    """Parse a message.  Raise BadRequest for a body that the API refuses, or the gateway cannot serve."""
    check_params(body, counts=False)
    return _params_and_body(body, settings, ledger, body["max_tokens"])


def parse_token_count(body: dict[str, Any], settings: ParseSettings, ledger: Warnings) -> MessageParams:
    """Parse a message whose prompt is only counted.  Raise BadRequest likewise."""
    check_params(body, counts=True)
    return _params_and_body(body, settings, ledger, None)


def _params_and_body(
    body: dict[str, Any], settings: ParseSettings, ledger: Warnings, max_tokens: int | None
) -> MessageParams:
    """Return the parameters, with the body if a backend may get it; its warnings then count only elsewhere."""
    if not settings.keeps_body:
        return _params(body, settings, ledger, max_tokens)
    own, refusal = Warnings(), None
    try:
        params = _params(body, settings, own, max_tokens)
    except BadRequest as error:
        readable = readable_body(body)
        if readable is None:
            raise
        own, refusal = Warnings(), error
        params = _params(readable, settings, own, max_tokens)
    sent = sent_body(body, params.request, settings.open, own, refusal)
    return replace(params, request=replace(params.request, sent=sent))


def _params(body: dict[str, Any], settings: ParseSettings, ledger: Warnings, max_tokens: int | None) -> MessageParams:
    """Return the parameters.  max_tokens: 0 to fill only the cache; None to count only."""
    _check_together(body)
    offered = parse_message_tools(body, settings.runs or no_builtin_tools, ledger)
    messages = _messages(body, settings, ledger)
    prefilled = _is_prefilled(messages, body, ledger)
    if max_tokens == 0:
        ledger.add("emulated", "max_tokens")
    request = Request(
        model=body["model"],
        messages=messages,
        tools=tuple(offered.tools),
        tool_choice=parse_message_tool_choice(body, offered, ledger),
        max_tokens=None if max_tokens is None else max(max_tokens, 1),
        stream=body.get("stream", False),
        fresh=not prefilled,
        generates=bool(max_tokens),
        large=are_large(messages),
        rest=_rest(body, ledger, max_tokens, prefilled=prefilled),
        own_fields=_OWN_FIELDS,
        call_prefix="toolu_",
        names_stop=True,
    )
    return MessageParams(
        request=request,
        hosted=BuiltinToolParams(tuple(offered.hosted), max_uses=offered.max_uses, pauses=True),
        sticky=_sticky((body.get("metadata") or {}).get("user_id")),
        stop_sequences=frozenset(body.get("stop_sequences") or ()),
        shows_thinking=(body.get("thinking") or {}).get("display") != "omitted",
    )


def _check_together(body: Mapping[str, Any]) -> None:
    if "thread" in body:
        raise refused(_THREADS, "thread", THREAD_UNSUPPORTED)
    for i, text in enumerate(body.get("stop_sequences") or ()):
        if not text.strip():
            raise refused("each stop sequence must contain non-whitespace", f"stop_sequences[{i}]")


def _messages(body: Mapping[str, Any], settings: ParseSettings, ledger: Warnings) -> tuple[Message, ...]:
    reader = ThoughtReader(settings.open, body["model"], ledger)
    history = MessageHistory(reader, kept_thoughts(body, ledger), repairs=settings.repair_dangling_calls)
    if system := input_blocks.system_text(body.get("system") or [], history):
        history.add("system", system)
    for i, message in enumerate(body["messages"]):
        input_blocks.read_message(history, message, f"messages[{i}]")
    messages = tuple(history.messages())
    if all(message["role"] == "system" for message in messages):
        raise refused("at least one message must have content", "messages")
    return messages


def _is_prefilled(messages: tuple[Message, ...], body: Mapping[str, Any], ledger: Warnings) -> bool:
    """Return True if the response continues the assistant's message, which is the client's last one, too."""
    last = messages[-1]
    if last["role"] != "assistant" or last.get("tool_calls") or body["messages"][-1]["role"] != "assistant":
        return False
    if is_thinking_on(body):
        ledger.add("unenforced", "prefill")
        return False
    return True


def _rest(body: dict[str, Any], ledger: Warnings, max_tokens: int | None, *, prefilled: bool) -> dict[str, Any]:
    """Return the other parameters as fields of a chat completion; fields that no API knows stay unchanged."""
    rest, misplaced = further_fields(body)
    for name in (*misplaced, *filter(UNDONE.__contains__, body)):
        ledger.add("dropped", name)
    for name, known in _MEMBERS.items():
        report_unknown(body.get(name) or {}, known, name, ledger)
    rest |= {name: body[name] for name in _SAMPLING if name in body}
    if stops := body.get("stop_sequences"):
        rest["stop"] = stops
    rest |= thinking_fields(body, max_tokens)
    format = (body.get("output_config") or {}).get("format") or body.get("output_format")
    if format:
        schema = {"name": "output", "schema": format["schema"], "strict": True}
        rest["response_format"] = {"type": "json_schema", "json_schema": schema}
    if (body.get("tool_choice") or {}).get("disable_parallel_tool_use"):
        rest["parallel_tool_calls"] = False
    if prefilled:
        rest |= _PREFILLED
    return rest


def _sticky(user_id: str | None) -> str | None:
    """Return the session in the user id, which Claude Code writes as JSON; else the user id."""
    if not user_id:
        return None
    try:
        named = json.decode(user_id)
    except (DecodeError, RecursionError):
        return user_id
    session = named.get("session_id") if isinstance(named, dict) else None
    return session if isinstance(session, str) and session else user_id
