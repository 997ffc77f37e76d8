"""The order of messages: what stands behind what, where a template or a server is particular about it."""

from collections.abc import Sequence
from typing import Any

from gateway.ledger import Warnings
from gateway.request import LEADING, Message

_NO_OUTPUT = "[no output]"
_OF_THE_FIRST = ("role", "name")  # of the messages that become one


def split_media_from_tool_results(said: Sequence[Message], ledger: Warnings) -> list[Message]:
    """Outputs of tools as texts, as a template has no other place for them, and the user's with their images behind.

    What is still a list is one because it has more than texts.
    """
    if not any([isinstance(message["content"], list) for message in said if message["role"] == "tool"]):
        return [*said]
    apart: list[Message] = []
    media: list[dict[str, Any]] = []
    for message in said:
        if message["role"] == "tool" and isinstance(message["content"], list):
            apart.append({**message, "content": _numbered(message["content"], media)})
            continue
        if message["role"] != "tool" and media:
            apart.append(_shown(media))
            media = []
        apart.append(message)
    if media:
        apart.append(_shown(media))
    ledger.note("translated", "messages.content.image_url")
    return apart


def alternate_roles(said: Sequence[Message], ledger: Warnings) -> list[Message]:
    """The user begins, and the assistant and the user take turns; each call has an output before that."""
    runs: list[list[Message]] = []
    for message in _answered(said, ledger):
        role, before = message["role"], runs[-1][0]["role"] if runs else "system"
        if role == before and role in ("user", "assistant"):
            runs[-1].append(message)
            continue
        if role == "user" and before == "tool":
            runs.append([{"role": "assistant", "content": ""}])
        elif role == "assistant" and before in LEADING:
            runs.append([{"role": "user", "content": ""}])
        runs.append([message])
    turns = [_one(run, ledger) for run in runs]
    if turns != said:
        ledger.note("translated", "messages")
    return turns


def merge_trailing_assistant(said: Sequence[Message], ledger: Warnings) -> list[Message]:
    """No calls at the end, nor two messages of the assistant, so that the server can go on with the last one."""
    *most, last = said
    if last.get("tool_calls"):
        return [*most, *_answered([last], ledger)]
    if last["role"] == "assistant" and most and most[-1]["role"] == "assistant":
        ledger.note("translated", "messages")
        return [*most, {"role": "user", "content": ""}, last]
    return [*said]


def warn_lost_names(joined: Sequence[Message], ledger: Warnings) -> None:
    """List the loss of names where these become one message, which has the name of the first."""
    if any(message.get("name") not in (None, joined[0].get("name")) for message in joined):
        ledger.note("dropped", "messages.name")


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _answered(said: Sequence[Message], ledger: Warnings) -> list[Message]:
    """With an output for each call that has none, behind those of the others."""
    given = {message["tool_call_id"] for message in said if message["role"] == "tool"}
    turns: list[Message] = []
    missing: list[Message] = []
    for message in said:
        if message["role"] != "tool":
            turns += missing
            ids = [call["id"] for call in message.get("tool_calls") or () if call["id"] not in given]
            missing = [{"role": "tool", "tool_call_id": id, "content": _NO_OUTPUT} for id in ids]
        turns.append(message)
    turns += missing
    if len(turns) > len(said):
        ledger.note("repaired", "messages.tool_calls")
    return turns


def _numbered(parts: Sequence[dict[str, Any]], media: list[dict[str, Any]]) -> str:
    """The texts, and a number for each image, which is added to the others."""
    texts: list[str] = []
    for part in parts:
        if part["type"] != "text":
            media.append(part)
        texts.append(part["text"] if part["type"] == "text" else f"[{_noun(part)} #{len(media)}]")
    return "\n".join(texts)


def _shown(media: Sequence[dict[str, Any]]) -> Message:
    nouns = dict.fromkeys(f"{_noun(part)}s" for part in media)
    return {"role": "user", "content": [text_part(f"Tool output {' and '.join(nouns)}:"), *media]}


def _noun(part: dict[str, Any]) -> str:
    return "image" if part["type"] == "image_url" else "attachment"


def _one(run: Sequence[Message], ledger: Warnings) -> Message:
    """One message that says what all of them say."""
    first, *more = run
    if not more:
        return first
    warn_lost_names(run, ledger)
    names = dict.fromkeys(name for message in run for name in message if name not in _OF_THE_FIRST)
    said = {name: _united([message[name] for message in run if message.get(name) is not None]) for name in names}
    return {**{name: first[name] for name in _OF_THE_FIRST if name in first}, **said}


def _united(values: Sequence[Any]) -> Any:  # noqa: ANN401 - what a field of several messages holds
    if all(isinstance(value, str) for value in values):
        return "\n\n".join(filter(None, values)) if values else None
    if all(isinstance(value, str | list) for value in values):
        return [part for value in values for part in _parts(value)]
    return values[-1]


def _parts(content: str | list[Any]) -> list[Any]:
    if isinstance(content, list):
        return content
    return [text_part(content)] if content else []
