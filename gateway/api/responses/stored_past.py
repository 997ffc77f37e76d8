"""Encode the messages of a stored history once, so that later turns of its chain copy bytes only.

A past is settled: what follows it changes none of its messages.  A user message ends the reasoning before it, and a
tool call with an output stays as it is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from gateway.api.responses.history import History, HistoryRules, Item
from gateway.api.responses.input_items import read_known_item
from gateway.backends.data_urls import is_base64_url
from gateway.backends.openai.messages import MessagePolicy, alternate_roles, convert_messages
from gateway.backends.openai.usage import text_characters
from gateway.errors import BadRequest
from gateway.request import LEADING, EncodedPast, Message, NamedFiles
from gateway.warnings import Warnings

_CALLS = frozenset(("function_call", "custom_tool_call"))
_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output"))
_KEPT = frozenset(("message", "reasoning", *_CALLS, *_OUTPUTS))
_SPEAKERS = frozenset(("user", "assistant", "tool"))
_NEXT: Message = {"role": "user", "content": ""}
_LISTS, _TEXTS = MessagePolicy(lists=True), MessagePolicy(lists=False)
_encode = json.Encoder().encode
# Returns messages as every backend gets them, and their stored files, with warnings; None if they may change later.
ConvertPast = Callable[[Sequence[Message], Warnings], tuple[list[Message], NamedFiles] | None]


class SettledHistory(Struct, frozen=True):
    """A history: its past, and the items behind it, which the input may still change."""

    past: EncodedPast
    open: Sequence[Item] = ()


def leaves_past(body: Mapping[str, Any]) -> bool:
    """Return True for an input of outputs and new messages that begins with an output or a message of the user."""
    given = body.get("input")
    if (body.get("reasoning") or {}).get("context") == "all_turns":
        return False
    if not isinstance(given, list):
        return isinstance(given, str)
    if not given or not all([_is_new_message(item) or _is_output(item) for item in given]):
        return False
    return _is_output(given[0]) or given[0]["role"] == "user"


def _is_new_message(item: Any) -> bool:  # noqa: ANN401 - decoded JSON
    if not isinstance(item, dict) or item.get("type") not in (None, "message"):
        return False
    return item.get("id") is None and item.get("role") is not None


def _is_output(item: Any) -> bool:  # noqa: ANN401 - decoded JSON
    return isinstance(item, dict) and item.get("type") in _OUTPUTS


def settle_history(
    before: EncodedPast | None, items: Sequence[Item], given: str | Sequence[Item], convert: ConvertPast
) -> SettledHistory | None:
    """Return the history with the past as far as it is settled; None if all items have to be read.

    before: the past that the items follow; given: an input that `leaves_past`; convert: converts messages of the items.
    """
    outputs = [*takewhile(_is_output, given)] if isinstance(given, list) else []
    count = _settled_count(items) if outputs else len(items)
    past, open = extend_past(before, items[:count], convert), items[count:]
    if past and outputs and open and not _is_user(open[0]):
        past = replace(past, before_user=False) if count else past
    return SettledHistory(past, open) if past and _may_follow(past, open) and _answers(open, outputs) else None


def _settled_count(items: Sequence[Item]) -> int:
    """Return the number of items whose messages further outputs and a later user message leave as they are."""
    settled = max((i for i, item in enumerate(items) if _is_user(item)), default=0)
    waiting: set[str] = set()
    for i, item in enumerate(items[settled:], settled + 1):
        type = item.get("type")
        if type not in _KEPT or type == "reasoning":  # a user message would end the reasoning
            break
        if type in _CALLS:
            waiting.add(item["call_id"])
        elif type in _OUTPUTS:
            waiting.discard(item.get("call_id"))
            settled = settled if waiting else i
    return settled


def _is_user(item: Item) -> bool:
    return item.get("role") == "user"


def _may_follow(past: EncodedPast, items: Sequence[Item]) -> bool:
    """Return True if these items leave the past as it is."""
    return not items or not past.before_user or _is_user(items[0])


def _answers(open: Sequence[Item], outputs: Iterable[Item]) -> bool:
    """Return True if all outputs are those of open tool calls."""
    called = {item["call_id"] for item in open if item.get("type") in _CALLS}
    answered = [item.get("call_id") for item in (*open, *outputs) if item.get("type") in _OUTPUTS]
    return called.issuperset(answered)


def extend_past(before: EncodedPast | None, items: Sequence[Item], convert: ConvertPast) -> EncodedPast | None:
    """Return the past with the items behind it; None if later items or other backends may change their messages.

    The items are stored ones, and a user message or further tool calls follow them.
    """
    if before and not items:
        return before
    if before and not _may_follow(before, items):
        return None
    if not all([item.get("type") in _KEPT for item in items]):
        return None
    ledger = Warnings()
    given = _messages(items, ledger)
    if not (given and (converted := convert(given, ledger))):
        return None
    messages, files = converted
    count = 0 if before else next((i for i, one in enumerate(messages) if one["role"] not in LEADING), 0)
    rest = messages[count:]
    if not (_are_turns(rest) and (before or rest[0]["role"] == "user")):
        return None
    past = _encoded(rest, text_characters(given[count:]))
    past = replace(past, leading=tuple(messages[:count]), warnings=tuple(ledger.entries()), files=files)
    return _joined(before, past) if before else past


def _messages(items: Sequence[Item], ledger: Warnings) -> list[Message]:
    """Return the messages of the items; none if a tool call has no output, or an output no call."""
    history = History(HistoryRules(lambda _: None, ledger, model=""))
    try:
        for item in items:
            read_known_item(history, item)
        history.add(_NEXT)  # so the reasoning before it is left out
        return history.messages()[:-1]
    except BadRequest:
        return []


def _are_turns(messages: Sequence[Message]) -> bool:
    """Return True for messages that servers get unchanged, but for lists of texts."""
    if not all(map(_is_turn, messages)):
        return False
    ledger = Warnings()
    return [*messages] == convert_messages(messages, _LISTS, ledger) and not ledger.entries()


def _is_turn(message: Message) -> bool:
    if message["role"] not in _SPEAKERS:
        return False
    if isinstance(parts := message["content"], list):
        return message["role"] == "user" and all(map(_is_kept_part, parts))
    return all(call["type"] == "function" and "namespace" not in call["function"] for call in _calls((message,)))


def _is_kept_part(part: Mapping[str, Any]) -> bool:
    """Return True for a text, and for an image in a valid data URL or at a URL."""
    if part["type"] == "image_url":
        url = part["image_url"].get("url", "")
        return _is_elsewhere(url) or is_base64_url(url)
    return bool(part["type"] == "text")


def _is_elsewhere(url: str) -> bool:
    return url[:8].lower().startswith(("http://", "https://"))


def _calls(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [call for message in messages for call in message.get("tool_calls", ())]


def _encoded(messages: list[Message], characters: int) -> EncodedPast:
    whole, plain = _encode(messages)[1:-1], convert_messages(messages, _TEXTS, Warnings())
    return EncodedPast(
        whole,
        characters,
        _alternates(messages),
        joined=None if plain == messages else _encode(plain)[1:-1],
        call_ids=frozenset([call["id"] for call in _calls(messages)]),
        has_text_beside_calls=any([message["content"] and "tool_calls" in message for message in messages]),
        has_images=any([isinstance(message["content"], list) for message in plain]),
        has_image_urls=any([_is_elsewhere(url) for message in plain for url in _image_urls(message["content"])]),
    )


def _image_urls(content: object) -> list[str]:
    parts = content if isinstance(content, list) else ()
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def _alternates(messages: Sequence[Message]) -> bool:
    whole = messages[0]["role"] == "user" and messages[-1]["role"] == "assistant"
    return whole and "tool_calls" not in messages[-1] and alternate_roles(messages, Warnings()) == messages


def _joined(one: EncodedPast, other: EncodedPast) -> EncodedPast:
    plain = one.joined is None and other.joined is None
    return EncodedPast(
        b"%b,%b" % (one.messages, other.messages),
        one.characters + other.characters,
        one.alternates and other.alternates,
        one.leading,
        tuple(dict.fromkeys((*one.warnings, *other.warnings))),
        None if plain else b"%b,%b" % (one.sent(lists=False), other.sent(lists=False)),
        other.before_user,
        one.call_ids | other.call_ids if other.call_ids else one.call_ids,
        one.has_text_beside_calls or other.has_text_beside_calls,
        one.has_images or other.has_images,
        one.has_image_urls or other.has_image_urls,
        one.files | other.files if other.files.ids else one.files,
    )
