"""A message that a stored completion answers."""

from typing import Any


def listed_message(message: dict[str, Any]) -> dict[str, Any]:
    """As the API lists it: with all its fields, and a text apart from a list of parts."""
    content = message.get("content")
    said = {"content": None, "content_parts": content} if isinstance(content, list) else {"content_parts": None}
    return {"content": None, "refusal": None, "name": None, **message, **said}
