"""Log-probabilities kept beside a text by offset, while a parser decides what of the text is said.

Pure bookkeeping: it knows no formats and no events but the entries themselves.
"""

from collections import deque
from collections.abc import Sequence

from gateway.events import Logprob


class LogprobAligner:
    """`feed` says what came, `take` gives the entries of what is said; those of markers and arguments fall away."""

    def __init__(self, fed: int) -> None:
        self._fed = fed  # characters that came, the first of them perhaps without entries
        self._waiting: deque[tuple[int, int, Logprob]] = deque()  # start and end in the text, entry
        self.dropped = False

    def feed(self, text: str, entries: Sequence[Logprob]) -> None:
        start, self._fed = self._fed, self._fed + len(text)
        for entry in entries:
            end = min(start + len(entry.token), self._fed)
            self._waiting.append((start, end, entry))
            start = end

    def take(self, end: int, length: int) -> tuple[Logprob, ...]:
        """The entries of the text of this length that ends at offset `end`."""
        return self._pop(end - length, end)

    def rest(self, offset: int) -> tuple[Logprob, ...]:
        """At the end of the text, of which `offset` characters are done: entries of tokens that show nothing."""
        return self._pop(offset, self._fed + 1)

    def _pop(self, begin: int, end: int) -> tuple[Logprob, ...]:
        taken: list[Logprob] = []
        while self._waiting and self._waiting[0][0] < end:
            start, stop, entry = self._waiting.popleft()
            if stop > begin or start >= begin:
                taken.append(entry)
            else:
                self.dropped = True
        return tuple(taken)
