"""Choose the backend of a model for the next attempt.

The members with the lowest priority number that admit requests are candidates.  Without a key the least busy one is
chosen, with a key the one that the key prefers.  Nothing here waits or sends requests: a member's Health and load
decide.

Keys use weighted rendezvous hashing: each key has an order of the names, the same in every process.  A name's score
depends only on the name, its weight and the key.  A name that is added or removed therefore takes or leaves its share
of the keys, and moves no other key.
"""

from bisect import bisect
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from math import log
from typing import Protocol

from msgspec import Struct

from gateway.routing.health import Health

_FIRST = 16  # cached places per key; they rarely fail all at once unless few members are left
_KEYS = 8192  # cached keys, of some 400 bytes each
_BITS = 64
_MASK = (1 << _BITS) - 1
_BITS_LN = _BITS * log(2)
_DRAWN = 8  # members of a large group that are compared: hardly worse than all (Mitzenmacher's two choices)
_DRAWS = 64  # draws, at most, to find these members
_SURVEY = 0.0002  # seconds per member between two surveys of a group: they cost less than a hundredth of the time
_SHARE = 0.5  # share of failures of an outlier, at least
_WEIGHT = 10  # outcomes of an outlier, at least


class RendezvousRanking:
    """An order of names for each key.  names: with their weights, above 0."""

    def __init__(self, names: Sequence[tuple[str, float]]) -> None:
        self._seeds = [(_digest(name), 1 / weight) for name, weight in names]
        self._known: OrderedDict[int, list[int]] = OrderedDict()

    def order(self, key: str) -> Iterator[Sequence[int]]:
        """Yield the indexes of the names, best first, in two portions.

        The first portion has 16 of them.  The second has all others, and is computed only if it is needed.
        """
        digest = _digest(key)
        yield self._first(digest)
        yield self._ranked(digest)[_FIRST:]

    def _first(self, digest: int) -> list[int]:
        if first := self._known.get(digest):
            self._known.move_to_end(digest)
            return first
        first = self._known[digest] = self._ranked(digest)[:_FIRST]
        if len(self._known) > _KEYS:
            self._known.popitem(last=False)
        return first

    def _ranked(self, digest: int) -> list[int]:
        """Return the indexes sorted by -ln(u)/weight.

        Each name comes first with the probability of its share of the weights.  The number u is uniform: a product of
        two digests is a universal hash of either.
        """
        scores = [(_BITS_LN - log((seed * digest & _MASK) + 1)) * share for seed, share in self._seeds]
        return sorted(range(len(scores)), key=scores.__getitem__)


def _digest(text: str) -> int:
    """Return an odd digest, so that a product is as random as its factors."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=_BITS // 8).digest(), "little") | 1


class BackendLoad(Protocol):
    """The load of a member; a FairQueue is one."""

    @property
    def total(self) -> int:
        """The requests at the member, waiting ones included."""
        ...

    @property
    def is_full(self) -> bool:
        """True if the next request would have to wait."""
        ...


class BalancerMember(Struct, frozen=True, eq=False):
    """A backend of a model.

    weight: its share of the requests, above 0.
    priority: the number of its group; 0 comes first.
    """

    name: str
    weight: float
    priority: int
    health: Health
    load: BackendLoad


class Balancer:
    """A load balancer for the backends of one model.  members: with different names; random: draws from [0, 1).

    The state can be rebuilt at any time: if the members change, a new Balancer with the same Healths and loads replaces
    this one.  A key keeps its member, unless the member is gone or a new member takes the key.
    """

    def __init__(self, members: Iterable[BalancerMember], random: Callable[[], float]) -> None:
        groups: dict[int, list[BalancerMember]] = {}
        for member in members:
            groups.setdefault(member.priority, []).append(member)
        self._groups = [_PriorityGroup(groups[priority], random) for priority in sorted(groups)]

    def choose(self, now: float, key: str | None, tried: Collection[str]) -> BalancerMember | None:
        """Return the next member, or None if no untried one admits a request.

        key: sends requests to the same member.
        tried: names that are left out.

        A full member is chosen only if all are full.  An ejected one is chosen only if there is no other.  The same
        holds for one with a half-open circuit, if others were tried.
        """
        busy = None
        for group in self._groups:
            member = group.choose(now, key, tried)
            if member and not member.load.is_full:
                return member
            busy = busy or member
        return busy or self._last(now, tried)

    def back_in(self, now: float) -> float:
        """Return the seconds until a member admits a request, as far as is known; 0 without members."""
        return min((member.health.back_in(now) for member in self._members()), default=0.0)

    def _last(self, now: float, tried: Collection[str]) -> BalancerMember | None:
        left = (one for one in self._members() if one.name not in tried and one.health.admits(now))
        return min(left, key=lambda one: (one.load.is_full, one.priority, _cost(one)), default=None)

    def _members(self) -> Iterator[BalancerMember]:
        return (member for group in self._groups for member in group.members)


class _PriorityGroup:
    """The members of one priority."""

    def __init__(self, members: Sequence[BalancerMember], random: Callable[[], float]) -> None:
        self.members = members
        self._random = random
        self._bounds = [*accumulate(member.weight for member in members)]
        self._ranking = RendezvousRanking([(member.name, member.weight) for member in members])
        self._fair_load = 0.0  # the largest one, in requests per unit of weight
        self._next_survey: float | None = None

    def choose(self, now: float, key: str | None, tried: Collection[str]) -> BalancerMember | None:
        """Return the group's member for a request, or None; a full one only if all are full."""
        if self._next_survey is None or now >= self._next_survey:
            self._survey(now)
        if key is None:
            return self._least_busy(now, tried)
        preferred = self._preferred(now, key, tried)
        if preferred is None or self._is_light(preferred):
            return preferred
        other = self._least_busy(now, tried)
        return other if other and not other.load.is_full else preferred

    def _preferred(self, now: float, key: str, tried: Collection[str]) -> BalancerMember | None:
        """Return the first member for the key with a light load, else the first that admits the request."""
        busy = None
        for places in self._ranking.order(key):
            for place in places:
                member = self.members[place]
                if _is_open(member, now, tried):
                    if self._is_light(member):
                        return member
                    busy = busy or member
            if busy:
                break
        return busy

    def _is_light(self, member: BalancerMember) -> bool:
        load = member.load
        return not load.is_full and load.total <= self._fair_load * member.weight

    def _least_busy(self, now: float, tried: Collection[str]) -> BalancerMember | None:
        """Return the least busy member; a tie is broken by chance, in proportion to the weights."""
        if len(self.members) > _DRAWN and (drawn := self._drawn(now, tried)):
            return min(drawn, key=lambda one: (one.load.is_full, _cost(one)))
        left = (member for member in self.members if _is_open(member, now, tried))
        # The least of these values is each member's with the probability of its share of the weights.
        return min(
            left, key=lambda one: (one.load.is_full, _cost(one), -log(1 - self._random()) / one.weight), default=None
        )

    def _drawn(self, now: float, tried: Collection[str]) -> list[BalancerMember]:
        """Return some open members, drawn by weight with repetition; none if open members are rare."""
        drawn: list[BalancerMember] = []
        for _ in range(_DRAWS):
            member = self.members[bisect(self._bounds, self._random() * self._bounds[-1], hi=len(self.members) - 1)]
            if _is_open(member, now, tried):
                drawn.append(member)
                if len(drawn) == _DRAWN:
                    break
        return drawn

    def _survey(self, now: float) -> None:
        """Update what depends on all members: the largest fair load, and the outliers.

        The largest fair load is 1.5 times the mean, plus 2.  If requests come by chance, this is at least two standard
        deviations above the mean: m/2 + 2 >= 2*sqrt(m) for every m.  So a key leaves its member only for a reason.
        """
        self._next_survey = now + _SURVEY * len(self.members)
        present = [one for one in self.members if one.health.admits(now) and not one.health.ejected(now)]
        total = sum(one.load.total for one in present)
        self._fair_load = 1.5 * total / (sum(one.weight for one in present) or 1.0) + 2
        if any(one.health.share >= _SHARE for one in present):
            self._eject(now, present)

    def _eject(self, now: float, present: Sequence[BalancerMember]) -> None:
        """Eject the worst members whose share of failures is more than twice that of all others together.

        At most half of the members are ejected at a time.
        """
        room = len(self.members) // 2 - sum(one.health.ejected(now) for one in self.members)
        counted = [(one.health.share, one.health.weight(now), one.health) for one in present]
        outcomes = sum(weight for _, weight, _ in counted)
        failures = sum(share * weight for share, weight, _ in counted)
        for share, weight, health in sorted(counted, key=lambda one: -one[0]):
            if room <= 0 or share < _SHARE:
                return
            others = (failures - share * weight) / max(outcomes - weight, 1.0)
            if weight >= _WEIGHT and others < share / 2:
                health.eject(now)
                room -= 1


def _is_open(member: BalancerMember, now: float, tried: Collection[str]) -> bool:
    """Return True if a request may go to a member; a retry never tests a half-open circuit."""
    health = member.health
    if member.name in tried or not health.admits(now) or health.ejected(now):
        return False
    return not tried or health.state(now) == "closed"


def _cost(member: BalancerMember) -> float:
    """Return the cost of one more request.  Idle members cost the same, so light load follows the weights."""
    total = member.load.total
    return (total + 1) / member.weight if total else 0.0
