"""How a model family writes thoughts and calls in plain text: one file, one row."""

from msgspec import Struct

from gateway.formats import auto, hermes_json, llama3_json, qwen_xml, think
from gateway.formats.format import Format


class Row(Struct, frozen=True):
    """A format by its name; aliases are the names that other servers have for it.

    parse: None where text is just text.
    """

    parse: Format | None
    families: str
    aliases: tuple[str, ...] = ()


FORMATS: dict[str, Row] = {
    "auto": Row(auto.parse, "decided by what the model writes: tagged thoughts, hermes_json, qwen_xml"),
    "native": Row(None, "any: the backend parses; its result is repaired where it is wrong"),
    "think": Row(think.parse, "any model that thinks between <think> tags and calls no tools", ("deepseek_r1",)),
    "hermes_json": Row(hermes_json.parse, "Hermes 2 and 3, Qwen 2.5, QwQ, Qwen 3, SmolLM 3", ("hermes", "qwen3_json")),
    "qwen_xml": Row(qwen_xml.parse, "Qwen 3 Coder, Qwen 3.5 and 3.6", ("qwen3_coder", "qwen3_xml")),
    "llama3_json": Row(llama3_json.parse, "Llama 3.1, 3.2, 3.3, Llama 4 with the JSON template", ("llama4_json",)),
}

_ALIASES = {alias: name for name, row in FORMATS.items() for alias in row.aliases}


def names() -> frozenset[str]:
    """All that a user may write as `format:`."""
    return frozenset(FORMATS) | frozenset(_ALIASES)


def canonical(name: str) -> str:
    """The name of a format that may have been called by an alias."""
    return _ALIASES.get(name, name)
