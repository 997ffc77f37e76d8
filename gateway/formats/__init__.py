"""List all formats, which describe how a model family writes reasoning and tool calls in plain text.

Each format is a row in families/.  The configuration of a model may add a response template as a format of its own.
"""

from collections.abc import Mapping

from gateway.formats.families import (
    auto,
    channels,
    expressions,
    gemma,
    harmony,
    headers,
    json_objects,
    key_value_tags,
    minimax_m3,
    solar,
    special_tokens,
    xml_elements,
)
from gateway.formats.markup import Markup
from gateway.formats.spec import FormatSpec

ROWS: Mapping[str, FormatSpec] = {
    "response_template": FormatSpec(
        parse=None,
        families="any that `models.*.response_template` describes, like Gemma 4 and Beam in their checkpoints",
        example="It is sunny.",
        aliases=("hf", "beam"),
        special=True,
        differs=(
            "vLLM runs a template's patterns on the text, shows no arguments before a call is complete and drops a "
            "call that is cut or malformed.  The gateway compiles a template to tags and grammars like those of the "
            "other formats, so its calls are streamed and repaired like theirs."
        ),
    ),
}


_FAMILIES = {
    **json_objects.ROWS,
    **special_tokens.ROWS,
    **xml_elements.ROWS,
    **key_value_tags.ROWS,
    **solar.ROWS,
    **headers.ROWS,
    **expressions.ROWS,
    **gemma.ROWS,
    **harmony.ROWS,
    **channels.ROWS,
    **minimax_m3.ROWS,
}
FORMATS: Mapping[str, FormatSpec] = {
    "auto": FormatSpec(
        parse=auto.auto_format(_FAMILIES),
        families="decided by the name of the model, its chat template, or its output",
        example="It is sunny.",
    ),
    "native": FormatSpec(
        parse=None,
        families="any: the backend parses, and the gateway repairs its result",
        example="It is sunny.",
    ),
    "think": FormatSpec(
        parse=Markup(),
        families="any model that thinks between <think> tags and calls no tools",
        example="<think>\nLet me see.\n</think>\n\nIt is sunny.",
        aliases=("deepseek_r1", "deepseek-r1", "deepseek-v3", "holo2"),
    ),
    **_FAMILIES,
    **ROWS,
}

_ALIASES = {alias: name for name, row in FORMATS.items() for alias in row.aliases}


def format_names() -> frozenset[str]:
    """Return all values that `format:` accepts."""
    return frozenset(FORMATS) | frozenset(_ALIASES)


def canonical_name(name: str) -> str:
    """Return the canonical name of a format that may be given by an alias."""
    return _ALIASES.get(name, name)
