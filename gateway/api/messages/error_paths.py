"""Find the block of a body that an error about a part of a chat message is about."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.api.responses.error_params import paths_of
from gateway.request import Message

_PART = re.compile(r"messages\[(\d+)\]\.content\[(\d+)\]")
_BLOCK = re.compile(r"messages\[\d+\](?:\.content\[\d+\]){0,2}")


def block_path(body: Mapping[str, Any], messages: Sequence[Message], param: str) -> str | None:
    """Return the path of the block that the part at a path of the chat messages was read from; None for no such block.

    The block is the first one with the same image, file or text.
    """
    found = _PART.match(param)
    if not found:
        return None
    value = _said(messages[int(found[1])]["content"][int(found[2])])
    path = next(paths_of(body["messages"], "messages", value), None) if value else None
    block = _BLOCK.match(path) if path else None
    return block[0] if block else None


def _said(part: Mapping[str, Any]) -> str:
    """Return the text, the address or the data of a part; "" for none."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return _data(url)
        case {"type": "file", "file": {"file_data": str(data)}}:
            return _data(data)
        case {"type": "file", "file": {"file_url": str(url)}}:
            return url
        case {"type": "text", "text": str(text)}:
            return text
    return ""


def _data(url: str) -> str:
    """Return what follows the head of a data URL; any other one as it is."""
    return url.partition(",")[2] if url.startswith("data:") else url
