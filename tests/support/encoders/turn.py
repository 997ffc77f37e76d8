"""What an encoder writes: thoughts, texts and calls, and how one format puts them down."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct


class Call(Struct, frozen=True):
    name: str
    args: dict[str, Any]


class Thought(Struct, frozen=True):
    text: str


class Said(Struct, frozen=True):
    text: str


class Calls(Struct, frozen=True):
    """Calls of one step, side by side."""

    calls: tuple[Call, ...]


Part = Thought | Said | Calls


def dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain(value: object) -> str:
    """A value as text whose type the schema tells: a string as it is, the rest as JSON."""
    return value if isinstance(value, str) else dumps(value)


class Encoder(Struct, frozen=True, kw_only=True):
    """thought is None where the family has none, calls where it has none.

    typed: the types of values are only in the tool's schema, so a call may only have parameters of the schema.
    last: nothing can follow a call but other calls, as nothing closes one.
    strings: False for a string that cannot stand in this markup at all, as an argument's value.
    before, after: what stands around the whole turn.
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
        return self.before + "".join(map(self._part, parts)) + self.after

    def _part(self, part: Part) -> str:
        if isinstance(part, Calls):
            assert self.calls
            return self.calls(part.calls)
        if isinstance(part, Thought):
            assert self.thought
            return self.thought(part.text)
        return self.text(part.text)
