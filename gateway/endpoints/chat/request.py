"""The body of a chat completion, decoded once from its bytes, as a neutral Request and what its encoder has to know."""

from typing import Any

from msgspec import Struct

from gateway.endpoints.body import check_stream_options, decoded
from gateway.endpoints.chat import legacy
from gateway.endpoints.chat.fields import body as check_body
from gateway.endpoints.choice import Chosen, not_offered, settled
from gateway.errors import BadRequest
from gateway.request import Message, Named, Request, Tool

_OWN = frozenset(("model", "messages", "tools", "tool_choice", "n", "stream", "modalities", "store"))


class Asked(Struct, frozen=True, kw_only=True):
    """A chat completion as it was asked for.

    include_usage, continuous_usage: a count at the end, with each chunk; obfuscation: padding that hides lengths.
    functions: the client speaks the old way, before tools.
    role: of the answer; another than "assistant" where the client lets the model continue its own message.
    service_tier: the client wants to hear one.
    store: the completion is to be stored; metadata: with these words.
    """

    request: Request
    include_usage: bool = False
    continuous_usage: bool = False
    obfuscation: bool = False
    functions: bool = False
    role: str = "assistant"
    service_tier: bool = False
    store: bool = False
    metadata: dict[str, str] = {}


def parse(raw: bytes) -> Asked:
    """Raise BadRequest, in OpenAI's words, for what the API does not allow."""
    body = decoded(raw)
    check_body(body, "")
    functions = legacy.modern_body(body)
    options = body.get("stream_options") or {}
    _check_together(body)
    messages = legacy.modern_messages(body["messages"])
    _check_results(messages)
    tools, (choice, allowed) = _tools(body)
    request = Request(
        model=body["model"],
        messages=tuple(messages),
        tools=tools,
        tool_choice=choice,
        allowed=allowed,
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        n=body.get("n", 1),
        stream=body.get("stream", False),
        rest={name: value for name, value in body.items() if name not in _OWN},
    )
    return Asked(
        request=request,
        include_usage=options.get("include_usage") or False,
        continuous_usage=options.get("continuous_usage_stats") is True,
        obfuscation=options.get("include_obfuscation") or False,
        functions=functions,
        role=messages[-1]["role"] if body.get("add_generation_prompt") is False else "assistant",
        service_tier="service_tier" in body,
        store=body.get("store") or False,
        metadata=body.get("metadata") or {},
    )


def _check_together(body: dict[str, Any]) -> None:
    check_stream_options(body)
    if "top_logprobs" in body and not body.get("logprobs"):
        message = "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."
        raise BadRequest(message, param="top_logprobs")


def _check_results(messages: list[Message]) -> None:
    called: set[object] = set()
    for i, message in enumerate(messages):
        if calls := message.get("tool_calls"):
            called.update(call.get("id") for call in calls)
        if message["role"] == "tool" and message["tool_call_id"] not in called:
            text = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
            raise BadRequest(f"Invalid parameter: {text}", param=f"messages[{i}].role")


def _tools(body: dict[str, Any]) -> tuple[tuple[Tool, ...], Chosen]:
    """What is offered, what has to be called and what may be."""
    if "tools" not in body and "tool_choice" not in body:
        return (), (None, None)
    tools = tuple(
        Tool(tool[tool["type"]]["name"], tool[tool["type"]], tool["type"]) for tool in body.get("tools") or ()
    )
    offered = {tool.name for tool in tools}

    def find(chosen: dict[str, Any]) -> Named:
        inner = chosen.get(str(chosen.get("type")))
        name = str(inner.get("name") if isinstance(inner, dict) else chosen.get("name"))
        if name not in offered:
            raise not_offered(name)
        return Named(name)

    return tools, settled(body.get("tool_choice"), tools, find)
