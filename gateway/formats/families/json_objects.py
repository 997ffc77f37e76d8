"""Families that write calls as JSON objects between tags."""

from collections.abc import Mapping

from gateway.formats.families.xml_elements import QWEN
from gateway.formats.grammars import bare_json, json_calls, pythonic
from gateway.formats.grammars.tagged import TaggedCall
from gateway.formats.markers import end_tokens
from gateway.formats.markup import Markup
from gateway.formats.markup_tags import CITATIONS, THINK
from gateway.formats.parser import CallParser, ParseContext, ParserOutput, by_next_token
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.spec import FormatSpec
from gateway.formats.text_buffer import Malformed

# Fine-tunes of a family may use the tags of its next generation.  Models also write the tag of a call twice.
_OPTIONS: dict[str, CallParser] = {"<function=": QWEN}
_OPTIONS["<tool_call>"] = by_next_token(_OPTIONS, json_calls.tagged_calls)
# Qwen 2.5 Coder writes other tags; its prompt has the definitions of tools between <tools> and </tools>.
_TOOL_CALL = Markup(
    calls={
        "<tool_call>": _OPTIONS["<tool_call>"],
        "<tools>": bare_json.tagged,
        "<function_call>": json_calls.tagged_calls,
    },
    after=("</tool_call>", "</function>", "</tools>", "</function_call>"),
)
_RESPONSE = {"<response>": "</response>"}

_REASONED = ("Here is my response:", "Here's my response:")
_GRANITE = Markup(
    thoughts={
        **THINK,
        "Here is my thought process:": _REASONED,
        "Here's my thought process:": _REASONED,
    },
    calls={"<|tool_call|>": json_calls.tagged_calls, "<tool_call>": json_calls.tagged_calls},
    after=("</tool_call>",),
    answer=_RESPONSE,
)

_FUNCTOOLS = Markup(
    calls={"functools": json_calls.tagged_calls, "<|tool_call|>": json_calls.tagged_calls},
    after=("<|/tool_call|>",),
)

# LongCat's later models write each argument between tags.
_LONGCAT = TaggedCall(
    name_end="",
    key="<longcat_arg_key>",
    key_end="</longcat_arg_key>",
    value="<longcat_arg_value>",
    value_ends=("</longcat_arg_value>",),
    call_ends=("</longcat_tool_call>",),
    next=("<longcat_tool_call>",),
    trim=False,
)


class _Actions(json_calls.JsonCall):
    """Parse Command R's list of actions, behind a word that ordinary text has as well."""

    def none(self) -> None:
        """Leave a list without actions in the text."""
        raise Malformed


def _action(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Parse Command R's list of actions, in which an action may stand for no call."""
    pseudo = {"directly_answer", "directly-answer"}.difference(context.tools)
    return (yield from json_calls.read_calls(read, _Actions(read, emit, context, pseudo=pseudo)))


_CALL = '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}'
_THOUGHT = "<think>\nI should look.\n</think>\n\n"

ROWS: Mapping[str, FormatSpec] = {
    "hermes_json": FormatSpec(
        parse=_TOOL_CALL,
        families="Hermes 2 and 3, Qwen 2.5, QwQ, Qwen 3, Qwen 3 VL, SmolLM 3, Trinity, many fine-tunes",
        example=f"{_THOUGHT}<tool_call>\n{_CALL}\n</tool_call>",
        aliases=("hermes", "qwen3_json", "qwen3", "qwen", "qwen25", "qwen3-thinking", "trinity"),
        signs=("<tool_call>", '{"name":'),
        differs=(
            "Other servers end a call at the first </tool_call>, even in a string; the gateway ends it with its JSON. "
            "vLLM drops text after a call when it does not stream; the gateway keeps it. Qwen 2.5 Coder writes "
            "`<tools>` or `<function_call>`, which other servers do not read; behind `<tools>` a call names an offered "
            "tool and has arguments, because models recite the definitions of tools with the same tag."
        ),
    ),
    "llama3_json": FormatSpec(
        parse=Markup(
            calls={
                pythonic.TAG: pythonic.calls("llama3_json"),
                "{": bare_json.named("{"),
                "[": bare_json.named("["),
                "<function=": QWEN,
            },
            after=("</function>",),
            in_thought="last",
        ),
        families="Llama 3.1, 3.2, 3.3, Llama 4 with the JSON template",
        example='{"name": "get_weather", "parameters": {"city": "Paris", "days": 3}}',
        aliases=("llama4_json", "llama3"),
        signs=("<|python_tag|>", '"parameters"'),
        differs=(
            "vLLM finds a call after text only when it does not stream; the gateway always finds it. If neither a call "
            "nor code for an offered tool follows the tag, the text and the tag stay."
        ),
    ),
    "bare_json": FormatSpec(
        parse=Markup(
            calls={"{": bare_json.named("{"), "[": bare_json.named("["), "```": bare_json.fenced},
            in_thought="last",
        ),
        families="any model that was asked for JSON, or made to write it",
        first=(
            "{",
            "[{",
        ),
        example=f"[{_CALL}]",
        differs="Other servers read all JSON as a call if one is required; here it must name an offered tool.",
    ),
    "nemotron_nano_v2": FormatSpec(
        parse=Markup(
            calls={"<TOOLCALL>": json_calls.tagged_calls},
            after=("</TOOLCALL>",),
            ends=end_tokens("<SPECIAL_12>"),
        ),
        families="Nemotron Nano 2, Llama Nemotron Super 1.5",
        example=f"{_THOUGHT}<TOOLCALL>[{_CALL}]</TOOLCALL>",
        signs=("<TOOLCALL>",),
    ),
    "granite_json": FormatSpec(
        parse=_GRANITE,
        families="Granite 3.0, 3.1, 3.2, 3.3",
        example=f"<think>I should look.</think><|tool_call|>[{_CALL}]",
        aliases=("granite",),
        signs=("<|tool_call|>", "<|start_of_role|>"),
        differs="Other servers read Granite's English sentences as tags only at the start; the gateway always does.",
    ),
    "granite4_json": FormatSpec(
        parse=_TOOL_CALL,
        families="Granite 4.0, 4.1",
        example=f"<tool_call>\n{_CALL}\n</tool_call>",
        aliases=("granite4",),
        signs=("<tool_call>", '{"name":', "<|start_of_role|>"),
    ),
    "granite_20b": FormatSpec(
        parse=Markup(calls={"<function_call>": json_calls.tagged_calls}, after=("</function_call>",)),
        families="Granite 20B function calling",
        example=f"<function_call> {_CALL}",
        aliases=("granite-20b-fc",),
        signs=("<function_call>",),
        differs="vLLM finds a call after text only when it does not stream; the gateway always finds it.",
    ),
    "phi4_functools": FormatSpec(
        parse=_FUNCTOOLS,
        families="Phi 4 mini",
        first=("functools[",),
        example=f"functools[{_CALL}]",
        aliases=("phi4_mini_json",),
        signs=("functools[",),
        differs="vLLM passes a call on only when the response is complete; the gateway streams it.",
    ),
    "firefunction2": FormatSpec(
        parse=_FUNCTOOLS,
        families="Firefunction 2",
        first=(" functools[",),
        example=f" functools[{_CALL}]",
        signs=("functools[", "<|start_header_id|>"),
    ),
    "commandr_plus": FormatSpec(
        parse=Markup(calls={"Action:": _action}, citations=CITATIONS),
        families="Command R, Command R+",
        first=("Action:",),
        example='Action: ```json\n[{"tool_name": "get_weather", "parameters": {"city": "Paris", "days": 3}}]\n```',
        signs=("Action:", "tool_name", "directly"),
        differs="The action directly_answer calls no tool: it falls away, unless a tool of that name was offered.",
    ),
    "ernie45": FormatSpec(
        parse=Markup(calls={"<tool_call>": json_calls.tagged_calls}, after=("</tool_call>",), answer=_RESPONSE),
        families="Ernie 4.5",
        example=f"{_THOUGHT}<tool_call>\n{_CALL}\n</tool_call>",
        signs=("<tool_call>", "<response>"),
    ),
    "hunyuan_a13b": FormatSpec(
        parse=Markup(
            calls={"<tool_calls>": json_calls.tagged_calls},
            after=("</tool_calls>",),
            answer={"<answer>": "</answer>"},
        ),
        families="Hunyuan A13B",
        example=f"{_THOUGHT}<answer>\nLet me see.\n<tool_calls>[{_CALL}]</tool_calls>\n</answer>",
        signs=("<tool_calls>", "<answer>"),
        differs="vLLM may leave <tool_calls> in the text when it streams; the gateway never does.",
    ),
    "jamba": FormatSpec(
        parse=Markup(calls={"<tool_calls>": json_calls.tagged_calls}, after=("</tool_calls>",)),
        families="Jamba 1.5 and later, MiniMax M1",
        example=f"<tool_calls>[\n    {_CALL}\n]</tool_calls>",
        signs=("<tool_calls>",),
    ),
    "longcat": FormatSpec(
        parse=Markup(
            thoughts={"<longcat_think>": ("</longcat_think>",)},
            calls={
                "<longcat_tool_call>": by_next_token(
                    {"{": json_calls.tagged_calls, "[": json_calls.tagged_calls}, _LONGCAT
                )
            },
            after=("</longcat_tool_call>",),
        ),
        families="LongCat Flash",
        example=(
            f"<longcat_think>\nI should look.\n</longcat_think>\n<longcat_tool_call>\n{_CALL}\n</longcat_tool_call>"
        ),
        signs=("<longcat_tool_call>",),
    ),
    "xlam": FormatSpec(
        parse=Markup(
            calls={
                "<tool_call>": json_calls.tagged_calls,
                "[TOOL_CALLS]": json_calls.tagged_calls,
                "{": bare_json.wrapped,
                "[": bare_json.named("["),
                "```": bare_json.fenced,
            },
            after=("</tool_call>",),
        ),
        families="xLAM 1 and 2",
        example=f"[{_CALL}]",
        signs=('[{"name":', "list"),
        differs="vLLM reads any list in the text as calls; here a list without a tag must name an offered tool.",
    ),
    "apriel": FormatSpec(
        parse=Markup(
            thoughts={
                "Here are my reasoning steps:": ("[BEGIN FINAL RESPONSE]",),
                "<thinking>": ("</thinking>", "[BEGIN FINAL RESPONSE]"),
            },
            calls={"<tool_calls>": json_calls.tagged_calls},
            after=("</tool_calls>",),
            silent=("[END FINAL RESPONSE]",),
        ),
        families="Apriel 1.5, 1.6",
        example=(
            f"Here are my reasoning steps:\nI should look.\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{_CALL}]</tool_calls>"
        ),
        signs=("<tool_calls>", "[BEGIN FINAL RESPONSE]"),
    ),
    "reka": FormatSpec(
        parse=Markup(
            thoughts={**THINK, "<reasoning>": ("</reasoning>",)},
            calls={"<tool_call>": json_calls.tagged_calls},
            after=("</tool_call>",),
            in_thought="last",
            ends=end_tokens("<sep>"),
        ),
        families="Reka Edge, Reka Flash 3",
        example=f"{_THOUGHT}<tool_call>\n{_CALL}\n</tool_call>",
        signs=("<tool_call>", "<sep>"),
    ),
}
