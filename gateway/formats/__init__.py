"""How a model family writes thoughts and calls in plain text: one row each, in families/."""

from collections.abc import Mapping

from gateway.formats import auto
from gateway.formats.families import (
    channels,
    custom,
    elements,
    expressions,
    headers,
    objects,
    objects_special,
    pairs,
    solar,
)
from gateway.formats.markup import Markup
from gateway.formats.row import FormatSpec

_FAMILIES = {
    **objects.ROWS,
    **objects_special.ROWS,
    **elements.ROWS,
    **pairs.ROWS,
    **solar.ROWS,
    **headers.ROWS,
    **expressions.ROWS,
    **channels.ROWS,
}
FORMATS: Mapping[str, FormatSpec] = {
    "auto": FormatSpec(
        parse=auto.auto_format(_FAMILIES),
        families="decided by the name of the model, its chat template, or what it writes",
        example="It is sunny.",
    ),
    "native": FormatSpec(
        parse=None,
        families="any: the backend parses; its result is repaired where it is wrong",
        example="It is sunny.",
    ),
    "think": FormatSpec(
        parse=Markup(),
        families="any model that thinks between <think> tags and calls no tools",
        example="<think>\nLet me see.\n</think>\n\nIt is sunny.",
        aliases=("deepseek_r1", "deepseek-r1", "deepseek-v3", "holo2"),
    ),
    **_FAMILIES,
    **custom.ROWS,
}

_ALIASES = {alias: name for name, row in FORMATS.items() for alias in row.aliases}


def format_names() -> frozenset[str]:
    """Return all values that `format:` accepts."""
    return frozenset(FORMATS) | frozenset(_ALIASES)


def canonical_name(name: str) -> str:
    """The name of a format that may have been called by an alias."""
    return _ALIASES.get(name, name)
