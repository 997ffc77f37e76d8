"""The short way for text in which a format has nothing to find: past the format, which waits for something else."""

import re
from collections.abc import Callable, Set
from functools import cache

from msgspec import Struct


class Passage(Struct, frozen=True):
    """Where a format that waits would put all of a text at once, and wait on, if the text `fits`."""

    fits: Callable[[str], object]
    put: Callable[[str], None]


@cache
def without(stops: frozenset[str], ends: frozenset[str], *, trimmed: bool = False) -> Callable[[str], object]:
    """Return what finds that a text has none of these characters, and that no token of an end begins in it.

    ends: the first two characters of each of these tokens.  trimmed: white space at the end of the text does not fit.
    """
    firsts = {begun[0] for begun in ends} - stops
    shut = _any_of(stops | firsts)
    parts = [f"[^{shut}]++" if shut else r"[\s\S]++"]
    for first in sorted(firsts):
        seconds = _any_of({begun[1] for begun in ends if begun[0] == first})
        parts.append(rf"{re.escape(first)}(?![{seconds}]|\Z)")
    return re.compile(rf"(?:{'|'.join(parts)})+" + (r"(?<!\s)" if trimmed else "")).fullmatch


def _any_of(characters: Set[str]) -> str:
    return "".join(map(re.escape, sorted(characters)))
