"""Select the format of a model's text by configuration, model name (profiles.toml) or chat template."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from msgspec import Struct, convert

from gateway.formats.markup import Markup
from gateway.formats.parser import CallInReasoning
from gateway.formats.spec import FormatSpec

_WORD = re.compile(r"\*([^*?[]+)")
_MODELS = 1024  # of which the result is remembered


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


class FormatChoice(Struct, frozen=True):
    """A format by its name.  `thought_open`: the prompt is known to open a thought."""

    format: str
    reason: str
    thought_open: bool = False
    in_thought: CallInReasoning | None = None


@lru_cache(_MODELS)
def choice_by_name(names: tuple[str, ...], word: str = "auto") -> FormatChoice:
    """Choose a format by the operator's word and the names of a model."""
    found = find_profile(names)
    if not found:
        reason = "its name is unknown, so what it writes decides" if word == "auto" else "configured"
        return FormatChoice(word, reason)
    profile, pattern = found
    thought_open = profile.thought == "open"
    if word == "auto":
        return FormatChoice(profile.format, f"its name matches {pattern}", thought_open, profile.in_thought)
    return FormatChoice(word, "configured", thought_open, profile.in_thought if word == profile.format else None)


def choice_by_template(template: str, rows: Mapping[str, FormatSpec]) -> FormatChoice | None:
    """Choose the format of which a chat template has all signs; of several the one with most signs."""
    fitting = [name for name, row in rows.items() if row.signs and all(sign in template for sign in row.signs)]
    if not fitting:
        return None
    name = max(fitting, key=lambda name: len("".join(rows[name].signs)))
    return FormatChoice(name, f"its chat template has {' and '.join(rows[name].signs)}")


def opens_reasoning(prompt: str, row: FormatSpec) -> bool:
    """True if a rendered prompt ends inside a thought of this format."""
    tags = row.parse.thoughts if isinstance(row.parse, Markup) else ()
    return prompt.rstrip().endswith(tuple(tag.rstrip() for tag in tags))
