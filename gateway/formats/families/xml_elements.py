"""Families that write calls as text between tags, one for each argument."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from gateway.formats.argument_types import JSON
from gateway.formats.grammars import json_calls
from gateway.formats.grammars.tagged import TaggedCall
from gateway.formats.markers import end_tokens
from gateway.formats.markup import Markup
from gateway.formats.markup_tags import THINK
from gateway.formats.parser import CallParser, by_next_token
from gateway.formats.spec import FormatSpec

QWEN = TaggedCall(next=("<function=", "<tool_call>"), call_ends=("</function>", "</tool_call>"))
_QWEN_EXAMPLE = (
    "<think>\nI should look.\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
_DSML_EXAMPLE = (
    '<think>I should look.</think>\n\n<{0}{1}>\n<{0}invoke name="get_weather">\n'
    '<{0}parameter name="city" string="true">Paris</{0}parameter>\n'
    '<{0}parameter name="days" string="false">3</{0}parameter>\n</{0}invoke>\n</{0}{1}>'
)
_DSML_DIFFERS = (
    "vLLM drops what follows the block of calls, and a parameter that does not say whether it is a string; here the "
    "schema decides on that one, else what it reads as. vLLM and SGLang know the tags of one version; here each "
    "version may have the tags of another, and other bars around `DSML`."
)
_UNMARKED = TaggedCall(  # the tags of DeepSeek and GigaChat without their special token, which some servers remove
    next=("<invoke name=", "<tool_calls>", "<function_calls>"),
    key="<parameter name=",
    call_ends=("</invoke>", "</tool_calls>", "</function_calls>"),
    unknown=JSON,
    trim=False,
)
_K3_THINK = MappingProxyType({"<|open|>think<|sep|>": ("<|close|>think<|sep|>", "<|open|>response<|sep|>")})


def _markup(
    tags: TaggedCall,
    after: tuple[str, ...] = (),
    *,
    thoughts: Mapping[str, tuple[str, ...]] = THINK,
    silent: tuple[str, ...] = (),
    ends: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> Markup:
    """Return the format of a family with such calls.  A tag around the calls may also hold JSON.

    also: other spellings of the opening tag.
    """
    around = [tag for tag in tags.next[1:] if tag not in also]
    calls: dict[str, CallParser] = dict.fromkeys((tags.next[0], *also), tags)
    calls |= dict.fromkeys(around, by_next_token(calls, json_calls.tagged_calls))
    return Markup(
        calls=calls,
        after=(*tags.call_ends, *after),
        thoughts=thoughts,
        silent=silent,
        ends=end_tokens(*ends),
    )


def _dsml(marks: tuple[str, ...], *around: str) -> Markup:
    """Return a format whose tags begin with one of these marks.

    Each value is JSON, unless its tag says that it is a string.
    """
    invokes = tuple(f"<{mark}invoke name=" for mark in marks)
    keys = tuple(f"<{mark}parameter name=" for mark in marks)
    words = tuple(f"{mark}{word}>" for mark in marks for word in around)
    tags = TaggedCall(
        next=(*invokes, *map("<{}".format, words)),
        key=keys[0],
        also=keys[1:],
        value_ends=tuple(f"</{mark}parameter>" for mark in marks),
        call_ends=(*(f"</{mark}invoke>" for mark in marks), *map("</{}".format, words)),
        unknown=JSON,
        trim=False,
    )
    markup, plain = _markup(tags, also=invokes[1:]), _markup(_UNMARKED)
    return replace(markup, calls={**markup.calls, **plain.calls}, after=(*markup.after, *plain.after))


# DeepSeek's models write one another's tags, and bars in other numbers and characters.
_DSML = _dsml(
    tuple(f"{bar}DSML{bar}{gap}" for bar in ("｜", "｜｜", "|", "||", "‖") for gap in ("", " ")),
    *("function_calls", "tool_calls", "toolcalls", "tool", "calls"),
)


def _qwen(
    families: str, *aliases: str, signs: tuple[str, ...] = (), differs: str = "", trim: bool = True
) -> FormatSpec:
    """Return the row of a family that writes calls like Qwen."""
    tags = QWEN if trim else replace(QWEN, trim=False)
    example = _QWEN_EXAMPLE if trim else _QWEN_EXAMPLE.replace(">\nParis\n<", ">Paris<").replace(">\n3\n<", ">3<")
    return FormatSpec(
        parse=_markup(tags), families=families, example=example, aliases=aliases, signs=signs, differs=differs
    )


ROWS: Mapping[str, FormatSpec] = {
    "qwen_xml": _qwen(
        "Qwen 3 Coder, Qwen 3.5 and 3.6, Nanbeige",
        "qwen3_coder",
        "qwen3_xml",
        "nanbeige",
        signs=("<tool_call>", "<function=", "<parameter="),
        differs=(
            "llama.cpp ends a value only at a line end with a tag, vLLM and SGLang at any closing tag, so a value "
            "with such a tag in it breaks there; here a closing tag counts only where another tag of the call, or the "
            "end, follows."
        ),
    ),
    "nemotron3_xml": _qwen(
        "Nemotron 3 and 3.5",
        "nemotron_v3",
        "nemotron_3",
        differs=("With `force_nonempty_content` vLLM turns an unfinished thought into content; the gateway does not."),
    ),
    "step3p5_xml": _qwen("Step 3.5 and 3.7 Flash", "step3p5", "step5"),
    "mimo_xml": _qwen(
        "MiMo",
        "mimo",
        trim=False,
        differs="Values are taken verbatim, as in vLLM: the family writes no line ends around them.",
    ),
    "granite_thinking_xml": _qwen("Granite 4.2 with thinking", "granite_thinking_parser"),
    "minicpmv_xml": _qwen(
        "MiniCPM-V",
        "minicpmv",
        differs=(
            "vLLM turns the two characters `\\n` in text and thoughts into a line end, as some tokenizers of the "
            "family write it so; the gateway leaves text as it is."
        ),
    ),
    "seed_oss_xml": FormatSpec(
        parse=_markup(
            TaggedCall(
                next=("<function=", "<seed:tool_call>"), call_ends=("</function>", "</seed:tool_call>"), framed=True
            ),
            thoughts=MappingProxyType({"<seed:think>": ("</seed:think>",)}),
            ends=("<seed:eos>",),
        ),
        families="Seed-OSS",
        example=(
            "<seed:think>I should look.</seed:think>\n<seed:tool_call>\n<function=get_weather>\n"
            "<parameter=city>Paris</parameter>\n<parameter=days>3</parameter>\n</function>\n</seed:tool_call>"
        ),
        aliases=("seed_oss",),
        signs=("<seed:tool_call>", "<function="),
    ),
    "step3": FormatSpec(
        parse=_markup(
            TaggedCall(
                next=("<steptml:invoke name=", "<｜tool_calls_begin｜>", "<｜tool_call_begin｜>function<｜tool_sep｜>"),
                key="<steptml:parameter name=",
                value_ends=("</steptml:parameter>",),
                call_ends=("</steptml:invoke>", "<｜tool_call_end｜>", "<｜tool_calls_end｜>"),
            )
        ),
        families="Step 3",
        example=(
            "<think>I should look.</think>\n<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜>"
            '<steptml:invoke name="get_weather"><steptml:parameter name="city">Paris</steptml:parameter>'
            '<steptml:parameter name="days">3</steptml:parameter></steptml:invoke><｜tool_call_end｜>\n'
            "<｜tool_calls_end｜>"
        ),
        signs=("steptml:invoke",),
        differs="SGLang takes a block of calls whose end is missing as text; the gateway reads its calls.",
    ),
    "minicpm5_xml": FormatSpec(
        parse=_markup(
            TaggedCall(
                next=("<function name=", "<functionname=", "<tool_sep>"),
                key="<param name=",
                also=("<paramname=",),
                value_ends=("</param>",),
                cdata=True,
            ),
            after=("<tool_sep>",),
            also=("<functionname=",),
        ),
        families="MiniCPM 5",
        example=(
            '<think>\nI should look.\n</think>\n\n<function name="get_weather"><param name="city">Paris</param>'
            '<param name="days">3</param></function>'
        ),
        aliases=("minicpm5",),
        signs=("<function name=", "<param name="),
        differs=(
            "vLLM leaves a parameter out that the tool does not know, and SGLang takes such a call as text; both take "
            "a call with the same parameter twice as text.  Here unknown ones are passed on, and the last one counts."
        ),
    ),
    "minimax_m2": FormatSpec(
        parse=_markup(
            TaggedCall(
                next=("<invoke name=", "<minimax:tool_call>"),
                key="<parameter name=",
                call_ends=("</invoke>", "</minimax:tool_call>"),
                framed=True,
            )
        ),
        families="MiniMax M2",
        example=(
            '<think>\nI should look.\n</think>\n\n<minimax:tool_call>\n<invoke name="get_weather">\n'
            '<parameter name="city">Paris</parameter>\n<parameter name="days">3</parameter>\n</invoke>\n'
            "</minimax:tool_call>"
        ),
        aliases=("minimax_m2_append_think", "minimax-m2", "minimax", "minimax-append-think"),
        signs=("<minimax:tool_call>", "<invoke name="),
        differs="vLLM drops calls of tools that were not offered and strips values; the gateway passes both on.",
    ),
    "dots": FormatSpec(
        parse=_markup(
            TaggedCall(
                next=("<invoke name=", "<dots_function_call>"),
                key="<parameter name=",
                call_ends=("</invoke>", "</dots_function_call>"),
                framed=True,
            )
        ),
        families="dots",
        example=(
            '<dots_function_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
            '<parameter name="days">3</parameter>\n</invoke>\n</dots_function_call>'
        ),
        signs=("<dots_function_call>",),
        differs="vLLM and SGLang ignore a block without an end; the gateway reads its calls.",
    ),
    "dsml_v32": FormatSpec(
        parse=_DSML,
        families="DeepSeek V3.2",
        example=_DSML_EXAMPLE.format("｜DSML｜", "function_calls"),
        aliases=("deepseek_v32", "deepseekv32"),
        signs=("｜DSML｜", "function_calls"),
        differs=_DSML_DIFFERS,
    ),
    "dsml_v4": FormatSpec(
        parse=_DSML,
        families="DeepSeek V4",
        example=_DSML_EXAMPLE.format("｜DSML｜", "tool_calls"),
        aliases=("deepseek_v4", "deepseekv4", "deepseek-v4"),
        signs=("｜DSML｜", "tool_calls"),
        differs=_DSML_DIFFERS,
    ),
    "dsml_v41": FormatSpec(
        parse=_DSML,
        families="DeepSeek V4.1",
        example=_DSML_EXAMPLE.format("｜DSML｜ ", "calls"),
        aliases=("deepseek_v41", "deepseekv41", "deepseek-v41"),
        signs=("｜DSML｜", " calls>", " invoke name="),
        differs=_DSML_DIFFERS,
    ),
    "gigachat35": FormatSpec(
        parse=_dsml(("｜GCML｜",), "tool_calls"),
        families="GigaChat 3.5",
        example=_DSML_EXAMPLE.format("｜GCML｜", "tool_calls"),
        special=True,
        signs=("｜GCML｜", "tool_calls"),
        differs="vLLM shows a block without a complete call as text, with its tags; the gateway reads its whole calls.",
    ),
    "kimi_k3": FormatSpec(
        parse=_markup(
            TaggedCall(
                next=("<|open|>call tool=", "<|open|>tools<|sep|>"),
                name_end="<|sep|>",
                key="<|open|>argument key=",
                key_end="<|sep|>",
                json=('<|open|>json type="object"<|sep|>', "<|close|>json<|sep|>"),
                value_ends=("<|close|>argument<|sep|>",),
                call_ends=("<|close|>call<|sep|>", "<|close|>tools<|sep|>"),
                trim=False,
                escaped=True,
            ),
            thoughts=_K3_THINK,
            silent=("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
        ),
        families="Kimi K3",
        first=("<|open|>",),
        example=(
            "<|open|>think<|sep|>I should look.<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|>"
            '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
            '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
            '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
            "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>"
        ),
        special=True,
        signs=("<|open|>", "<|close|>", "<|sep|>", "argument"),
        differs="SGLang passes a call on when it is complete; the gateway streams its strings.",
    ),
}
