"""The calls that a conversation has already, which are lowered like the tools that they called."""

from collections.abc import Callable, Sequence
from typing import Any

from gateway.request import Message, Request

ToolCallDict = dict[str, Any]


def past_calls(messages: Sequence[Message]) -> list[ToolCallDict]:
    return [call for message in messages for call in message.get("tool_calls") or ()]


def past_call_ids(asked: Request, put: Request) -> frozenset[str]:
    """Of the calls, as the client and as the backend knows them."""
    messages = asked.messages if put.messages is asked.messages else (*asked.messages, *put.messages)
    return frozenset([call["id"] for call in past_calls(messages)])


def has_no_calls(request: Request) -> bool:
    """True if no call was made."""
    return request.plain or not [message for message in request.messages if message.get("tool_calls")]


def map_calls(messages: Sequence[Message], change: Callable[[ToolCallDict], ToolCallDict]) -> tuple[Message, ...]:
    """The messages with each call as `change` makes it."""
    return tuple(
        {**message, "tool_calls": [change(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    )
