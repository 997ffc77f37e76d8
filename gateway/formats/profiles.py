"""What is known of a model by its name: the rows of profiles.toml."""

import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Literal

from msgspec import Struct, convert

from gateway.formats.format import InThought


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """See profiles.toml."""

    match: tuple[str, ...]
    format: str
    thought: Literal["open"] | None = None
    in_thought: InThought | None = None


@cache
def profiles() -> tuple[Profile, ...]:
    rows = tomllib.loads(files(__package__).joinpath("profiles.toml").read_text("utf-8"))
    return convert(rows["profile"], tuple[Profile, ...])


def known(names: Iterable[str]) -> tuple[Profile, str] | None:
    """The profile of a model and the pattern that fits, by the first of its names that any fits."""
    for name in names:
        plain = name.rpartition("/")[2].lower().replace("_", "-")
        for profile in profiles():
            for pattern in profile.match:
                if fnmatchcase(plain, pattern):
                    return profile, pattern
    return None
