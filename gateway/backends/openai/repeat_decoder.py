"""Chunks that follow one another differ in one string; what is the same about them need not be decoded again."""

from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import ClassVar, Protocol

from msgspec import DecodeError, Struct, json

from gateway.events import Event, ReasoningDelta, TextDelta, ToolArgsDelta

RepeatableEvent = TextDelta | ReasoningDelta | ToolArgsDelta
_string = json.Decoder(str).decode
_list = json.Decoder(list[str]).decode
_quoted = b'"%b"'.__mod__
_PROBE = "\x00 another text"
_PATIENCE = 32
_WINDOW = 16 << 10  # bytes that are looked at as one, so that what is looked at twice is little


class FrameDelimiters(Protocol):
    """The bytes around each payload."""

    opening: ClassVar[bytes]
    ending: ClassVar[bytes]


class RepeatedChunkDecoder(Struct, eq=False):
    """The bytes before and after the one string of a payload that was decoded to one event.

    A payload that has them too, and a string between them, is the same JSON but for that string, so it means the same
    event but for its text.

    patience: lessons without a use for them, after which none is taken any more; said: characters, of all events.
    """

    _patience: int = _PATIENCE
    _before: bytes = b""
    _after: bytes = b""
    _begins: int = 0  # where the text stands
    _ends: int = 0
    _opened: bytes = b""  # around and between texts, with what is around a payload
    _closed: bytes = b""
    _between: bytes = b""
    _event: Callable[[str], RepeatableEvent] | None = None
    _lessons: int = 0
    decoded_characters: int = 0

    @property
    def is_settled(self) -> bool:
        """Return True if a form is known, or no more is learnt."""
        return self._event is not None or self._lessons == self._patience

    def event(self, payload: bytes) -> RepeatableEvent | None:
        """None where the payload is of another form."""
        if not (self._event and payload.startswith(self._before) and payload.endswith(self._after)):
            return None
        try:
            text = _string(payload[self._begins : self._ends])
        except (DecodeError, UnicodeDecodeError):
            return None
        self._lessons = 0
        self.decoded_characters += len(text)
        return self._event(text) if text else None

    @property
    def event_shape(self) -> RepeatableEvent | None:
        """An event of the form that it knows, without a text."""
        return self._event("") if self._event and self._between else None

    def decode_one(self, most: int) -> Callable[[bytes], tuple[Event] | None]:
        """Reads data that is one payload of this form, of at most so many bytes; None where it is anything else.

        That holds until another payload has been looked at.
        """
        assert self._event
        event, opened, closed = self._event, self._opened, self._closed
        inside = slice(len(opened) - 1, 1 - len(closed))

        def told(data: bytes) -> tuple[Event] | None:
            if not (data.startswith(opened) and data.endswith(closed)) or len(data) > most:
                return None
            try:
                text = _string(data[inside])
            except (DecodeError, UnicodeDecodeError):
                return None
            self.decoded_characters += len(text)
            return (event(text),) if text else None

        return told

    def run(self, data: bytes, at: int, around: FrameDelimiters) -> tuple[list[Event], int]:
        """The events of the payloads of this form that stand in data from this place on, and where they end.

        around: always the same.
        """
        if not self._event:
            return [], at
        if not self._between:
            self._opened, self._closed = around.opening + self._before + b'"', b'"' + self._after + around.ending
            self._between = self._closed + self._opened
        if not data.startswith(self._opened, at):
            return [], at
        try:
            strings, until = self._matching_strings(data, at, around.ending.count(b"\n"))
            return self._make_events(_texts(strings)), until
        except (DecodeError, UnicodeDecodeError):  # one of them is of this form only at a first glance
            return [], at

    def _make_events(self, texts: list[str]) -> list[Event]:
        """The events with these texts."""
        assert self._event
        if texts:
            self._lessons = 0
        self.decoded_characters += sum(map(len, texts))
        return [*map(self._event, filter(None, texts))]

    def _matching_strings(self, data: bytes, at: int, step: int) -> tuple[list[bytes], int]:
        """Return the strings in the place of the text in each payload of this form from here on, and their end.

        step: line ends behind each.
        """
        last = data.rfind(self._closed, at, at + _WINDOW)
        if last < 0:
            return [], at
        begins, ends = len(self._opened), step - len(self._closed)
        lines = data[at : last + len(self._closed)].split(b"\n")[:-step:step]
        for alike in (lines, takewhile(partial(self._looks_alike, len(self._closed) - step), lines)):
            strings = [line[begins:ends] for line in alike]
            written = self._opened + self._between.join(strings) + self._closed
            if data.startswith(written, at):  # it is they that came, and nothing else
                return strings, at + len(written)
        return [], at

    def _looks_alike(self, size: int, line: bytes) -> bool:
        """Return True if a line looks like this form at first glance."""
        return line.startswith(self._opened) and line.endswith(self._closed[:size])

    def train(self, payload: bytes, events: list[Event], decode: Callable[[bytes], list[Event]]) -> None:
        """Take the form of a payload that means these events; `decode` proves where the text stands."""
        self._event = None
        if len(events) != 1 or self._lessons == self._patience:
            return
        found = _form(events[0])
        if not found:
            return
        self._lessons += 1
        event, text = found
        before, _, after = payload.partition(json.encode(text))
        if after and decode(before + json.encode(_PROBE) + after) == [event(_PROBE)]:
            self._before, self._after, self._event = before, after, event
            self._begins, self._ends, self._between = len(before), -len(after), b""


def _texts(strings: list[bytes]) -> list[str]:
    """Decode quoted strings.  Decode them together if none can reach over its quotes unnoticed."""
    if len(strings) > 1 and b"\\" not in (one := b'["%b"]' % b'","'.join(strings)):
        texts = _list(one)
        if len(texts) == len(strings):
            return texts
    return [*map(_string, map(_quoted, strings))]


def _form(event: Event) -> tuple[Callable[[str], RepeatableEvent], str] | None:
    """How such an event is made, and its text."""
    match event:
        case TextDelta(choice, text, ()):
            return partial(TextDelta, choice), text
        case ReasoningDelta(choice, text, ""):
            return partial(ReasoningDelta, choice), text
        case ToolArgsDelta(choice, call, json=text):
            return partial(ToolArgsDelta, choice, call), text
    return None
