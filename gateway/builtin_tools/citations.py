"""Find citations in the text of a response, and report each one as an annotation.

The model receives numbered sources.  It cites them by number or by link.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from gateway.builtin_tools.tool_calls import encode_item
from gateway.events import Annotation, Event, ExtraField, TextDelta, Usage

_BESIDE = (Annotation, Usage, ExtraField)  # events that may come between two deltas of one text
_LONGEST = 2400  # characters of one citation, at most
# A number in square brackets, or in the brackets that some models are trained on; a link; a backtick, which begins or
# ends code.
_MARKS = re.compile(
    r"`|\[(\d{1,4})\]|【(\d{1,4})(?:†[^】\n`]{0,80})?】|\[[^\[\]\n`]{1,300}\]\((https?://[^\s()\[\]`]{1,2000})\)"
)


class CitedSource(Struct, frozen=True):
    """A source that the model may cite: a file if it has a `file_id`, else a page."""

    title: str
    url: str = ""
    file_id: str = ""


class Sources:
    """The numbered sources of one response."""

    def __init__(self) -> None:
        self._numbers: dict[CitedSource, int] = {}
        self._pages: dict[str, CitedSource] = {}

    def number_of(self, source: CitedSource) -> int:
        """Return the number of a source, from 1.

        A page or a file keeps its first number, even if it has another title the next time.
        """
        known = self._pages.setdefault(source.file_id or source.url, source)
        return self._numbers.setdefault(known, len(self._numbers) + 1)

    def by_number(self, number: int) -> CitedSource | None:
        """Return the source with this number, or None."""
        return next((source for source, its in self._numbers.items() if its == number), None)

    def by_url(self, url: str) -> CitedSource | None:
        """Return the page with this URL, or None."""
        return self._pages.get(url)


class CitationMarker:
    """A filter that adds an annotation behind each citation; the chunking of the text does not matter.

    Positions count from the beginning of the content part that has the text.  Brackets in code are no citations.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._length = 0  # characters of the part so far
        self._tail = ""  # the end of them, which may be the beginning of a citation
        self._code = False

    def annotate(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events, with an Annotation behind each text that completes a citation."""
        for event in events:
            yield event
            if type(event) is TextDelta:
                yield from self._cited(event.text)
            elif not isinstance(event, _BESIDE):
                self._apart()

    def _apart(self) -> None:
        """Start a new content part."""
        self._length, self._tail, self._code = 0, "", False

    def _cited(self, text: str) -> Sequence[Annotation]:
        window, begins = self._tail + text, self._length - len(self._tail)
        cited, over = [], 0
        for mark in _MARKS.finditer(window):
            over = mark.end()
            if mark[0] == "`":
                self._code = not self._code
            elif not self._code and (source := self._meant(mark)):
                remark = self._remark(source, begins + mark.start(), begins + over)
                cited.append(Annotation(0, encode_item(remark)))
        self._length += len(text)
        rest = window[over:]
        opened = max(rest.rfind("["), rest.rfind("【"))
        self._tail = rest[opened:] if opened >= 0 and len(rest) - opened < _LONGEST else ""
        return cited

    def _meant(self, mark: re.Match[str]) -> CitedSource | None:
        number = mark[1] or mark[2]
        return self._sources.by_number(int(number)) if number else self._sources.by_url(mark[3])

    def _remark(self, source: CitedSource, start: int, end: int) -> dict[str, Any]:
        if source.file_id:
            return {"type": "file_citation", "index": start, "file_id": source.file_id, "filename": source.title}
        return {"type": "url_citation", **_place(source, start, end)}


class ChatCitationMarker(CitationMarker):
    """A citation marker for a response that is one text, as in a chat completion."""

    def _apart(self) -> None:
        pass

    def _remark(self, source: CitedSource, start: int, end: int) -> dict[str, Any]:
        return {"type": "url_citation", "url_citation": _place(source, start, end)}


def _place(source: CitedSource, start: int, end: int) -> dict[str, Any]:
    return {"start_index": start, "end_index": end, "title": source.title, "url": source.url}
