"""Pass text through, without resuming a format's generator, if it has nothing that the format waits for."""

import re
from collections.abc import Callable, Set
from functools import cache

from msgspec import Struct


class PassThrough(Struct, frozen=True):
    """The fast path of a waiting format: if `fits(text)` is true, all of the text goes to `output`.

    The state of the format does not change.
    """

    fits: Callable[[str], object]
    output: Callable[[str], None]


@cache
def free_of(stops: frozenset[str], ends: frozenset[str], *, trimmed: bool = False) -> Callable[[str], object]:
    """Return a matcher for text that has none of the stop characters and in which no end token begins.

    stops: single characters.
    ends: the first two characters of each end token.
    trimmed: text with white space at its end does not match.
    """
    firsts = {begun[0] for begun in ends} - stops
    shut = _any_of(stops | firsts)
    plain, last = f"[^{shut}]" if shut else r"[\s\S]", r"(?<!\s)" if trimmed else ""
    pattern = f"{plain}*{plain}{last}"  # matches nearly all text
    if firsts:
        other = [f"{plain}++", *(f"{re.escape(first)}(?![{_seconds(first, ends)}]|\\Z)" for first in sorted(firsts))]
        pattern += f"|(?:{'|'.join(other)})+{last}"
    return re.compile(pattern).fullmatch


def _seconds(first: str, ends: Set[str]) -> str:
    return _any_of({begun[1] for begun in ends if begun[0] == first})


def _any_of(characters: Set[str]) -> str:
    return "".join(map(re.escape, sorted(characters)))
