"""Limit concurrent requests, with a queue that is fair to tenants.

Self-clocked fair queueing (Golestani, INFOCOM 1994): the first of each tenant's line has a tag, 1/weight beyond that of
who went in last; the least tag is next.  Nothing is to be remembered of a tenant that does not wait.
"""

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from msgspec import Struct

_SPARE = 16  # entries of lines that are gone, that are not worth the clearing


class QueueEntry(Struct, eq=False):
    """inside: its turn has come, and it has not left; on_turn: may be set as long as it waits."""

    tenant: str
    on_turn: Callable[[], object]
    inside: bool


class _TenantQueue(Struct, eq=False):
    """A tenant's tickets, in the order in which they came; never empty while it has its place."""

    weight: float
    tickets: OrderedDict[QueueEntry, None]


class FairQueue:
    """limit: how many are inside at a time; 0: any number.  length: how many wait at most.  Both may be changed."""

    def __init__(self, limit: int, length: int) -> None:
        self._limit = limit
        self.length = length
        self.inside = 0
        self.waiting = 0
        self._lines: dict[str, _TenantQueue] = {}
        self._order: list[tuple[float, int, _TenantQueue]] = []  # a heap; of a line that is gone an entry may be left
        self._numbers = count()
        self._tag = 0.0  # of who went in last

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        """Change the limit.  More waiting requests start if it grew; running ones stay."""
        self._limit = limit
        self._fill()

    @property
    def running(self) -> int:
        """How many are inside or wait."""
        return self.inside + self.waiting

    @property
    def is_full(self) -> bool:
        """True if the next one would have to wait."""
        return 0 < self._limit <= self.inside

    def acquire(self, tenant: str, weight: float, on_turn: Callable[[], object]) -> QueueEntry | None:
        """A ticket, inside or waiting; None if there is no place to wait, either.

        weight: the tenant's share of the turns, above 0; it holds for all that it has waiting.
        on_turn: called once for a ticket that had to wait, when it is inside.  Must not raise.
        """
        if not self.waiting and not self.is_full:
            self.inside += 1
            return QueueEntry(tenant, on_turn, True)
        if self.waiting >= self.length:
            return None
        ticket = QueueEntry(tenant, on_turn, False)
        self._wait(ticket, weight)
        return ticket

    def release(self, ticket: QueueEntry) -> None:
        """From inside, which gives the next its turn, or from the queue.  One that has left may leave again."""
        if ticket.inside:
            ticket.inside = False
            self.inside -= 1
            if self.waiting:
                self._fill()
        elif (line := self._lines.get(ticket.tenant)) and ticket in line.tickets:
            self._take(line, ticket)
            self._clear()

    def _wait(self, ticket: QueueEntry, weight: float) -> None:
        line = self._lines.get(ticket.tenant)
        if not line:
            line = self._lines[ticket.tenant] = _TenantQueue(weight, OrderedDict())
            self._place(line)
        line.tickets[ticket] = None
        self.waiting += 1

    def _place(self, line: _TenantQueue) -> None:
        heappush(self._order, (self._tag + 1 / line.weight, next(self._numbers), line))

    def _fill(self) -> None:
        """A turn may end at once, and another begin in here: so the state is whole before each."""
        while self.waiting and not self.is_full:
            self._next().on_turn()

    def _next(self) -> QueueEntry:
        tag, _, line = heappop(self._order)
        while not line.tickets:
            tag, _, line = heappop(self._order)
        ticket = next(iter(line.tickets))
        self._tag = tag
        self._take(line, ticket)
        if line.tickets:
            self._place(line)
        ticket.inside = True
        self.inside += 1
        return ticket

    def _take(self, line: _TenantQueue, ticket: QueueEntry) -> None:
        del line.tickets[ticket]
        self.waiting -= 1
        if not line.tickets:
            del self._lines[ticket.tenant]

    def _clear(self) -> None:
        """Entries of lines that gave up go once they are most of them."""
        if len(self._order) > 2 * len(self._lines) + _SPARE:
            self._order = [entry for entry in self._order if entry[2].tickets]
            heapify(self._order)
