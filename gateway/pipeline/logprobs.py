"""Keep log-probabilities by the offset of their text, while a parser decides which text the client gets.

Pure bookkeeping: it knows no formats and no events except the entries themselves.
"""

from collections import deque
from collections.abc import Sequence

from gateway.events import Logprob


class LogprobAligner:
    """Take text with entries in `feed`, and return the entries of shown text in `take`.

    Entries of markers and arguments are dropped.

    fed: the number of characters before the first entries.
    dropped: entries of text that was not shown were dropped.
    """

    def __init__(self, fed: int) -> None:
        self._fed = fed  # characters so far
        self._waiting: deque[tuple[int, int, Logprob]] = deque()  # start and end in the text, entry
        self.dropped = False

    def feed(self, text: str, entries: Sequence[Logprob]) -> None:
        """Add the next text with its entries."""
        start, self._fed = self._fed, self._fed + len(text)
        for entry in entries:
            end = min(start + len(entry.token), self._fed)
            self._waiting.append((start, end, entry))
            start = end

    def take(self, end: int, length: int) -> tuple[Logprob, ...]:
        """Return the entries of the text of this length that ends at offset `end`."""
        return self._pop(end - length, end)

    def rest(self, offset: int) -> tuple[Logprob, ...]:
        """Return the entries of tokens without visible text, at the end of a text that was read up to `offset`."""
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
