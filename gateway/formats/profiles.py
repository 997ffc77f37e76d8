"""Look up the settings of a model by its name: the rows of profiles.toml."""

import re
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct, convert

from gateway.formats.format import CallInReasoning

_WORD = re.compile(r"\*([^*?[]+)")


class ModelProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """See profiles.toml."""

    match: tuple[str, ...]
    format: str
    thought: Literal["open"] | None = None
    in_thought: CallInReasoning | None = None


@cache
def load_profiles() -> tuple[ModelProfile, ...]:
    rows = tomllib.loads(Path(__file__).with_name("profiles.toml").read_text("utf-8"))
    return convert(rows["profile"], tuple[ModelProfile, ...])


def find_profile(names: Iterable[str]) -> tuple[ModelProfile, str] | None:
    """The profile of a model and the pattern that fits, by the first of its names that any fits."""
    for name in names:
        plain = name.rpartition("/")[2].lower().replace("_", "-")
        for profile in load_profiles():
            for pattern in profile.match:
                if _fits(plain, pattern):
                    return profile, pattern
    return None


def _fits(name: str, pattern: str) -> bool:
    """A glob is made a regex at its first use, all of them in 12 ms; most are ruled out by their first word."""
    word = _WORD.match(pattern)
    return not (word and word[1] not in name) and fnmatchcase(name, pattern)
