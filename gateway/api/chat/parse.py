"""Parse the body of a chat completion into a neutral Request and the settings of its encoder.

The deprecated `functions`, `function_call` and role `function` become tools, a tool choice and tool messages.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from gateway.api.body import COUNTS, Counts, decode_body
from gateway.api.chat.schema import besides_messages as check_besides
from gateway.api.chat.schema import body as check_body
from gateway.api.chat.schema import usual_format
from gateway.api.validation import ResolvedToolChoice, check_stream_options, resolve_tool_choice, unknown_tool_error
from gateway.errors import BadRequest
from gateway.request import Message, Request, SentTexts, Tool, ToolName, are_large, are_text_only

_LIMITS = ("max_completion_tokens", "max_tokens")
_UNLIMITED = -1  # for llama.cpp and LM Studio, whose examples have it; other servers refuse it


def functions_to_tools(body: dict[str, Any]) -> bool:
    """Replace functions by tools in the body; return True if there were functions.

    Raise BadRequest if both are given.
    """
    functions, choice = body.pop("functions", None), body.pop("function_call", None)
    if functions and body.get("tools"):
        raise BadRequest("'functions' and 'tools' are mutually exclusive. Send only 'tools'.", param="functions")
    if functions:
        body["tools"] = [{"type": "function", "function": function} for function in functions]
        if choice is not None and "tool_choice" not in body:
            named = isinstance(choice, dict)
            body["tool_choice"] = {"type": "function", "function": choice} if named else choice
        return True
    return False


def function_messages_to_tools(messages: list[Message]) -> list[Message]:
    """Return the messages with past function calls as tool calls.

    The calls get ids, and their results name them.  Raise BadRequest for a result without a call.
    """
    modern: list[Message] = []
    open_calls: dict[str, str] = {}  # name → id of the last call
    for i, message in enumerate(messages):
        if isinstance(called := message.get("function_call"), dict):
            id = f"call_function_{i}"
            open_calls[str(called.get("name"))] = id
            rest = {key: value for key, value in message.items() if key != "function_call"}
            modern.append({**rest, "tool_calls": [{"id": id, "type": "function", "function": called}]})
        elif message["role"] == "function":
            modern.append(_result(message, open_calls.get(message["name"]), f"messages[{i}]"))
        else:
            modern.append(message)
    return modern


def _result(message: Message, id: str | None, param: str) -> Message:
    if id is None:
        raise BadRequest(f"The result of function '{message['name']}' has no preceding call.", param=f"{param}.name")
    return {"role": "tool", "tool_call_id": id, "content": message.get("content") or ""}


class ChatParams(Struct, frozen=True, kw_only=True):
    """The parsed body of a chat completion.

    functions: the client uses the deprecated `functions`.
    role: of the response; not "assistant" if the model continues a message of another role.
    service_tier: the response includes a service tier.
    store: the completion is stored.
    """

    request: Request
    functions: bool = False
    role: str = "assistant"
    service_tier: bool = False
    store: bool = False

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata to store with the completion."""
        data: dict[str, str] = self.request.rest.get("metadata") or {}
        return data

    @property
    def stream_options(self) -> dict[str, Any]:
        """The wishes about the stream."""
        return self.request.rest.get("stream_options") or {}


def parse_chat(raw: bytes, counts: Counts = COUNTS) -> ChatParams:
    """Parse a body.

    Raise BadRequest, in OpenAI's words, if the API does not allow it, and TooLarge for too many values.
    """
    texts: SentTexts = {}
    body = decode_body(raw, counts, texts)
    for name in _LIMITS:
        if body.get(name) == _UNLIMITED:
            del body[name]
    data = body.get("messages")
    simple = type(data) is list and len(data) > 0 and are_text_only(data)  # then the messages need no further checks
    (check_besides if simple else check_body)(body, "")
    functions = functions_to_tools(body)
    _check_together(body)
    messages = body.pop("messages") if simple else _modern(body.pop("messages"))
    tools, (choice, allowed) = _tools(body)
    store, _ = body.pop("store", False), body.pop("modalities", None)
    request = Request(
        model=body.pop("model"),
        messages=tuple(messages),
        tools=tools,
        tool_choice=choice,
        allowed=allowed,
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        n=body.pop("n", 1),
        stream=body.pop("stream", False),
        large=are_large(messages, len(raw)),
        rest=body,
        texts=texts,
    )
    if simple:
        vars(request)["is_text_only"] = True  # the value of this cached property is known already
    return ChatParams(
        request=request,
        functions=functions,
        role=messages[-1]["role"] if body.get("add_generation_prompt") is False else "assistant",
        service_tier="service_tier" in body,
        store=store,
    )


def _modern(messages: list[Message]) -> list[Message]:
    """Return the messages with function calls as tool calls, and check the tool results."""
    modern = function_messages_to_tools(messages)
    _check_results(modern)
    return modern


def _check_together(body: dict[str, Any]) -> None:
    if "response_format" in body:
        usual_format(body)
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


def _check_names(tools: Sequence[Tool]) -> None:
    """Raise BadRequest for two tools of the same name: a tool call could mean either."""
    names: set[str] = set()
    for i, tool in enumerate(tools):
        if tool.name in names:
            param = f"tools[{i}].{tool.kind}.name"
            message = f"Invalid '{param}': two tools are named '{tool.name}'. Use unique names."
            raise BadRequest(message, code="invalid_value", param=param)
        names.add(tool.name)


def _tools(body: dict[str, Any]) -> tuple[tuple[Tool, ...], ResolvedToolChoice]:
    """Remove the offered tools and the tool choice from the body, and return them."""
    if "tools" not in body and "tool_choice" not in body:
        return (), (None, None)
    given, chosen = body.pop("tools", None), body.pop("tool_choice", None)
    tools = tuple(Tool(tool[tool["type"]]["name"], tool[tool["type"]], tool["type"]) for tool in given or ())
    _check_names(tools)
    offered = {tool.name for tool in tools}

    def find(chosen: dict[str, Any]) -> ToolName:
        inner = chosen.get(str(chosen.get("type")))
        name = str(inner.get("name") if isinstance(inner, dict) else chosen.get("name"))
        if name not in offered:
            raise unknown_tool_error(name)
        return ToolName(name)

    return tools, resolve_tool_choice(chosen, tools, find)
