"""Chunks that follow one another differ in one string; what is the same about them need not be decoded again."""

from collections.abc import Callable
from functools import partial

from msgspec import DecodeError, json

from gateway.events import Event, Reasoning, Text, ToolArgs

Told = Text | Reasoning | ToolArgs
_string = json.Decoder(str).decode
_PROBE = "\x00 another text"
_PATIENCE = 32  # lessons without a use for them, after which none is taken any more


class Template:
    """The bytes before and after the one string of a payload that was decoded to one event.

    A payload that has them too, and a string between them, is the same JSON but for that string, so it means the same
    event but for its text.
    """

    def __init__(self) -> None:
        self._before = self._after = b""
        self._begins = self._ends = 0  # where the text stands
        self._event: Callable[[str], Told] | None = None
        self._lessons = 0
        self.said = 0  # characters, of all events

    def event(self, payload: bytes) -> Told | None:
        """None where the payload is of another form."""
        if not (self._event and payload.startswith(self._before) and payload.endswith(self._after)):
            return None
        try:
            text = _string(payload[self._begins : self._ends])
        except (DecodeError, UnicodeDecodeError):
            return None
        self._lessons = 0
        self.said += len(text)
        return self._event(text) if text else None

    def learn(self, payload: bytes, events: list[Event], decode: Callable[[bytes], list[Event]]) -> None:
        """Take the form of a payload that means these events; `decode` proves where the text stands."""
        self._event = None
        found = _form(events)
        if not found or self._lessons == _PATIENCE:
            return
        self._lessons += 1
        event, text = found
        before, _, after = payload.partition(json.encode(text))
        if after and decode(before + json.encode(_PROBE) + after) == [event(_PROBE)]:
            self._before, self._after, self._event = before, after, event
            self._begins, self._ends = len(before), -len(after)


def _form(events: list[Event]) -> tuple[Callable[[str], Told], str] | None:
    """How such an event is made, and its text."""
    match events:
        case [Text(choice, text, ())]:
            return partial(Text, choice), text
        case [Reasoning(choice, text, "")]:
            return partial(Reasoning, choice), text
        case [ToolArgs(choice, call, json=text)]:
            return partial(ToolArgs, choice, call), text
    return None
