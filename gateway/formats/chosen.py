"""Which format a model's text is read in, where its answers begin, and why."""

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from gateway.formats.format import CallInReasoning
from gateway.formats.markup import Markup
from gateway.formats.profiles import find_profile
from gateway.formats.row import FormatSpec

_MODELS = 1024  # of which the result is remembered


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
