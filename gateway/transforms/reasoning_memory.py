"""Reasoning memory: the thoughts that clients do not send back, found again by what they led to.

A thought belongs to a message of the assistant, and is kept under the id of each call in it, or under its text where it
calls nothing.  A text ("Done."), and an id that is not random ("functions.ls:0"), come up in other conversations as
well: with those goes what the user has said before them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from gateway.events import Event, Failure, Finish, ReasoningDelta, TextDelta, ToolCallStart
from gateway.request import Message, Request
from gateway.warnings import Warnings

_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]")
_RANDOM = 8  # characters of a word that nobody else has drawn, at least


class MissingReasoning(Struct, frozen=True):
    """A message of the assistant without its reasoning: its place, and what that may have been kept under."""

    index: int
    keys: Sequence[str]


def find_missing_reasoning(messages: Sequence[Message], *, all_turns: bool = True) -> list[MissingReasoning]:
    """The messages whose reasoning has to be looked for; else than in all turns, only behind the user's last one."""
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
    """The request with the thoughts that were found by these keys."""
    messages = [*request.messages]
    for one in lacks:
        if thought := next((found[key] for key in one.keys if key in found), None):
            messages[one.index] = {**messages[one.index], "reasoning_content": thought}
            ledger.add("repaired", "messages.reasoning_content")
    return replace(request, messages=tuple(messages))


class _CapturedChoice(Struct):
    thoughts: list[str] = []
    texts: list[str] = []
    ids: list[str] = []


class ReasoningCapture:
    """Hears an answer as its client gets it, and passes everything on.

    heard: what each choice that has ended thought, by the keys that its message will be looked for with.
    """

    def __init__(self, asked: Sequence[Message]) -> None:
        self._said = ""
        for message in asked:
            if message["role"] == "user":
                self._said = _and(self._said, message)
        self._choices: defaultdict[int, _CapturedChoice] = defaultdict(_CapturedChoice)
        self.captured: list[tuple[str, str]] = []

    def feed(self, event: Event) -> Iterable[Event]:
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
        return ()  # nothing is held back

    def _fail(self) -> None:
        """Keep the text until the failure, as the client may send it back."""
        for choice in self._choices.values():
            self._end(choice)
        self._choices.clear()

    def _end(self, choice: _CapturedChoice) -> None:
        if thought := "".join(choice.thoughts):
            self.captured += [(key, thought) for key in _keys(choice.ids, "".join(choice.texts), self._said)]


def _keys(ids: Sequence[str], text: str, message: str) -> list[str]:
    """Of a message with these calls or this text, after that was said."""
    if ids:
        return [_digest("call", "" if _is_random(id) else message, id) for id in ids]
    bare = _bare(text)
    return [_digest("text", message, bare)] if bare else []


def _is_random(id: str) -> bool:
    """True if its last word is long, and no word of a language: no other call has the same id."""
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
    """Without white space: clients trim texts, and join them with lines of their own."""
    return "".join(text.split())


def _digest(*words: str) -> str:
    return sha256("\0".join(words).encode()).hexdigest()
