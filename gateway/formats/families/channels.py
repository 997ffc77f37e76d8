"""Families that write their turns in channels, each with a header that states its kind; and MiniMax M3."""

from collections.abc import Mapping

from gateway.formats.grammars import channels
from gateway.formats.grammars.channels import MUSE
from gateway.formats.grammars.harmony import harmony_format
from gateway.formats.grammars.nested import NestedCall
from gateway.formats.markup import Markup
from gateway.formats.markup_tags import THINK
from gateway.formats.spec import FormatSpec

_M3 = "]<]minimax[>["

ROWS: Mapping[str, FormatSpec] = {
    "harmony": FormatSpec(
        parse=harmony_format(),
        families="gpt-oss",
        first=(
            "<|channel|>",
            "<|start|>assistant",
        ),
        example=(
            "<|channel|>analysis<|message|>I should look.<|end|><|start|>assistant<|channel|>commentary "
            'to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris", "days": 3}<|call|>'
        ),
        aliases=("openai", "openai_gptoss", "gpt-oss"),
        special=True,
        signs=("<|channel|>analysis", "<|message|>"),
        differs=(
            "vLLM finds channels among tokens only, and nothing in text.  A server that leaves special tokens out "
            "sends `analysis…assistantfinal…`; a text that begins so is read as the channels that it was.  Amazon "
            "Bedrock sends reasoning as text between `<reasoning>` tags, in a stream around each piece; so it is read "
            "if a text begins with one."
        ),
    ),
    "llmjp_harmony": FormatSpec(
        parse=harmony_format(spaced=True),
        families="LLM-jp 4.1",
        first=("<|channel|> ",),
        example=(
            "<|channel|> analysis<|message|> I should look.<|end|><|start|> assistant<|channel|> commentary "
            'to=functions.get_weather <|constrain|> json<|message|> {"city": "Paris", "days": 3}<|call|>'
        ),
        special=True,
        signs=("chat_format=llm-jp-harmony-v1",),
    ),
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
    "minimax_m3": FormatSpec(
        parse=Markup(
            thoughts={"<mm:think>": ("</mm:think>",), **THINK},
            calls={f"{_M3}<invoke name=": NestedCall(mark=_M3)},
            before=(f"{_M3}<tool_call>", "<tool_call>"),
            after=(f"{_M3}</invoke>", f"{_M3}</tool_call>"),
        ),
        families="MiniMax M3",
        aliases=("minimax-m3",),
        example=(
            f"<mm:think>I should look.</mm:think>{_M3}<tool_call>\n"
            f'{_M3}<invoke name="get_weather">{_M3}<city>Paris{_M3}</city>{_M3}<days>3{_M3}</days>{_M3}</invoke>\n'
            f"{_M3}</tool_call>"
        ),
        special=True,
        signs=(_M3, "<tool_call>"),
        differs="vLLM passes a call on when it is complete; the gateway streams its strings.",
    ),
}
