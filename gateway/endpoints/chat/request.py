"""The body of a chat completion, decoded once from its bytes, as a neutral Request and what its encoder has to know."""

from typing import Any

from msgspec import DecodeError, Struct, json

from gateway.endpoints.chat import legacy
from gateway.endpoints.chat.fields import body as check_body
from gateway.endpoints.checks import wrong_type
from gateway.errors import BadRequest
from gateway.request import Message, Named, Request, Tool, ToolChoice

_decode = json.Decoder().decode
_OWN = frozenset(("model", "messages", "tools", "tool_choice", "n", "stream", "modalities"))


class Asked(Struct, frozen=True, kw_only=True):
    """A chat completion as it was asked for.

    include_usage, continuous_usage: a count at the end, with each chunk; obfuscation: padding that hides lengths.
    functions: the client speaks the old way, before tools.
    role: of the answer; another than "assistant" where the client lets the model continue its own message.
    service_tier: the client wants to hear one.
    """

    request: Request
    include_usage: bool = False
    continuous_usage: bool = False
    obfuscation: bool = False
    functions: bool = False
    role: str = "assistant"
    service_tier: bool = False


def parse(raw: bytes) -> Asked:
    """Raise BadRequest, in OpenAI's words, for what the API does not allow."""
    body = _decoded(raw)
    check_body(body, "")
    functions = legacy.modern_body(body)
    options = body.get("stream_options") or {}
    _check_together(body)
    messages = legacy.modern_messages(body["messages"])
    _check_results(messages)
    tools, choice = _tools(body)
    request = Request(
        model=body["model"],
        messages=tuple(messages),
        tools=tools,
        tool_choice=choice,
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
    )


def _decoded(raw: bytes) -> dict[str, Any]:
    """The body without its null members, which count as absent."""
    try:
        body = _decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"We could not parse the JSON body of your request. (The parser said: {error}.)"
        raise BadRequest(message) from None
    if not isinstance(body, dict):
        raise wrong_type(body, "body", "an object")
    return {name: value for name, value in body.items() if value is not None}


def _check_together(body: dict[str, Any]) -> None:
    if "stream_options" in body and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise BadRequest(message, param="stream_options")
    if "top_logprobs" in body and not body.get("logprobs"):
        message = "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled."
        raise BadRequest(message, param="top_logprobs")


def _check_results(messages: list[Message]) -> None:
    called: set[object] = set()
    for i, message in enumerate(messages):
        called.update(call.get("id") for call in message.get("tool_calls") or ())
        if message["role"] == "tool" and message["tool_call_id"] not in called:
            text = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
            raise BadRequest(f"Invalid parameter: {text}", param=f"messages[{i}].role")


def _tools(body: dict[str, Any]) -> tuple[tuple[Tool, ...], ToolChoice | None]:
    """What may be called, and what has to be; a choice without tools to choose from is no choice."""
    tools = tuple(
        Tool(tool[tool["type"]]["name"], tool[tool["type"]], tool["type"]) for tool in body.get("tools") or ()
    )
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        if choice["type"] == "allowed_tools":
            allowed = choice["allowed_tools"]
            wanted, offered = [_name(tool) for tool in allowed["tools"]], {tool.name for tool in tools}
            for name in wanted:
                if name not in offered:
                    raise _not_offered(name)
            tools, choice = tuple(tool for tool in tools if tool.name in wanted), allowed["mode"]
        else:
            choice = Named(_name(choice))
            if choice.name not in {tool.name for tool in tools}:
                raise _not_offered(choice.name)
    if choice == "required" and not tools:
        raise BadRequest("'tool_choice' is only allowed when 'tools' are specified.", param="tool_choice")
    return tools, choice if tools else None


def _name(chosen: dict[str, Any]) -> str:
    inner = chosen.get(str(chosen.get("type")))
    return str(inner.get("name") if isinstance(inner, dict) else chosen.get("name"))


def _not_offered(name: str) -> BadRequest:
    message = f"Invalid value for 'tool_choice': the tool '{name}' is not among 'tools'."
    return BadRequest(message, code="invalid_value", param="tool_choice")
