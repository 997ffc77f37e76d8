"""Choose how much of a large set of cases a run tries.

A run tries a part: cuts at an even spread that moves from day to day, and fewer generated examples.  A thorough run
(`pytest --thorough`, `make test-all`) tries all.  EXAMPLES=1000 in the environment is a hunt with random examples.
"""

import os
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from random import Random

from hypothesis import settings
from hypothesis.internal.conjecture import providers

EXAMPLES = int(os.environ.get("EXAMPLES", "25"))  # per format and property
# One format of each grammar; a whole turn of it is cut everywhere in each run.
ONE_OF_EACH_GRAMMAR = (
    "hermes_json", "apertus", "bare_json", "mistral", "qwen_xml", "deepseek_v31", "glm47_xml", "kimi_k3", "minimax_m3",
    "pythonic", "gemma4", "harmony",
)  # fmt: skip
_SPREAD = 12  # cuts of a text that is not cut everywhere
_EVERYWHERE = 150  # cuts of one that is: all, but for the longest texts
_SHARE = 5  # a run tries one of this many generated examples, and at least this many


class _Run:
    thorough = True
    seed = 0


def configure(*, thorough: bool, seed: int) -> None:
    """Set the depth of this run; the seed moves the cuts."""
    _Run.thorough, _Run.seed = thorough, seed
    # All runs have the same examples, so that a new failure comes from a change; EXAMPLES asks for others.
    same = "EXAMPLES" not in os.environ
    if same:  # else the literals of the modules that happen to be loaded become examples
        providers._get_local_constants = providers.Constants
    settings.register_profile("tests", derandomize=same, deadline=None)
    settings.load_profile("tests")


def seed_or_day(seed: int | None) -> int:
    """Return the seed, or the number of the day in UTC without one."""
    return datetime.now(UTC).toordinal() if seed is None else seed  # steady: one for all processes of a run


def thorough() -> bool:
    """Return True if this run tries all."""
    return _Run.thorough


def some(names: Iterable[str], *, always: Collection[str] = (), share: int = 6) -> list[str]:
    """Return the names that this run tries, in order: those of `always`, and one in `share` of the others."""
    names = sorted(names)
    others = [name for name in names if name not in always]
    chosen = {*always, *others[_Run.seed % share :: share]}
    return [name for name in names if _Run.thorough or name in chosen]


def places(length: int, *, everywhere: bool = False, most: int = 400) -> range:
    """Return where to cut a text: `most` places at an even distance, and fewer in a run that is not thorough."""
    count = most if _Run.thorough else _EVERYWHERE if everywhere else _SPREAD
    step = max(1, -(-length // count))
    return range(Random(_Run.seed).randrange(step) if step > 1 else 0, length, step)


def one_of(places: range, text: str) -> int:
    """Return one of the places of a text, another one for each text and day."""
    return Random(f"{_Run.seed} {text}").choice(places)


def examples(count: int) -> int:
    """Return how many examples of a property a run generates."""
    return count if _Run.thorough or "EXAMPLES" in os.environ else max(count // _SHARE, _SHARE)
