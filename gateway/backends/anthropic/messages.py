"""Convert chat messages to the messages and blocks of Anthropic's API.

The API wants the results of tool calls at the head of the next message, content in each message, and the user first.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from gateway.backends.data_urls import base64_image_type
from gateway.backends.openai.messages import with_missing_results
from gateway.request import LEADING, Message
from gateway.warnings import Warnings

JsonObject = dict[str, Any]

_REQUIRED_USER_TEXT = "Continue."  # the text of the user turn that the API demands
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")  # of the id of a call
_SIGNED = ("thinking", "redacted_thinking")
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?,", re.IGNORECASE)


def split_system(items: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return the instructions before the conversation, and the conversation."""
    first = next((i for i, message in enumerate(items) if message["role"] not in LEADING), len(items))
    return [*items[:first]], [*items[first:]]


def system_blocks(leading: Iterable[Message]) -> list[JsonObject]:
    """Return the instructions as text blocks."""
    return [block for message in leading for block in content_blocks(message.get("content"))]


def message_turns(items: Sequence[Message], ledger: Warnings) -> list[JsonObject]:
    """Return the turns of a conversation, each with blocks; the user begins."""
    turns: list[JsonObject] = []
    for message in with_missing_results(items, ledger):
        role, blocks = _ROLES.get(message["role"], "user"), _blocks(message, ledger)
        if not blocks:
            continue  # the API refuses empty messages
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if not turns or turns[0]["role"] == "assistant":
        turns.insert(0, user_turn(ledger))
    _trim_end(turns, ledger)
    return turns


def user_turn(ledger: Warnings) -> JsonObject:
    """Return a turn of a user that stands for none, with a warning."""
    ledger.add("translated", "messages")
    return {"role": "user", "content": [{"type": "text", "text": _REQUIRED_USER_TEXT}]}


def content_blocks(content: object) -> list[JsonObject]:
    """Return the blocks of a message's content, without blank texts, which the API refuses."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return [_block(part) for part in parts if part["type"] != "text" or _has_text(part.get("text"))]


def _has_text(text: object) -> bool:
    return isinstance(text, str) and text != "" and not text.isspace()


def is_signed(block: Mapping[str, Any]) -> bool:
    """Return True for reasoning that the API takes back."""
    return block["type"] in _SIGNED


_ROLES = {"assistant": "assistant", "system": "system"}


def _blocks(message: Message, ledger: Warnings) -> list[JsonObject]:
    if message["role"] == "tool":
        return [_result(message)]
    blocks = content_blocks(message.get("content"))
    if message["role"] != "assistant":
        return blocks
    return [*_thoughts(message, ledger), *blocks, *map(_tool_use, message.get("tool_calls") or ())]


def _block(part: JsonObject) -> JsonObject:
    cache = {"cache_control": part["cache_control"]} if part.get("cache_control") else {}
    if part["type"] == "text":
        return {"type": "text", "text": part["text"], **cache}
    url = part["image_url"]["url"]
    found = _DATA_URL.match(url)
    source = {"type": "url", "url": url}
    if found:
        data = url[found.end() :]
        source = {"type": "base64", "media_type": base64_image_type(data) or found[1].lower(), "data": data}
    return {"type": "image", "source": source, **cache}


def _thoughts(message: Message, ledger: Warnings) -> list[JsonObject]:
    """Return the signed reasoning; the API refuses any other."""
    given = message.get("thinking_blocks")
    blocks = [block for block in given if _is_whole(block)] if isinstance(given, list) else []
    if not blocks and message.get("reasoning_content"):
        ledger.add("dropped", "messages.reasoning_content")
    return blocks


def _is_whole(block: object) -> bool:
    match block:
        case {"type": "thinking", "thinking": str(), "signature": str(signature)}:
            return bool(signature)
        case {"type": "redacted_thinking", "data": str(data)}:
            return bool(data)
    return False


def _tool_use(call: Mapping[str, Any]) -> JsonObject:
    function = call["function"]
    arguments = Raw(function["arguments"].encode())
    return {"type": "tool_use", "id": fit_call_id(call["id"]), "name": function["name"], "input": arguments}


def _result(message: Message) -> JsonObject:
    content = message["content"]
    blocks = content_blocks(content)
    result = {"type": "tool_result", "tool_use_id": fit_call_id(message["tool_call_id"])}
    return {**result, "content": content if isinstance(content, str) else blocks} if blocks else result


def fit_call_id(id: str) -> str:
    """Return the id of a call with the characters that the API takes."""
    return _UNFIT.sub("_", id)


def _trim_end(turns: list[JsonObject], ledger: Warnings) -> None:
    """Remove white space at the end of a prefill, as the API refuses it."""
    last = turns[-1]
    block = last["content"][-1]
    if last["role"] != "assistant" or block["type"] != "text" or block["text"] == block["text"].rstrip():
        return
    ledger.add("translated", "messages")
    block["text"] = block["text"].rstrip()
