"""Restore reasoning that clients do not send back, by the tool calls or the text that followed it.

Reasoning belongs to an assistant message.  Its key is the id of each tool call in the message, or the text of a
message without calls.  A text ("Done.") or an id that is not random ("functions.ls:0") may occur in other
conversations.  Their keys include the user's messages before them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from gateway.events import Event, Failure, Finish, ReasoningDelta, TextDelta, ToolCallStart
from gateway.request import Message, Request
from gateway.warnings import Warnings

_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]")
_RANDOM = 8  # minimum characters of a word that counts as random


class MissingReasoning(Struct, frozen=True):
    """An assistant message without its reasoning.

    index: its position.
    keys: the keys that its reasoning may be stored under.
    """

    index: int
    keys: Sequence[str]


def find_missing_reasoning(messages: Sequence[Message], *, all_turns: bool = True) -> list[MissingReasoning]:
    """Return the assistant messages without reasoning.

    all_turns: False for only the messages after the last user message.
    """
    lacks: list[MissingReasoning] = []
    text = ""
    for place, message in enumerate(messages):
        if message["role"] == "user":
            text = _and(text, message)
            lacks = lacks if all_turns else []
        elif message["role"] == "assistant" and not any(message.get(field) for field in _FIELDS):
            ids = [call["id"] for call in message.get("tool_calls") or ()]
            if keys := _keys(ids, _text(message), text):
                lacks.append(MissingReasoning(place, keys))
    return lacks


def restore_reasoning(
    request: Request, lacks: Iterable[MissingReasoning], found: Mapping[str, str], ledger: Warnings
) -> Request:
    """Return the request with the reasoning that was found under the keys."""
    messages = [*request.messages]
    for one in lacks:
        if thought := next((found[key] for key in one.keys if key in found), None):
            messages[one.index] = {**messages[one.index], "reasoning_content": thought}
            ledger.add("repaired", "messages.reasoning_content")
    return replace(request, messages=tuple(messages))


@dataclass(slots=True)
class _CapturedChoice:
    thoughts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


class ReasoningCapture:
    """Collect the reasoning of a response as the client gets it, and pass all events on.

    captured: keys with the reasoning of the choices that have ended.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._user_digest = ""
        for message in messages:
            if message["role"] == "user":
                self._user_digest = _and(self._user_digest, message)
        self._choices: defaultdict[int, _CapturedChoice] = defaultdict(_CapturedChoice)
        self.captured: list[tuple[str, str]] = []

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the event, after taking note of it."""
        if type(event) is ReasoningDelta:
            self._choices[event.choice].thoughts.append(event.text)
        elif type(event) is TextDelta:
            self._choices[event.choice].texts.append(event.text)
        elif type(event) is ToolCallStart:
            self._choices[event.choice].ids.append(event.id)
        elif type(event) is Finish:
            self._end(self._choices.pop(event.choice, _CapturedChoice()))
        elif type(event) is Failure:
            self._fail()
        return (event,)

    def close(self) -> Iterable[Event]:
        """Return no events."""
        return ()

    def _fail(self) -> None:
        """Keep the reasoning until the failure, because the client may send the text back."""
        for choice in self._choices.values():
            self._end(choice)
        self._choices.clear()

    def _end(self, choice: _CapturedChoice) -> None:
        if thought := "".join(choice.thoughts):
            self.captured += [(key, thought) for key in _keys(choice.ids, "".join(choice.texts), self._user_digest)]


def _keys(ids: Sequence[str], text: str, message: str) -> list[str]:
    """Return the keys of a message with these tool calls or this text.

    message: a digest of the user's messages before it.
    """
    if ids:
        return [_digest("call", "" if _is_random(id) else message, id) for id in ids]
    bare = _bare(text)
    return [_digest("text", message, bare)] if bare else []


def _is_random(id: str) -> bool:
    """Return True if the last word of an id is long and has a digit, so that no other call has the same id."""
    *_, word = _BETWEEN_WORDS.split(id[-64:])
    return len(word) >= _RANDOM and any(map(str.isdigit, word))


def _and(text: str, message: Message) -> str:
    """Return a digest of the user's messages so far and this one."""
    return _digest("user", text, _bare(_text(message)))


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part["type"] == "text")
    return content or ""


def _bare(text: str) -> str:
    """Return the text without white space: clients trim texts, and join them with line breaks."""
    return "".join(text.split())


def _digest(*words: str) -> str:
    return sha256("\0".join(words).encode()).hexdigest()
