"""Limit concurrent requests, with a queue that is fair to tenants.

Self-clocked fair queueing (Golestani, INFOCOM 1994): each tenant's queue has a tag, 1/weight above the tag of the entry
that started last.  The queue with the least tag is next.  A tenant without waiting entries needs no state.

A spare entry gets a slot only if no other entry waits.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

_SPARE = 16  # stale heap entries that are not worth a cleanup


@dataclass(slots=True, eq=False)
class QueueEntry:
    """A place in the queue.

    on_turn: called when the slot is granted; may be replaced while the entry waits.
    inside: the entry has a slot.
    """

    tenant: str
    on_turn: Callable[[], object]
    inside: bool


@dataclass(slots=True, eq=False)
class _TenantQueue:
    """A tenant's waiting entries, in the order of their arrival; never empty while it is registered."""

    weight: float
    tickets: OrderedDict[QueueEntry, None]


class FairQueue:
    """A limit of concurrent requests with a queue.

    limit: entries with a slot at a time; 0: no limit.  It may be changed.
    length: the maximum of waiting entries.  It may be changed.
    inside: entries with a slot.
    waiting: entries without one; spare entries do not count.
    """

    def __init__(self, limit: int, length: int) -> None:
        self._limit = limit
        self.length = length
        self.inside = 0
        self.waiting = 0
        self._lines: dict[str, _TenantQueue] = {}
        self._spare: OrderedDict[QueueEntry, None] = OrderedDict()  # waiting spare entries
        self._order: list[tuple[float, int, _TenantQueue]] = []  # a heap; it may have entries of ended queues
        self._numbers = count()
        self._tag = 0.0  # of the entry that started last

    @property
    def limit(self) -> int:
        """The maximum of entries with a slot; 0: no limit."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        """Change the limit.  More waiting requests start if it grew; running ones stay."""
        self._limit = limit
        self._fill()

    @property
    def running(self) -> int:
        """The entries with a slot, and the waiting ones."""
        return self.inside + self.waiting

    @property
    def is_full(self) -> bool:
        """True if the next entry would have to wait."""
        return 0 < self._limit <= self.inside

    def acquire(
        self, tenant: str, weight: float, on_turn: Callable[[], object], *, spare: bool = False
    ) -> QueueEntry | None:
        """Return an entry with a slot or a waiting one; None if the queue is full.

        weight: the tenant's share of the slots, above 0; the first waiting entry sets it for all that wait.
        on_turn: called once when a waiting entry gets its slot.  It must not raise.
        spare: wait until no other entry waits, in a queue without a maximum.
        """
        if not self.waiting and not self.is_full:
            self.inside += 1
            return QueueEntry(tenant, on_turn, True)
        if self.waiting >= self.length and not spare:
            return None
        ticket = QueueEntry(tenant, on_turn, False)
        if spare:
            self._spare[ticket] = None
        else:
            self._wait(ticket, weight)
        return ticket

    def release(self, ticket: QueueEntry) -> None:
        """Give back the slot of an entry, or take it out of the queue.  A second call has no effect."""
        if ticket.inside:
            ticket.inside = False
            self.inside -= 1
            if self.waiting or self._spare:
                self._fill()
        elif ticket in self._spare:
            del self._spare[ticket]
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
        """Start waiting entries.  The callback may release and acquire, so the state is consistent before each call."""
        while (self.waiting or self._spare) and not self.is_full:
            (self._next() if self.waiting else self._next_spare()).on_turn()

    def _next_spare(self) -> QueueEntry:
        ticket, _ = self._spare.popitem(last=False)
        ticket.inside = True
        self.inside += 1
        return ticket

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
        """Remove stale heap entries once they are the majority."""
        if len(self._order) > 2 * len(self._lines) + _SPARE:
            self._order = [entry for entry in self._order if entry[2].tickets]
            heapify(self._order)
