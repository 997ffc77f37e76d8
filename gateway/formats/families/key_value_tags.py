"""Families that write calls as pairs of tags, one for the key and one for the value."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from gateway.formats.grammars import json_calls
from gateway.formats.grammars.tagged import TaggedCall
from gateway.formats.markers import end_tokens
from gateway.formats.markup import Markup
from gateway.formats.markup_tags import THINK
from gateway.formats.parser import CallInReasoning, CallParser, by_next_token
from gateway.formats.spec import FormatSpec

_GLM = TaggedCall(
    next=("<tool_call>",),
    name_end=">",  # GLM 5.3 Flash writes it, and also key=value
    name_ends=("<tool_sep>",),  # the tag of HY 3, in case the family is unknown
    key="<arg_key>",
    key_end="</arg_key>",
    value="<arg_value>",
    assign="=",
    value_ends=("</arg_value>",),
    call_ends=("</tool_call>",),
    trim=False,
)
_THOUGHT = "<think>I should look.</think>"
_PAIRS = "<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>3</arg_value>"
_LINES = _PAIRS.replace("><", ">\n<") + "\n"
_SUFFIXES = ("", ":opensource", ":6124c78e")  # each checkpoint has one suffix for all of its tags


def _markup(
    *kinds: TaggedCall,
    thoughts: Mapping[str, tuple[str, ...]] = THINK,
    in_thought: CallInReasoning = "end",
    ends: tuple[str, ...] = (),
) -> Markup:
    """Return the format of a family with such calls.

    The opening tag may be written twice, or stand before JSON.
    """
    calls: dict[str, CallParser] = {}
    for tags in kinds:
        options: dict[str, CallParser] = {"{": json_calls.tagged_calls}
        calls[tags.next[0]] = options[tags.next[0]] = by_next_token(options, tags)
    return Markup(
        calls=calls,
        before=tuple(tag for tags in kinds for tag in tags.next[1:]),
        after=tuple(tag for tags in kinds for tag in tags.call_ends),
        thoughts=thoughts,
        in_thought=in_thought,
        ends=end_tokens(*ends),
    )


def _thoughts(*names: str) -> Mapping[str, tuple[str, ...]]:
    """Return alternative pairs of tags around reasoning; a model uses one of them.

    The prompt may have opened any of them, so each closing tag closes all of them.
    """
    ends = tuple(f"</{name}>" for name in names)
    return MappingProxyType({f"<{name}>": ends for name in names})


def _hy(suffix: str) -> TaggedCall:
    return TaggedCall(
        next=(f"<tool_call{suffix}>", f"<tool_calls{suffix}>"),
        name_end=f"<tool_sep{suffix}>",
        key=f"<arg_key{suffix}>",
        key_end=f"</arg_key{suffix}>",
        value=f"<arg_value{suffix}>",
        value_ends=(f"</arg_value{suffix}>",),
        call_ends=(f"</tool_call{suffix}>", f"</tool_calls{suffix}>"),
        trim=False,
    )


_HY = _markup(
    *map(_hy, _SUFFIXES),
    thoughts=_thoughts(*(f"think{suffix}" for suffix in _SUFFIXES)),
    ends=tuple(f"<｜hy_eos{suffix}｜>" for suffix in _SUFFIXES),
)

ROWS: Mapping[str, FormatSpec] = {
    "glm45_xml": FormatSpec(
        parse=_markup(_GLM),
        families="GLM 4.5 and 4.6, GLM-OCR",
        example=f"\n{_THOUGHT}\n<tool_call>get_weather\n{_LINES}</tool_call>",
        aliases=("glm45", "glm"),
        signs=("<arg_key>", "<arg_value>", "/nothink"),
        differs="vLLM drops a call of a tool that was not offered; the gateway passes it on.",
    ),
    "glm47_xml": FormatSpec(
        parse=_markup(_GLM, replace(_GLM, next=("<iquest_tool_call>",), call_ends=("</iquest_tool_call>",))),
        families="GLM 4.7 and 5, IQuest Q1",
        example=f"{_THOUGHT}<tool_call>get_weather{_PAIRS}</tool_call>",
        aliases=("glm47", "iquest_q1"),
        signs=("<arg_key>", "<arg_value>"),
        differs=(
            "SGLang writes Python's `True` and `None` into the JSON, and breaks at a value that ends in `<`; vLLM "
            "drops a call of a tool that was not offered."
        ),
    ),
    "ling3_xml": FormatSpec(
        parse=_markup(_GLM, in_thought="text"),
        families="Ling 3",
        example=f"{_THOUGHT}<tool_call>get_weather{_PAIRS}</tool_call>",
        aliases=("ling3",),
        differs="In vLLM a call's tag ends the thought; here, as in llama.cpp, the thought goes on to its own end.",
    ),
    "spark25": FormatSpec(
        parse=_markup(_GLM),
        families="Spark 2.5",
        example=f"{_THOUGHT}<tool_call>get_weather\n{_LINES}</tool_call>",
        differs="SGLang shows a call whose closing tag is missing as text; the gateway reads it.",
    ),
    "poolside_v1": FormatSpec(
        parse=_markup(_GLM, ends=("</assistant>", "〈|EOS|〉")),
        families="Laguna",
        example=f"{_THOUGHT}<tool_call>get_weather{_PAIRS}</tool_call>",
        signs=("<arg_key>", "<arg_value>", "</assistant>"),
        differs="vLLM drops a call of a tool that was not offered; the gateway passes it on.",
    ),
    "hy_v3": FormatSpec(
        parse=_HY,
        families="Hunyuan HY 3",
        aliases=("hunyuan",),
        example=(f"{_THOUGHT}<tool_calls>\n<tool_call>get_weather<tool_sep>\n{_LINES}</tool_call>\n</tool_calls>"),
        signs=("<tool_calls", "arg_key", "arg_value", "tool_sep"),
        differs="vLLM drops what follows the block of calls; the gateway treats it as text.",
    ),
    "hy_v4": FormatSpec(
        parse=_HY,
        families="Hunyuan HY 4",
        example=f"{_THOUGHT}<tool_calls><tool_call>get_weather{_PAIRS}</tool_call></tool_calls>",
        signs=("<tool_calls", "arg_key", "arg_value"),
        differs="vLLM drops what follows the block of calls; the gateway treats it as text.",
    ),
    "k2_horizon": FormatSpec(
        parse=_markup(
            TaggedCall(
                next=("<ifm|tool_call>", "<ifm|tool_calls>"),
                name_end="",
                key="<ifm|arg_key>",
                key_end="</ifm|arg_key>",
                value="<ifm|arg_value>",
                type=("<ifm|arg_type>", "</ifm|arg_type>"),
                value_ends=("</ifm|arg_value>",),
                call_ends=("</ifm|tool_call>", "</ifm|tool_calls>"),
                trim=False,
            ),
            thoughts=_thoughts("ifm|think", "ifm|think_fast", "ifm|think_faster"),  # for high, medium, low effort
            ends=("<|ifm|im_end|>",),
        ),
        families="K2 Horizon",
        example=(
            "<ifm|think>I should look.</ifm|think><ifm|tool_calls>\n<ifm|tool_call>get_weather\n"
            "<ifm|arg_key>city</ifm|arg_key>\n<ifm|arg_value>Paris</ifm|arg_value>\n"
            "<ifm|arg_key>days</ifm|arg_key>\n<ifm|arg_value>3</ifm|arg_value>\n</ifm|tool_call>\n</ifm|tool_calls>"
        ),
        signs=("<ifm|tool_call>",),
        differs=(
            "vLLM takes a block of calls whole or, where anything is wrong in it, as text; here each call counts, "
            "typed or not, as tags or as JSON."
        ),
    ),
}
