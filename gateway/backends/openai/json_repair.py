"""Repair invalid JSON: NaN, infinite numbers, bytes that are not UTF-8, halves of surrogate pairs.

A server may split the two escapes of one character over two deltas, and valid text cannot hold half a character.  In
fields that come in pieces, a private-use character therefore stands in for a half until the other half arrives.
"""

import re
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from gateway.events import (
    Annotation,
    Event,
    ExtraField,
    Media,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallStart,
)
from gateway.warnings import Warnings

_Piece = TextDelta | ReasoningDelta | RefusalDelta | ToolArgsDelta
_Key = tuple[type[_Piece], int, int | None]  # of a field in pieces: its event type, choice, and call or None
_IN_PIECES = (
    "content|reasoning_content|reasoning|reasoning_text|thinking|text|summary|refusal|arguments|input|partial_json"
)
_LARGE = r"-?\d+(?:\.\d+)?[eE]\+?\d+|-?\d{300,}(?:\.\d+)?"  # numbers that may exceed a double
_TOKENS = re.compile(rf'(?:"({_IN_PIECES})"\s*:\s*)?"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b|{_LARGE}', re.DOTALL)
_SURROGATES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
_TAKEN = re.compile(r"[\U0010f800-\U0010ffff]|\\u[dD][bB][fF][eEfF]")  # text that has stand-in characters itself
_OFFSET = 0x10F800 - 0xD800  # from a half to its stand-in character
_PAIR = re.compile("([\U0010f800-\U0010fbff])([\U0010fc00-\U0010ffff])")
_STAND_IN = re.compile("[\U0010f800-\U0010ffff]")
_STAND_IN_BYTES = re.compile(b"\xf4\x8f[\xa0-\xbf][\x80-\xbf]")
_LOST = "\ufffd"
_MAX = 512 << 10  # most characters to repair; a megabyte takes 0.1 s and 100 times its size in memory
_FIELDS: dict[type[_Piece], str] = {
    TextDelta: "content",
    ReasoningDelta: "reasoning_content",
    RefusalDelta: "refusal",
    ToolArgsDelta: "tool_calls.function.arguments",
}


def mended(payload: bytes) -> bytes:
    """Return the payload with U+FFFD for halves of surrogate pairs; in a large one only invalid UTF-8 is repaired."""
    text = payload.decode("utf-8", "replace")
    if len(text) <= _MAX:
        text = _TOKENS.sub(lambda token: _token(token, stand_in=False), text)
    return text.encode()


class SurrogateHalves(Struct, eq=False):
    """The halves of surrogate pairs at the end of pieces that wait for their other half, by field."""

    _ledger: Warnings
    _open: dict[_Key, str] = {}
    _met: bool = False  # the current payload has stand-ins

    @property
    def due(self) -> bool:
        """Return True if the events of a payload have to be joined."""
        return self._met or bool(self._open)

    def mend(self, payload: bytes) -> bytes:
        """Return the payload with stand-ins for halves in the fields that come in pieces."""
        text = payload.decode("utf-8", "replace")
        if len(text) > _MAX or _TAKEN.search(text):
            return mended(payload)
        self._met = True
        return _TOKENS.sub(lambda token: _token(token, stand_in=bool(token[1])), text).encode()

    def join(self, events: Iterable[Event]) -> list[Event]:
        """Return the events without stand-ins.  A half at the end of a piece waits; any other becomes U+FFFD."""
        made = [after for event in events for after in self._join_one(event)]
        self._met = False
        return made

    def held_events(self) -> list[Event]:
        """Return the halves that still wait, each as U+FFFD."""
        return [*self._lost([*self._open])]

    def _join_one(self, event: Event) -> Iterator[Event]:
        if isinstance(event, Annotation | ExtraField | Media):
            yield replace(event, json=_clean(event.json)) if self._met else event
            return
        if isinstance(event, TextDelta | ReasoningDelta | RefusalDelta | ToolCallStart):
            others = [at for at in self._open if at[1] == event.choice and at[0] is not type(event)]
            yield from self._lost([at for at in others if at[0] is not ToolArgsDelta])
        yield from self._piece(event) if isinstance(event, _Piece) else (event,)

    def _piece(self, event: _Piece) -> Iterator[Event]:
        key = _key(event)
        text, before = _text(event), self._open.pop(key, "")
        if self._met:
            text = _PAIR.sub(_character, before + text)
            if text and _STAND_IN.match(text[-1]) and ord(text[-1]) - _OFFSET < 0xDC00:
                self._open[key], text = text[-1], text[:-1]
        elif before:
            text = self._warn_of_lost(key) + text
        if self._met and _STAND_IN.search(text):
            text = _STAND_IN.sub(self._warn_of_lost(key), text)
        if text or (isinstance(event, TextDelta) and event.logprobs):
            yield _with_text(event, text)

    def _lost(self, keys: Iterable[_Key]) -> Iterator[Event]:
        for key in keys:
            del self._open[key]
            yield _piece(key, self._warn_of_lost(key))

    def _warn_of_lost(self, key: _Key) -> str:
        self._ledger.add("repaired", _FIELDS[key[0]])
        return _LOST


def _token(token: re.Match[str], *, stand_in: bool) -> str:
    if not token[0].endswith('"'):
        return token[0] if token[0][-1].isdigit() and isfinite(float(token[0])) else "-9999"
    return _SURROGATES.sub(lambda escape: _half(escape, stand_in=stand_in), token[0])


def _half(escape: re.Match[str], *, stand_in: bool) -> str:
    if not escape[1]:
        return escape[0]
    return chr(int(escape[1], 16) + _OFFSET) if stand_in else _LOST


def _character(pair: re.Match[str]) -> str:
    halves = (ord(one) - _OFFSET for one in pair.groups())
    return b"".join(half.to_bytes(2, "big") for half in halves).decode("utf-16-be")


def _clean(raw: Raw) -> Raw:
    return Raw(_STAND_IN_BYTES.sub(_LOST.encode(), bytes(raw)))


def _key(event: _Piece) -> _Key:
    return type(event), event.choice, event.call if isinstance(event, ToolArgsDelta) else None


def _piece(key: _Key, text: str) -> Event:
    kind, choice, call = key
    make: Any = kind
    made: Event = make(choice, text) if call is None else make(choice, call, text)
    return made


def _text(event: _Piece) -> str:
    return event.json if isinstance(event, ToolArgsDelta) else event.text


def _with_text(event: _Piece, text: str) -> Event:
    return replace(event, json=text) if isinstance(event, ToolArgsDelta) else replace(event, text=text)
