"""Families that write calls as JSON objects between special tokens."""

import re
from collections.abc import Mapping

from gateway.formats import json_call
from gateway.formats.format import Context, Emit
from gateway.formats.markers import END_TOKENS, ENDS, Ends
from gateway.formats.markup import CITATIONS, Markup
from gateway.formats.reader import Reader, Step
from gateway.formats.row import Row

_COHERE = Markup(
    thoughts={"<|START_THINKING|>": ("<|END_THINKING|>",)},
    calls={"<|START_ACTION|>": json_call.tagged},
    after=("<|END_ACTION|>",),
    silent=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    citations=CITATIONS,
)

_INVOKE = "<|content_invoke_tool_json|>"
_HEADER = re.compile(r"[\w.-]*")


def _header(read: Reader, emit: Emit, _: Context) -> Step:
    """The name before a call, which the call repeats, falls away; any other word is text."""
    name = yield from read.run(_HEADER)
    called = yield from read.ahead(_INVOKE)
    announced = read.recorded()
    if name and not called:
        (emit.fragment if announced and read.ended else emit.text)(name)
    return name


_INKLING = Markup(
    thoughts={"<|content_thinking|>": ("<|end_message|>", "<|content_model_end_sampling|>")},
    calls={_INVOKE: json_call.tagged, "<|message_model|>": _header},
    silent=("<|message_model|>", "<|content_text|>", "<|end_message|>", "<|content_model_end_sampling|>"),
)


def _inkling(read: Reader, emit: Emit, context: Context) -> Step:
    """The prompt has already opened the first block, so that text may begin with the name of a call."""
    read.ends = ENDS
    if context.tools and not context.thought_open:
        yield from _header(read, emit, context)
    return (yield from _INKLING(read, emit, context))


_CALL = '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}'
_CITED = '{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris", "days": 3}}'

ROWS: Mapping[str, Row] = {
    "cohere3": Row(
        parse=_COHERE,
        families="Command R7B, Command A",
        first=("<|START_RESPONSE|>",),
        example=f"<|START_THINKING|>I should look.<|END_THINKING|><|START_ACTION|>[\n    {_CITED}\n]<|END_ACTION|>",
        aliases=("cohere_command3",),
        special=True,
        signs=("<|START_ACTION|>", "<|START_RESPONSE|>"),
        differs="The sources of citations have no place in an answer: their tags fall away, which the ledger tells.",
    ),
    "cohere4": Row(
        parse=_COHERE,
        families="Command A Plus, Command A Vision, Command MoE",
        first=(
            "<|START_THINKING|>",
            "<|START_TEXT|>",
        ),
        example=f"<|START_THINKING|>I should look.<|END_THINKING|><|START_ACTION|>[\n    {_CITED}\n]<|END_ACTION|>",
        aliases=("cohere_command4",),
        special=True,
        signs=("<|START_ACTION|>", "<|START_TEXT|>"),
        differs="SGLang gives calls only when their list is complete, and without the model's ids; here they stream.",
    ),
    "internlm": Row(
        parse=Markup(calls={"<|plugin|>": json_call.tagged}, before=("<|action_start|>",), after=("<|action_end|>",)),
        families="InternLM 2 and 2.5, Intern S1",
        example=(
            "<|action_start|><|plugin|>\n"
            '{"name": "get_weather", "parameters": {"city": "Paris", "days": 3}}<|action_end|>'
        ),
        aliases=("intern-s1", "interns1"),
        special=True,
        signs=("<|action_start|>", "<|plugin|>"),
        differs="vLLM gives one call and drops those of names that were not offered; here each call is given.",
    ),
    "gigachat3": Row(
        parse=Markup(
            calls={"<|function_call|>": json_call.tagged, "function call<|role_sep|>": json_call.tagged},
            silent=("<|message_sep|>",),
            ends=Ends(*END_TOKENS, "</s>"),
        ),
        families="GigaChat 3.0, 3.1",
        example=f"Let me see.<|message_sep|>\n\nfunction call<|role_sep|>\n{_CALL}",
        special=True,
        signs=("<|role_sep|>", "function call"),
        differs="vLLM drops what stands between the text and the call when it does not stream; here it stays.",
    ),
    "apertus": Row(
        parse=Markup(
            thoughts={"<|inner_prefix|>": ("<|inner_suffix|>",)},
            calls={"<|tools_prefix|>": json_call.keyed},
            after=("<|tools_suffix|>",),
        ),
        families="Apertus",
        example=(
            "<|inner_prefix|>I should look.<|inner_suffix|>"
            '<|tools_prefix|>[{"get_weather": {"city": "Paris", "days": 3}}]<|tools_suffix|>'
        ),
        aliases=("apertus2509",),
        special=True,
        signs=("<|tools_prefix|>",),
    ),
    "inkling": Row(
        parse=_inkling,
        families="Inkling",
        first=(
            "<|content_thinking|>",
            "<|content_text|>",
            "<|message_model|>",
        ),
        example=(
            "<|content_thinking|>I should look.<|end_message|><|message_model|>get_weather"
            '<|content_invoke_tool_json|>{"name": "get_weather", "args": {"city": "Paris", "days": 3}}<|end_message|>'
        ),
        special=True,
        signs=("<|content_invoke_tool_json|>",),
        differs=(
            "A block <|content_invoke_tool_text|> names no argument; SGLang makes a call of it, here it is text. "
            "SGLang drops a call whose two names differ; here the one inside its JSON counts."
        ),
    ),
    "sarashina": Row(
        parse=Markup(calls={"<|tool_calls|>": json_call.tagged, "[": json_call.named("[")}),
        families="Sarashina 2.2",
        example="<|tool_calls|>[{'name': 'get_weather', 'arguments': {'city': 'Paris', 'days': 3}}]",
        special=True,
        signs=("<|tool_calls|>",),
    ),
}
