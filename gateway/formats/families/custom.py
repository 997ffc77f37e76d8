"""The format that a user brings: what its texts look like is said in the configuration of a model."""

from collections.abc import Mapping

from gateway.formats.row import FormatSpec

ROWS: Mapping[str, FormatSpec] = {
    "response_template": FormatSpec(
        parse=None,
        families="any that `models.*.response_template` describes, like Gemma 4 and Beam in their checkpoints",
        example="It is sunny.",
        aliases=("hf", "beam"),
        special=True,
        differs=(
            "vLLM runs a template's patterns on the text, shows no arguments before a call is whole and drops one that "
            "is cut or malformed.  Here a template becomes tags and grammars like those of the other formats, and its "
            "calls stream and are repaired as theirs are."
        ),
    ),
}
