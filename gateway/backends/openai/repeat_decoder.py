"""Decode chunks that differ from the previous one in a single string only, without decoding the rest again."""

from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import ClassVar, Protocol

from msgspec import DecodeError, Struct, json

from gateway.events import Event, ReasoningDelta, TextDelta, ToolArgsDelta

RepeatableEvent = TextDelta | ReasoningDelta | ToolArgsDelta
Decode = Callable[[bytes], list[Event]]
_string = json.Decoder(str).decode
_list = json.Decoder(list[str]).decode
_quoted = b'"%b"'.__mod__
_PROBE = "\x00 another text"
_MAX_UNUSED_FORMS = 32
_BACKSLASH = ord("\\")
_WINDOW = 16 << 10  # bytes per step; a run that ends early costs a second pass over one step only


class FrameDelimiters(Protocol):
    """The bytes before and after each payload of a stream."""

    opening: ClassVar[bytes]
    ending: ClassVar[bytes]


class RepeatedChunkDecoder(Struct, eq=False):
    """Decode payloads by the bytes around the one string of a payload that was decoded to one event.

    A payload with the same bytes around another string is the same JSON except for that string.  So it means the same
    event with another text.  A stream of such payloads repeats three pieces:

        _opened  data: {"choices":[{"delta":{"content":"    the opening of a frame, _before, a quote
        text     Hel
        _closed  "}}]}\\n\\n                                  a quote, _after, the ending of a frame

    A form is proven before its first use, as many are never used: `decode` decodes a payload without a change of state.

    _max_unused_forms: the number of forms to learn without a use before learning stops.
    _before, _after: the bytes of a payload around the string with its quotes.
    _between: the bytes between two texts, `_closed` and `_opened`.
    _unused_forms: the number of forms since the last use.
    decoded_characters: the characters of the texts of all events.
    """

    _max_unused_forms: int = _MAX_UNUSED_FORMS
    _unused_forms: int = 0
    _event: Callable[[str], RepeatableEvent] | None = None
    _between: bytes = b""
    _proven: bool = False
    decoded_characters: int = 0

    # Of a form, once there is one:
    _before: bytes = b""
    _after: bytes = b""
    _begins: int = 0  # position of the string in a payload; _ends counts from the payload's end
    _ends: int = 0
    _opened: bytes = b""
    _closed: bytes = b""
    _line: bytes = b""  # the last line of `_opened`, which may have others before it
    _lead: int = 0  # the number of these

    @property
    def is_settled(self) -> bool:
        """Return True if a form is known, or if learning has stopped."""
        return self._event is not None or self._unused_forms == self._max_unused_forms

    def event(self, payload: bytes, decode: Decode) -> RepeatableEvent | None:
        """Return the event of a payload; None if it has another form or no text."""
        if not (self._event and payload.startswith(self._before) and payload.endswith(self._after)):
            return None
        if not (self._proven or self._prove(decode)):
            return None
        try:
            text = _string(payload[self._begins : self._ends])
        except (DecodeError, UnicodeDecodeError):
            return None
        self._unused_forms = 0
        self.decoded_characters += len(text)
        return self._event(text) if text else None

    @property
    def repeated_event(self) -> RepeatableEvent | None:
        """An event of the known form, without its text; None until a run of this form has been looked for."""
        return self._event("") if self._event and self._proven and self._between else None

    def single_chunk_decoder(self, max_bytes: int) -> Callable[[bytes], tuple[Event] | None]:
        """Return a decoder for data that is one payload of the known form.

        The decoder returns None for any other data, and for more than `max_bytes`.  It is valid until the next payload
        is decoded.
        """
        assert self._event
        event, opened, closed = self._event, self._opened, self._closed
        inside = slice(len(opened) - 1, 1 - len(closed))

        def decode_one(data: bytes) -> tuple[Event] | None:
            if not (data.startswith(opened) and data.endswith(closed)) or len(data) > max_bytes:
                return None
            try:
                text = _string(data[inside])
            except (DecodeError, UnicodeDecodeError):
                return None
            self.decoded_characters += len(text)
            return (event(text),) if text else None

        return decode_one

    def run(self, data: bytes, at: int, around: FrameDelimiters, decode: Decode) -> tuple[list[Event], int]:
        """Return the events of the payloads of the known form from `at` on, and the position where they end.

        around: the delimiters of the stream, the same at every call.
        """
        if not self._event:
            return [], at
        if not self._between:
            self._opened, self._closed = around.opening + self._before + b'"', b'"' + self._after + around.ending
            self._between = self._closed + self._opened
            self._lead, self._line = around.opening.count(b"\n"), self._opened[around.opening.rfind(b"\n") + 1 :]
        if not data.startswith(self._opened, at) or not (self._proven or self._prove(decode)):
            return [], at
        try:
            strings, until = self._matching_strings(data, at, around.ending.count(b"\n"))
            return self._make_events(_texts(strings)), until
        except (DecodeError, UnicodeDecodeError):  # a string was invalid, so the payload has another form
            return [], at

    def _make_events(self, texts: list[str]) -> list[Event]:
        """Return the events with these texts; an empty text makes none."""
        assert self._event
        if texts:
            self._unused_forms = 0
        self.decoded_characters += sum(map(len, texts))
        return [*map(self._event, filter(None, texts))]

    def _matching_strings(self, data: bytes, at: int, step: int) -> tuple[list[bytes], int]:
        """Return the strings of the payloads of this form from `at` on, and the position where the payloads end.

        First all lines up to the last match are tried, then those before the first line of another form.  A candidate
        is right if its strings, joined with the bytes between them, are the data itself.

        step: the number of line ends behind each payload.
        """
        last = data.rfind(self._closed, at, at + _WINDOW)
        if last < 0:
            return [], at
        begins, ends, lead = len(self._line), step - len(self._closed), self._lead
        lines = data[at : last + len(self._closed)].split(b"\n")[lead : -step : lead + step]
        for alike in (lines, takewhile(partial(self._looks_alike, len(self._closed) - step), lines)):
            strings = [line[begins:ends] for line in alike]
            written = self._opened + self._between.join(strings) + self._closed
            if data.startswith(written, at):  # so no line hides another form
                return strings, at + len(written)
        return [], at

    def _looks_alike(self, size: int, line: bytes) -> bool:
        """Return True if a line begins and ends like this form."""
        return line.startswith(self._line) and line.endswith(self._closed[:size])

    def train(self, payload: bytes, events: list[Event]) -> None:
        """Learn the form of a payload that was decoded to these events."""
        self._event = None
        if len(events) != 1 or self._unused_forms == self._max_unused_forms:
            return
        found = _form(events[0])
        if not found:
            return
        self._unused_forms += 1
        event, text = found
        before, _, after = payload.partition(json.encode(text))
        if after:
            self._before, self._after, self._event, self._proven = before, after, event, False
            self._begins, self._ends, self._between = len(before), -len(after), b""

    def _prove(self, decode: Decode) -> bool:
        """Prove by a probe text where the string of the event stands; if it fails, forget the form and return False."""
        assert self._event
        self._proven = decode(self._before + json.encode(_PROBE) + self._after) == [self._event(_PROBE)]
        if not self._proven:
            self._event = None
        return self._proven


def _texts(strings: list[bytes]) -> list[str]:
    """Decode quoted strings.  Decode them in one call if no backslash can hide a quote."""
    if len(strings) > 1 and _BACKSLASH not in (one := b'["%b"]' % b'","'.join(strings)):
        texts = _list(one)
        if len(texts) == len(strings):
            return texts
    return [*map(_string, map(_quoted, strings))]


def _form(event: Event) -> tuple[Callable[[str], RepeatableEvent], str] | None:
    """Return the function that makes such an event from its text, and that text.

    None stands for an event that has more than a text.
    """
    if type(event) is TextDelta:  # not by `match`, which takes several times as long
        return None if event.logprobs else (partial(TextDelta, event.choice), event.text)
    if type(event) is ReasoningDelta:
        return None if event.signature else (partial(ReasoningDelta, event.choice), event.text)
    if type(event) is ToolArgsDelta:
        return partial(ToolArgsDelta, event.choice, event.call), event.json
    return None
