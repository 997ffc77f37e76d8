"""The short way for text in which a format has nothing to find: past the format, which waits for something else."""

import re
from collections.abc import Callable
from functools import cache

from msgspec import Struct


class Passage(Struct, frozen=True):
    """Where a format that waits would put all of a text at once, and wait on, if the text `fits`."""

    fits: Callable[[str], object]
    put: Callable[[str], None]


@cache
def without(stops: frozenset[str], ends: frozenset[str], *, trimmed: bool = False) -> Callable[[str], object]:
    """Whether a text has none of these characters, and, if it is trimmed, no white space at its end."""
    stop = "".join(map(re.escape, sorted(stops | ends)))
    one = f"[^{stop}]" if stop else r"[\s\S]"
    return re.compile(rf"{one}*{one}(?<!\s)" if trimmed else f"{one}+").fullmatch
