"""Remove reasoning that a server sends twice: in its reasoning field, and between tags at the beginning of the content.

llama.cpp does so with `--reasoning-format deepseek-legacy`.  Both may come in pieces, in turn.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.events import Event, Finish, TextDelta, ToolCallStart
from gateway.warnings import Warnings

_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("[THINK]", "[/THINK]"),
)
_LONGEST = 4096  # characters of white space before a tag; also those by which the content may be ahead of the field


@dataclass(slots=True, eq=False)
class _Beginning:
    """Hold the beginning of a content while it may repeat the reasoning, apart from white space.

    _thought: the pieces of the reasoning; the decoder appends more as they come.
    over: the rest of the content passes unchanged.
    dropped: the events that were removed.
    """

    _thought: Sequence[str]
    _held: list[TextDelta] = field(default_factory=list)
    _buffer: str = ""  # text that has not been compared yet
    _end: str = ""  # the closing tag, once the opening tag has come
    _next: int = 0  # index of the piece after the one being compared
    _piece: str = ""
    _at: int = 0  # position in that piece
    _behind: bool = False  # the repetition has ended, and no text has followed
    _ahead: str = ""  # text of the content that the reasoning field has not had yet
    over: bool = False
    dropped: Sequence[TextDelta] = ()

    def feed(self, event: TextDelta) -> Sequence[TextDelta]:
        """Return the text that is no repetition.  White space behind the closing tag belongs to the tag."""
        if self._behind:
            return self._trimmed(event, event.text)
        self._held.append(event)
        self._buffer += event.text
        if not self._end and not self._begins():
            return self._held if self.over else ()
        before, end, after = self._buffer.partition(self._end)
        if not end:
            before, self._buffer = _split_partial_tag(self._buffer, self._end)
        if not self._repeats(before) or (end and not self._whole):
            return self._release()
        if not end:
            return ()
        self._behind, self.dropped = True, self._held
        return self._trimmed(event, after)

    def close(self) -> Sequence[TextDelta]:
        """Return the held text at the end of the content; a repetition that is cut off there is dropped."""
        if self.over or self._behind:
            return ()
        if not (self._end and self._repeats(self._buffer) and not self._ahead):
            return self._release()
        self.over, self.dropped = True, self._held
        return ()

    def _trimmed(self, event: TextDelta, text: str) -> Sequence[TextDelta]:
        """Return the text of an event without leading white space."""
        text = text.lstrip()
        self.over = bool(text)
        if text == event.text:
            return (event,)
        self.dropped = (*self.dropped, event)
        return (TextDelta(event.choice, text),) if text else ()

    def _release(self) -> Sequence[TextDelta]:
        self.over = True
        return self._held

    def _begins(self) -> bool:
        """Return True if an opening tag has come; end the comparison if none can follow."""
        text = self._buffer.lstrip()
        for tag, end in _TAGS:
            if text.startswith(tag):
                self._end, self._buffer = end, text[len(tag) :]
                return True
        self.over = len(self._buffer) > _LONGEST or not any(tag.startswith(text) for tag, _ in _TAGS)
        return False

    def _repeats(self, text: str) -> bool:
        """Compare the next text of the content with the reasoning, as far as both have come."""
        text, at = self._ahead + _without_space(text), 0
        while at < len(text) and self._more():
            size = min(len(self._piece) - self._at, len(text) - at)
            if self._piece[self._at : self._at + size] != text[at : at + size]:
                return False
            self._at, at = self._at + size, at + size
        self._ahead = text[at:]
        return len(self._ahead) <= _LONGEST

    def _more(self) -> bool:
        """Return True if there is more reasoning to compare with."""
        while self._at == len(self._piece) and self._next < len(self._thought):
            self._piece, self._at, self._next = _without_space(self._thought[self._next]), 0, self._next + 1
        return self._at < len(self._piece)

    @property
    def _whole(self) -> bool:
        """Return True if both texts have been compared to their end."""
        return not self._ahead and not self._more()


@dataclass(slots=True, eq=False)
class RepeatedReasoning:
    """Remove reasoning that the contents of choices repeat.  `_thoughts`: the pieces of the reasoning, by choice."""

    _ledger: Warnings
    _thoughts: Mapping[int, Sequence[str]]
    _beginnings: dict[int, _Beginning] = field(default_factory=dict)
    _over: set[int] = field(default_factory=set)  # choices whose content passes unchanged

    @property
    def due(self) -> bool:
        """Return True if a content may still repeat reasoning."""
        return len(self._thoughts) > len(self._over)

    def remove(self, events: Iterable[Event]) -> list[Event]:
        """Return the events without reasoning that the beginning of a content repeats."""
        return [left for event in events for left in self._remove_one(event)]

    def held_events(self) -> list[Event]:
        """Return the events that are held at the end of the response."""
        return [event for choice in self._beginnings for event in self._advance(choice, None)]

    def _remove_one(self, event: Event) -> Iterable[Event]:
        if isinstance(event, ToolCallStart | Finish) and event.choice in self._beginnings.keys() - self._over:
            return (*self._advance(event.choice, None), event)
        if type(event) is not TextDelta or event.choice not in self._thoughts or event.choice in self._over:
            return (event,)
        if event.choice not in self._beginnings:
            if not event.text:
                return (event,)
            self._beginnings[event.choice] = _Beginning(self._thoughts[event.choice])
        return self._advance(event.choice, event)

    def _advance(self, choice: int, event: TextDelta | None) -> Iterator[Event]:
        """Yield the events that follow from the next event of a choice; None stands for the end of its content."""
        beginning = self._beginnings[choice]
        yield from beginning.feed(event) if event else beginning.close()
        if beginning.over or not event:
            self._over.add(choice)
        if beginning.dropped:
            self._ledger.add("repaired", "content")
            if any(text.logprobs for text in beginning.dropped):
                self._ledger.add("dropped", "logprobs")
            beginning.dropped = ()


def _without_space(text: str) -> str:
    """Return the text without white space."""
    return "".join(text.split())


def _split_partial_tag(text: str, end: str) -> tuple[str, str]:
    """Split off a beginning of the tag `end` from the end of the text."""
    size = next((n for n in range(min(len(end) - 1, len(text)), 0, -1) if text.endswith(end[:n])), 0)
    return text[: len(text) - size], text[len(text) - size :]
