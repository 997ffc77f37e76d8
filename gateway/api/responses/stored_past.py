"""Encode the messages of a stored history once, so that later turns of its chain copy bytes only.

A past is settled: a user message follows it, so nothing that comes later changes it.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import json

from gateway.api.responses.history import History, HistoryRules, Item
from gateway.api.responses.input_items import read_known_item
from gateway.request import LEADING, EncodedPast, Message, are_text_only
from gateway.warnings import Warnings

_PLAIN = frozenset(("message", "reasoning"))
_NEXT: Message = {"role": "user", "content": ""}
_encode = json.Encoder().encode


def leaves_past(body: Mapping[str, Any]) -> bool:
    """Return True if the input of a request is messages that change nothing before them; the first is the user's."""
    given = body.get("input")
    if (body.get("reasoning") or {}).get("context") == "all_turns":
        return False
    if not isinstance(given, list):
        return isinstance(given, str)
    return bool(given) and all([_is_new_message(item) for item in given]) and given[0]["role"] == "user"


def _is_new_message(item: Any) -> bool:  # noqa: ANN401 - decoded JSON
    if not isinstance(item, dict) or item.get("type") not in (None, "message"):
        return False
    return item.get("id") is None and item.get("role") is not None


def extend_past(before: EncodedPast | None, items: Sequence[Item]) -> EncodedPast | None:
    """Return the past with the items behind it; None if later items or other backends may change their messages.

    The items are stored ones, and a user message follows them.
    """
    if before and not items:
        return before
    if not all([item.get("type") in _PLAIN for item in items]):
        return None
    ledger = Warnings()
    history = History(HistoryRules(lambda _: None, ledger, model=""))
    for item in items:
        read_known_item(history, item)
    history.add(_NEXT)  # so the reasoning before it is left out
    messages = history.messages()[:-1]
    count = 0 if before else next((i for i, one in enumerate(messages) if one["role"] not in LEADING), 0)
    leading, rest = tuple(messages[:count]), messages[count:]
    if not _are_turns(rest):
        return None
    past = _encoded(leading, rest, tuple(ledger.entries()))
    return _joined(before, past) if before else past


def _are_turns(messages: Sequence[Message]) -> bool:
    """Return True for whole turns that hold nothing but texts of the user and the assistant."""
    roles = [message["role"] for message in messages]
    whole = roles[:1] == ["user"] and roles[-1] == "assistant"
    return whole and "system" not in roles and are_text_only(messages)


def _encoded(leading: tuple[Message, ...], messages: Sequence[Message], warnings: tuple[str, ...]) -> EncodedPast:
    characters = sum([len(message["role"]) + len(message["content"]) for message in messages])
    alternates = all([one["role"] != other["role"] for one, other in pairwise(messages)])
    return EncodedPast(_encode(messages)[1:-1], characters, alternates, leading, warnings)


def _joined(one: EncodedPast, other: EncodedPast) -> EncodedPast:
    messages, alternates = b"%b,%b" % (one.messages, other.messages), one.alternates and other.alternates
    warnings = tuple(dict.fromkeys((*one.warnings, *other.warnings)))
    return EncodedPast(messages, one.characters + other.characters, alternates, one.leading, warnings)
