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
    has_slot: the entry has a slot.
    """

    tenant: str
    on_turn: Callable[[], object]
    has_slot: bool


@dataclass(slots=True, eq=False)
class _TenantQueue:
    """A tenant's waiting entries, in the order of their arrival; never empty while it is registered."""

    weight: float
    entries: OrderedDict[QueueEntry, None]


class FairQueue:
    """A limit of concurrent requests with a queue.

    limit: entries with a slot at a time; 0: no limit.  It may be changed.
    length: the maximum of waiting entries.  It may be changed.
    active: entries with a slot.
    waiting: entries without one; spare entries do not count.
    """

    def __init__(self, limit: int, length: int) -> None:
        self._limit = limit
        self.length = length
        self.active = 0
        self.waiting = 0
        self._tenants: dict[str, _TenantQueue] = {}
        self._spare: OrderedDict[QueueEntry, None] = OrderedDict()  # waiting ones
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
    def total(self) -> int:
        """The entries with a slot and the waiting ones; waiting spare entries do not count."""
        return self.active + self.waiting

    @property
    def is_full(self) -> bool:
        """True if the next entry would have to wait."""
        return 0 < self._limit <= self.active

    def acquire(
        self, tenant: str, weight: float, on_turn: Callable[[], object], *, spare: bool = False
    ) -> QueueEntry | None:
        """Return an entry with a slot or a waiting one; None if the queue is full.

        weight: the tenant's share of the slots, above 0; the first waiting entry sets it for all that wait.
        on_turn: called once when a waiting entry gets its slot.  It must not raise.
        spare: wait until no other entry waits, in a queue without a maximum.
        """
        if not self.waiting and not self.is_full:
            self.active += 1
            return QueueEntry(tenant, on_turn, True)
        if self.waiting >= self.length and not spare:
            return None
        entry = QueueEntry(tenant, on_turn, False)
        if spare:
            self._spare[entry] = None
        else:
            self._wait(entry, weight)
        return entry

    def release(self, entry: QueueEntry) -> None:
        """Give back the slot of an entry, or take it out of the queue.  A second call has no effect."""
        if entry.has_slot:
            entry.has_slot = False
            self.active -= 1
            if self.waiting or self._spare:
                self._fill()
        elif entry in self._spare:
            del self._spare[entry]
        elif (tenant_queue := self._tenants.get(entry.tenant)) and entry in tenant_queue.entries:
            self._take(tenant_queue, entry)
            self._clear()

    def _wait(self, entry: QueueEntry, weight: float) -> None:
        tenant_queue = self._tenants.get(entry.tenant)
        if not tenant_queue:
            tenant_queue = self._tenants[entry.tenant] = _TenantQueue(weight, OrderedDict())
            self._place(tenant_queue)
        tenant_queue.entries[entry] = None
        self.waiting += 1

    def _place(self, tenant_queue: _TenantQueue) -> None:
        heappush(self._order, (self._tag + 1 / tenant_queue.weight, next(self._numbers), tenant_queue))

    def _fill(self) -> None:
        """Start waiting entries.  The callback may release and acquire, so the state is consistent before each call."""
        while (self.waiting or self._spare) and not self.is_full:
            (self._next() if self.waiting else self._next_spare()).on_turn()

    def _next_spare(self) -> QueueEntry:
        entry, _ = self._spare.popitem(last=False)
        entry.has_slot = True
        self.active += 1
        return entry

    def _next(self) -> QueueEntry:
        tag, _, tenant_queue = heappop(self._order)
        while not tenant_queue.entries:
            tag, _, tenant_queue = heappop(self._order)
        entry = next(iter(tenant_queue.entries))
        self._tag = tag
        self._take(tenant_queue, entry)
        if tenant_queue.entries:
            self._place(tenant_queue)
        entry.has_slot = True
        self.active += 1
        return entry

    def _take(self, tenant_queue: _TenantQueue, entry: QueueEntry) -> None:
        del tenant_queue.entries[entry]
        self.waiting -= 1
        if not tenant_queue.entries:
            del self._tenants[entry.tenant]

    def _clear(self) -> None:
        """Remove stale heap entries once they are the majority."""
        if len(self._order) > 2 * len(self._tenants) + _SPARE:
            self._order = [item for item in self._order if item[2].entries]
            heapify(self._order)
