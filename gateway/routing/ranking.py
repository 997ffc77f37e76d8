"""Weighted rendezvous hashing: for every key an order of names, the same in every process.

A name's score depends on nothing but itself, its weight and the key, so that a name that comes or goes takes or leaves
its share of the keys, and moves no other.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from math import log

_FIRST = 16  # places that are remembered; all of them fail a key only where hardly anybody is left
_KEYS = 8192  # that are remembered, of some 400 bytes each
_BITS = 64
_MASK = (1 << _BITS) - 1


class RendezvousRanking:
    """names: with their weights, above 0."""

    def __init__(self, names: Sequence[tuple[str, float]]) -> None:
        self._seeds = [(_digest(name), 1 / weight) for name, weight in names]
        self._known: OrderedDict[int, list[int]] = OrderedDict()

    def order(self, key: str) -> Iterator[Sequence[int]]:
        """The names' places, best first, in two portions: the first 16, then, made only if asked for, all others."""
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
        """By -ln(u)/weight: the least of such numbers is each one's with the probability of its share of the weights.

        u is uniform: the product of two digests, which is a universal hash of either.
        """
        scores = [(_BITS_LN - log((seed * digest & _MASK) + 1)) * share for seed, share in self._seeds]
        return sorted(range(len(scores)), key=scores.__getitem__)


_BITS_LN = _BITS * log(2)


def _digest(text: str) -> int:
    """Odd, so that no product is less random than its factors."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=_BITS // 8).digest(), "little") | 1
