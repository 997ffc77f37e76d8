"""Find the block of a body that an error means, from the part of a chat message that the error names."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.api.responses.error_params import paths_of
from gateway.request import Message

_PART = re.compile(r"messages\[(\d+)\]\.content\[(\d+)\]")
_BLOCK = re.compile(r"messages\[\d+\](?:\.content\[\d+\]){0,2}")


def block_path(body: Mapping[str, Any], messages: Sequence[Message], param: str) -> str | None:
    """Return the path of the block that a part of the chat messages comes from; None without such a block.

    param: the path of the part.  The block is the first one with the same image, file or text.
    """
    found = _PART.match(param)
    if not found:
        return None
    try:
        value = _part_value(messages[int(found[1])]["content"][int(found[2])])
    except (IndexError, TypeError):  # a backend may name a part that it does not have
        return None
    path = next(paths_of(body.get("messages"), "messages", value), None) if value else None
    block = _BLOCK.match(path) if path else None
    return block[0] if block else None


def _part_value(part: Mapping[str, Any]) -> str:
    """Return the text, the URL, the file id or the data of a part; "" for another one."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return _data(url)
        case {"type": "file", "file": {"file_data": str(data)}}:
            return _data(data)
        case {"type": "file", "file": {"file_url": str(url)}}:
            return url
        case {"type": "file", "file": {"file_id": str(id)}} | {"type": "image_url", "image_url": {"file_id": str(id)}}:
            return id
        case {"type": "text", "text": str(text)}:
            return text
    return ""


def _data(url: str) -> str:
    """Return the data of a data URL; any other URL unchanged."""
    return url.partition(",")[2] if url.startswith("data:") else url
