"""Rewrite the tool calls in a conversation: in the form of their tools, with ids that chat templates accept.

The client keeps its own ids.  Nothing has to be converted back, because a response has only new calls: their ids
differ from all ids in the conversation, on both sides.  A new id depends only on the messages before it, so that the
beginning of a conversation stays in the server's cache.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import count
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.formats.spec import IdForm
from gateway.request import Message, Request
from gateway.warnings import Warnings

ToolCallDict = dict[str, Any]
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_COUNTED = re.compile(r"functions\.(.+):[0-9]+", re.DOTALL)
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def past_calls(messages: Sequence[Message]) -> list[ToolCallDict]:
    """Return all tool calls in the messages."""
    return [call for message in messages for call in message.get("tool_calls") or ()]


def past_call_ids(request: Request, put: Request) -> frozenset[str]:
    """Return the ids of past tool calls, as the client and as the backend knows them.

    put: the request as the backend gets it.
    """
    messages = request.messages if put.messages is request.messages else (*request.messages, *put.messages)
    return frozenset([call["id"] for call in past_calls(messages)])


def has_no_calls(request: Request) -> bool:
    """Return True if no message has tool calls."""
    return not [message for message in request.messages if message.get("tool_calls")]


def map_calls(messages: Sequence[Message], change: Callable[[ToolCallDict], ToolCallDict]) -> tuple[Message, ...]:
    """Return the messages with each tool call replaced by the result of `change`."""
    return tuple(
        {**message, "tool_calls": [change(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    )


def has_own_ids(ids: IdForm) -> bool:
    """Return True if `convert_call_ids` may change ids for this form."""
    return ids in _FORMS


def convert_call_ids(request: Request, ids: IdForm, ledger: Warnings) -> Request:
    """Return the request with ids of this form; the same object if all ids have it."""
    if not has_own_ids(ids) or not any(past_calls(request.messages)):
        return request
    messages = tuple(map(_IdRewriter(_FORMS[ids]).message, request.messages))
    if messages == request.messages:
        return request
    ledger.add("renamed", "messages.tool_calls.id")
    return replace(request, messages=messages)


class _IdForm(Struct, frozen=True):
    """A form of tool call ids.

    fits: returns True if an id of a call of this tool may stay.
    make: returns another id from the id, the tool's name and a number.
    """

    fits: Callable[[str, str], bool]
    make: Callable[[str, str, int], str]


def _is_nine(id: str, _: str) -> bool:
    return bool(_NINE.fullmatch(id))


def _nine(id: str, _: str, number: int) -> str:
    digest = sha256(f"{number}\0{id}".encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:9])


def _is_counted(id: str, name: str) -> bool:
    known = _COUNTED.fullmatch(id)
    return known is not None and known[1] == name


def _counted(_: str, name: str, number: int) -> str:
    return f"functions.{name}:{number}"


_FORMS: Mapping[IdForm, _IdForm] = {"nine": _IdForm(_is_nine, _nine), "counted": _IdForm(_is_counted, _counted)}


class _IdRewriter:
    """Rewrite the ids of messages in order.  A repeated id refers to the latest call that has it."""

    def __init__(self, form: _IdForm) -> None:
        self._form = form
        self._taken: set[str] = set()
        self._now: dict[str, str] = {}
        self._numbers = count()  # of the calls; a number is used only once

    def message(self, message: Message) -> Message:
        """Return the message with new ids."""
        if calls := message.get("tool_calls"):
            return {**message, "tool_calls": [{**call, "id": self._id(call)} for call in calls]}
        if message["role"] == "tool":
            id = message["tool_call_id"]
            return {**message, "tool_call_id": self._now.get(id, id)}
        return message

    def _id(self, call: ToolCallDict) -> str:
        id, name, number = call["id"], call[call["type"]]["name"], next(self._numbers)
        kept = self._form.fits(id, name) and id not in self._taken
        new = id if kept else self._form.make(id, name, number)
        while new in self._taken:
            new = self._form.make(id, name, next(self._numbers))
        self._taken.add(new)
        self._now[id] = new
        return new
