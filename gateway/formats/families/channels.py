"""Families that write their turns in channels, each with a header that states its kind, except gpt-oss."""

from collections.abc import Mapping

from gateway.formats.grammars import channels
from gateway.formats.grammars.channels import MUSE
from gateway.formats.spec import FormatSpec

ROWS: Mapping[str, FormatSpec] = {
    "functionary32": FormatSpec(
        parse=channels.functionary32,
        families="Functionary 3.2",
        example='all\nLet me see.>>>get_weather\n{"city": "Paris", "days": 3}',
        signs=(">>>all",),
    ),
    "muse_glimmer": FormatSpec(
        parse=MUSE,
        families="Muse Glimmer, Muse Spark",
        first=(
            " to=self<|message|>",
            " to=user<|message|>",
        ),
        example=(
            " to=self<|message|>I should look.<|eom|><|start|>assistant to=get_weather<|message|>"
            '<atem:function_calls>\n<atem:invoke name="get_weather">\n'
            '<atem:parameter name="city">Paris</atem:parameter>\n'
            '<atem:parameter name="days">3</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>'
        ),
        aliases=("muse", "musespark1x"),
        special=True,
        signs=("<atem:function_calls>", "<|message|>"),
        differs=(
            "vLLM takes calls only from a message to a tool; here, as in Ollama, a message to the user that begins "
            "with calls is calls as well."
        ),
    ),
}
