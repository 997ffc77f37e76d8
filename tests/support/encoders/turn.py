"""The input of an encoder: thoughts, texts and calls; and the base class of encoders."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct


class Call(Struct, frozen=True):
    """A tool call."""

    name: str
    args: dict[str, Any]


class Thought(Struct, frozen=True):
    """A thought."""

    text: str


class Text(Struct, frozen=True):
    """A text."""

    text: str


class Calls(Struct, frozen=True):
    """Parallel calls of one step."""

    calls: tuple[Call, ...]


Part = Thought | Text | Calls


def dumps(value: object) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def plain(value: object) -> str:
    """Return a value as text whose type is in the schema: a string as it is, other values as JSON."""
    return value if isinstance(value, str) else dumps(value)


class Encoder(Struct, frozen=True, kw_only=True):
    """Write turns in one format.

    calls, thought: functions that write them; None: the family has none.
    text: a function that writes a text.
    typed: the types of values are only in the tool's schema, so a call may only have parameters of the schema.
    last: only other calls can follow a call, since nothing closes one.
    strings: returns False for a string that cannot be an argument's value in this markup.
    before, after: the text around the whole turn.
    """

    calls: Callable[[Sequence[Call]], str] | None
    thought: Callable[[str], str] | None = lambda text: f"<think>\n{text}</think>\n\n"
    text: Callable[[str], str] = lambda text: text
    typed: bool = False
    last: bool = False
    strings: Callable[[str], bool] = lambda value: True
    before: str = ""
    after: str = ""

    def encode(self, parts: Sequence[Part]) -> str:
        """Return the text of a turn."""
        return self.before + "".join(map(self._part, parts)) + self.after

    def _part(self, part: Part) -> str:
        if isinstance(part, Calls):
            assert self.calls
            return self.calls(part.calls)
        if isinstance(part, Thought):
            assert self.thought
            return self.thought(part.text)
        return self.text(part.text)
