"""The short way for text in which a format has nothing to find: past the format, which waits for something else."""

import re
from collections.abc import Callable, Set
from functools import cache

from msgspec import Struct


class PassThrough(Struct, frozen=True):
    """Where a format that waits would put all of a text at once, and wait on, if the text `fits`."""

    fits: Callable[[str], object]
    output: Callable[[str], None]


@cache
def free_of(stops: frozenset[str], ends: frozenset[str], *, trimmed: bool = False) -> Callable[[str], object]:
    """Return what finds that a text has none of these characters, and that no token of an end begins in it.

    ends: the first two characters of each of these tokens.  trimmed: white space at the end of the text does not fit.
    """
    firsts = {begun[0] for begun in ends} - stops
    shut = _any_of(stops | firsts)
    plain, last = f"[^{shut}]" if shut else r"[\s\S]", r"(?<!\s)" if trimmed else ""
    pattern = f"{plain}*{plain}{last}"  # nearly all text
    if firsts:
        other = [f"{plain}++", *(f"{re.escape(first)}(?![{_seconds(first, ends)}]|\\Z)" for first in sorted(firsts))]
        pattern += f"|(?:{'|'.join(other)})+{last}"
    return re.compile(pattern).fullmatch


def _seconds(first: str, ends: Set[str]) -> str:
    return _any_of({begun[1] for begun in ends if begun[0] == first})


def _any_of(characters: Set[str]) -> str:
    return "".join(map(re.escape, sorted(characters)))
