"""Families that write a call's name in a header before their JSON."""

from collections.abc import Mapping
from itertools import product

from msgspec.structs import replace

from gateway.formats.grammars import json_calls, pythonic
from gateway.formats.grammars.headed import HeadedCall
from gateway.formats.markers import end_tokens
from gateway.formats.markup import Markup
from gateway.formats.markup_tags import THINK
from gateway.formats.parser import ParseContext, ParserOutput, by_next_token
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.spec import FormatSpec
from gateway.formats.text_buffer import Malformed


def _spelled(*tags: str) -> tuple[str, ...]:
    """Return DeepSeek's tags, in all spellings that models trained on its output use."""
    return tuple(
        f"<{bar}{tag.replace(' ', gap)}{bar}>" for tag, bar, gap in product(tags, "｜|", ("▁", "_", " ", "\\_"))
    )


_MISTRAL = Markup(
    thoughts={"[THINK]": ("[/THINK]",), **THINK},
    calls={
        "[TOOL_CALLS]": by_next_token(
            {"[": json_calls.tagged_calls, "{": json_calls.tagged_calls},
            HeadedCall(separators=("[ARGS]",), bare=True, id_mark="[CALL_ID]"),
        )
    },
    after=("[/TOOL_CALLS]",),
    in_thought="text",
)

_DEEPSEEK_BEGINS = _spelled("tool calls begin", "tool call begin", "tool calls")
_DEEPSEEK_CALL = HeadedCall(
    begins=_DEEPSEEK_BEGINS,
    kind="function",
    separators=_spelled("tool sep"),
    ends=_spelled("tool call end", "tool calls end"),
)
_DEEPSEEK = Markup(
    calls=dict.fromkeys(_DEEPSEEK_BEGINS, _DEEPSEEK_CALL),
    after=_DEEPSEEK_CALL.ends,
)


def _kimi(header: str) -> tuple[str, str]:
    """Split a header: functions.f:0 is the id of a call of f; a number alone is no name."""
    name, _, index = header.removeprefix("functions.").rpartition(":")
    if not name and index.isdecimal():
        return "", ""
    return (name, header) if name and index.isdecimal() else (header.removeprefix("functions."), "")


_KIMI_BEGINS = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_call_begin|>")
_KIMI_CALL = HeadedCall(
    begins=_KIMI_BEGINS,
    separators=("<|tool_call_argument_begin|>",),
    bare=True,
    ends=("<|tool_call_end|>", "<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
    parts=_kimi,
)

_KIMI_WORD = "functions."


def _counted(header: str) -> tuple[str, str]:
    """Split a header behind `functions.`, which is no call without a counter."""
    name, _, index = header.rpartition(":")
    return (name, f"{_KIMI_WORD}{header}") if index.isdecimal() else ("", "")


def _kimi_words(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Read a call of an offered tool without the special tokens, which some servers remove."""
    if not (yield from read.lookahead(*map("{}:".format, context.tools))):
        raise Malformed
    return (yield from _KIMI_WORDS(read, emit, context))


_KIMI_WORDS = replace(_KIMI_CALL, begins=(), parts=_counted)

_PLAMO_BEGINS = tuple(f"<|plamo:begin_tool_{part}:plamo|>" for part in ("requests", "request", "name"))
_PLAMO_CALL = HeadedCall(
    begins=_PLAMO_BEGINS,
    separators=("<|plamo:end_tool_name:plamo|>",),
    prelude=(
        "<|plamo:begin_tool_arguments:plamo|>", "<|plamo:constrain|>", "<|plamo:msg|>",
    ),
    ends=tuple(f"<|plamo:end_tool_{part}:plamo|>" for part in ("arguments", "request", "requests")),
)  # fmt: skip

ROWS: Mapping[str, FormatSpec] = {
    "mistral": FormatSpec(
        parse=_MISTRAL,
        families="Mistral, Mixtral, Codestral, Devstral, Magistral, Ministral with tools",
        first=(
            "[THINK]",
            "[TOOL_CALLS]",
        ),
        example='[THINK]I should look.[/THINK][TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 3}',
        special=True,
        signs=("[TOOL_CALLS]",),
        differs=(
            "vLLM's stream takes text that follows a call into its arguments, and SGLang does not know [CALL_ID]; here "
            "text is text and the id is the call's.  In the list of the older templates the id comes last, when the "
            "call has long been passed on with one of its own."
        ),
        ids="nine",
    ),
    "deepseek_v3": FormatSpec(
        parse=_DEEPSEEK,
        families="DeepSeek V3 and R1, models distilled from them",
        aliases=("deepseekv3",),
        example=(
            "<think>\nI should look.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
            'get_weather\n```json\n{"city": "Paris", "days": 3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
        ),
        signs=("<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", "```json"),
        differs=(
            "vLLM wants a line end before the closing fence, drops what follows a section, and its stream loses the "
            "last characters of the arguments when several tokens come at once; the gateway loses none of it."
        ),
    ),
    "deepseek_v31": FormatSpec(
        parse=_DEEPSEEK,
        families="DeepSeek V3.1",
        aliases=("deepseekv31",),
        example=(
            "<think>\nI should look.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
            '{"city": "Paris", "days": 3}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
        ),
        signs=("<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>"),
    ),
    "kimi_k2": FormatSpec(
        parse=Markup(
            calls={**dict.fromkeys(_KIMI_BEGINS, _KIMI_CALL), _KIMI_WORD: _kimi_words},
            words=(_KIMI_WORD,),
            after=_KIMI_CALL.ends,
        ),
        families="Kimi K2, K2 Thinking, K2.5",
        aliases=("kimi",),
        example=(
            "<think>I should look.</think><|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
            '<|tool_call_argument_begin|>{"city": "Paris", "days": 3}<|tool_call_end|><|tool_calls_section_end|>'
        ),
        special=True,
        signs=("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"),
        differs=(
            "vLLM drops what follows a section; SGLang lets the end of a section into the arguments where the end of "
            "the call is missing.  Here the first is text and the second falls away."
        ),
        ids="counted",
    ),
    "functionary31": FormatSpec(
        parse=Markup(
            calls={
                "<function=": HeadedCall(separators=(">",), ends=("</function>",)),
                pythonic.TAG: pythonic.calls("functionary31"),
            },
            after=("</function>",),
        ),
        families="Functionary 3.1, Llama 3.1 with its tags for custom tools",
        example='<function=get_weather>{"city": "Paris", "days": 3}</function>',
        signs=("<function=", "<|python_tag|>"),
    ),
    "plamo3": FormatSpec(
        parse=Markup(
            thoughts={"<|plamo:begin_think:plamo|>": ("<|plamo:end_think:plamo|>",)},
            calls=dict.fromkeys(_PLAMO_BEGINS, _PLAMO_CALL),
            after=_PLAMO_CALL.ends,
            ends=end_tokens("<|plamo:tag|>"),
        ),
        families="PLaMo 3",
        example=(
            "<|plamo:begin_think:plamo|>I should look.<|plamo:end_think:plamo|><|plamo:begin_tool_requests:plamo|>"
            "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>get_weather<|plamo:end_tool_name:plamo|>"
            "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>"
            '{"city": "Paris", "days": 3}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>'
            "<|plamo:end_tool_requests:plamo|>"
        ),
        special=True,
        signs=("<|plamo:begin_tool_request",),
    ),
}
