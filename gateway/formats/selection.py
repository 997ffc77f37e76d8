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
_MODELS = 1024  # most cached results


class ModelProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """A row of profiles.toml, which documents the members."""

    match: tuple[str, ...]
    format: str
    thought: Literal["open"] | None = None
    in_thought: CallInReasoning | None = None


@cache
def load_profiles() -> tuple[ModelProfile, ...]:
    """Return the rows of profiles.toml in their order."""
    rows = tomllib.loads(Path(__file__).with_name("profiles.toml").read_text("utf-8"))
    return convert(rows["profile"], tuple[ModelProfile, ...])


def find_profile(names: Iterable[str]) -> tuple[ModelProfile, str] | None:
    """Return the profile of a model and the pattern that matches, for the first name that any pattern matches."""
    for name in names:
        plain = name.rpartition("/")[2].lower().replace("_", "-")
        for profile in load_profiles():
            for pattern in profile.match:
                if _fits(plain, pattern):
                    return profile, pattern
    return None


def _fits(name: str, pattern: str) -> bool:
    """Return True if a name matches a pattern.

    Compiling all globs takes 12 ms, so most are ruled out by their first word before that.
    """
    word = _WORD.match(pattern)
    return not (word and word[1] not in name) and fnmatchcase(name, pattern)


class FormatChoice(Struct, frozen=True):
    """The name of a format, and the reason for its choice.

    thought_open: the prompt is known to open a reasoning block.
    in_thought: the treatment of calls inside reasoning, see `ParseContext`.
    """

    format: str
    reason: str
    thought_open: bool = False
    in_thought: CallInReasoning | None = None


@lru_cache(_MODELS)
def choice_by_name(names: tuple[str, ...], word: str = "auto") -> FormatChoice:
    """Choose the format for the names of a model.

    word: the configured format; `auto` to choose by name.
    """
    found = find_profile(names)
    if not found:
        reason = "its name is unknown, so its output decides" if word == "auto" else "configured"
        return FormatChoice(word, reason)
    profile, pattern = found
    thought_open = profile.thought == "open"
    if word == "auto":
        return FormatChoice(profile.format, f"its name matches {pattern}", thought_open, profile.in_thought)
    return FormatChoice(word, "configured", thought_open, profile.in_thought if word == profile.format else None)


def choice_by_template(template: str, rows: Mapping[str, FormatSpec]) -> FormatChoice | None:
    """Return the format whose signs a chat template has, all of them; of several, the one with the longest signs."""
    fitting = [name for name, row in rows.items() if row.signs and all(sign in template for sign in row.signs)]
    if not fitting:
        return None
    name = max(fitting, key=lambda name: len("".join(rows[name].signs)))
    return FormatChoice(name, f"its chat template has {' and '.join(rows[name].signs)}")


def opens_reasoning(prompt: str, row: FormatSpec) -> bool:
    """Return True if a rendered prompt ends with the opening tag of reasoning in this format."""
    tags = row.parse.thoughts if isinstance(row.parse, Markup) else ()
    return prompt.rstrip().endswith(tuple(tag.rstrip() for tag in tags))
