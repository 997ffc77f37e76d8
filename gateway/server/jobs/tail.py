"""Keep the newest rows of a log, and wake its subscribers in this process when rows are added."""

import asyncio
from collections import deque
from collections.abc import Sequence

from gateway.store.records import LogRow

_MOST = 1 << 20  # bytes


class LogTail:
    """last: the number of the newest event, -1 for none; followers: how many there are.

    over: nothing will be added any more; whole: and its last event has been.
    """

    def __init__(self, last: int = -1) -> None:
        self._rows: deque[LogRow] = deque()
        self._size = 0
        self._news = asyncio.get_running_loop().create_future()
        self.last, self.followers = last, 0
        self.over = self.whole = False

    def add(self, row: LogRow) -> None:
        self._rows.append(row)
        self._size += len(row.data)
        while self._size > _MOST and len(self._rows) > 1:
            self._size -= len(self._rows.popleft().data)
        self.last = row.last
        self._tell()

    def end(self, *, whole: bool) -> None:
        if not self.over:
            self.over, self.whole = True, whole
            self._tell()

    def behind(self, number: int) -> Sequence[LogRow] | None:
        """The rows with what comes behind an event; None if the first of them is not here any more."""
        if number >= self.last:
            return ()
        if not self._rows or self._rows[0].first > number + 1:
            return None
        found: deque[LogRow] = deque()
        for row in reversed(self._rows):
            if row.last <= number:
                break
            found.appendleft(row)
        return found

    async def more(self, seconds: float) -> bool:
        """Wait until something is added, or it is over; False after so many seconds, unless they are 0."""
        done, _ = await asyncio.wait((self._news,), timeout=seconds or None)
        return bool(done)

    def _tell(self) -> None:
        """Wake the tasks that wait now; later ones wait for the next time."""
        self._news.set_result(None)
        self._news = asyncio.get_running_loop().create_future()
