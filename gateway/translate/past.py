"""The calls that a conversation has already, which are lowered like the tools that they called."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gateway.request import Message

Call = dict[str, Any]


def calls(messages: Sequence[Message]) -> Iterator[Call]:
    for message in messages:
        if made := message.get("tool_calls"):
            yield from made


def none(messages: Sequence[Message]) -> bool:
    """True if no call was made."""
    return not [message for message in messages if message.get("tool_calls")]


def changed(messages: Sequence[Message], change: Callable[[Call], Call]) -> tuple[Message, ...]:
    """The messages with each call as `change` makes it."""
    return tuple(
        {**message, "tool_calls": [change(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    )
