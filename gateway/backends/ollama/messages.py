"""Messages as /api/chat takes them: content is one text, media stand beside it, arguments are an object."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Raw

from gateway.request import Message


def ollama_messages(said: Sequence[Message]) -> Iterator[Message]:
    """From messages as a chat completion has them, their arguments objects and their reasoning in `thinking`."""
    names: dict[str, str] = {}  # of the calls so far, by id
    for message in said:
        calls = message.get("tool_calls") or []
        names |= {call["id"]: call["function"]["name"] for call in calls}
        content = message.get("content") or ""
        text, media = (content, []) if isinstance(content, str) else _parts(content)
        given = {
            "role": message["role"],
            "content": text,
            "thinking": message.get("thinking"),
            "images": media,
            "tool_calls": [_call(index, call) for index, call in enumerate(calls)],
            **_about(message, names),
        }
        yield {name: value for name, value in given.items() if value or name == "content"}


def _about(message: Message, names: dict[str, str]) -> dict[str, Any]:
    """Which call a result is of."""
    if message["role"] != "tool":
        return {}
    id = message["tool_call_id"]
    return {"tool_call_id": id, "tool_name": names.get(id)}


def _call(index: int, call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = Raw(function["arguments"].encode())
    return {"id": call["id"], "function": {"index": index, "name": function["name"], "arguments": arguments}}


def _parts(parts: Sequence[dict[str, Any]]) -> tuple[str, list[str]]:
    """The text, and the media in base64: images, which have data URLs by now, and audio."""
    texts, media = [], []
    for part in parts:
        if part["type"] == "text":
            texts.append(part["text"])
        elif part["type"] == "image_url":
            media.append(part["image_url"]["url"].partition(",")[2])
        else:
            media.append(part["input_audio"]["data"])
    return "\n".join(texts), media
