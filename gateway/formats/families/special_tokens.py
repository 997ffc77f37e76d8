"""Families that write calls as JSON objects between special tokens."""

import re
from collections.abc import Mapping

from gateway.formats.grammars import bare_json, json_calls
from gateway.formats.grammars.channels import code
from gateway.formats.markers import Markers, end_tokens
from gateway.formats.markup import Markup
from gateway.formats.markup_tags import CITATIONS, THINK
from gateway.formats.parser import ParseContext, ParserOutput, start_call
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.spec import FormatSpec
from gateway.formats.text_buffer import Malformed

_COHERE = Markup(
    thoughts={"<|START_THINKING|>": ("<|END_THINKING|>",)},
    calls={"<|START_ACTION|>": json_calls.tagged_calls},
    after=("<|END_ACTION|>",),
    silent=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    citations=CITATIONS,
)

_INVOKE, _INVOKE_TEXT = "<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>"
_HEADER = re.compile(r"[\w.-]*")
_BLOCK_ENDS = ("<|end_message|>", "<|content_model_end_sampling|>")
_IN_BLOCK = Markers(*_BLOCK_ENDS)


def _header(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Read the name before a call.

    A call as JSON repeats the name, and a call as text needs it.  Any other word is text.
    """
    name = yield from read.run(_HEADER)
    called = yield from read.lookahead(_INVOKE, _INVOKE_TEXT)
    if name and called == _INVOKE_TEXT:
        yield from read.take_literal(called)
        start_call(read, emit, name)
        return (yield from code(read, emit, context, name, _IN_BLOCK, "text"))
    announced = read.end_recording()
    if name and not called:
        (emit.incomplete_call if announced and read.ended else emit.text)(name)
    return name


def _unnamed(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Read text for a tool that no header names, which is the only tool that the request offers."""
    if len(context.tools) != 1:
        raise Malformed
    (name,) = context.tools
    start_call(read, emit, name)
    return (yield from code(read, emit, context, name, _IN_BLOCK, "text"))


class _Inkling(Markup, frozen=True, kw_only=True, dict=True):
    """A format whose prompt has already opened the first block, so that text may begin with the name of a call."""

    def __call__(self, read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        read.ends = self.ends
        if context.tools and not context.thought_open:
            yield from _header(read, emit, context)
        return (yield from super().__call__(read, emit, context))


_INKLING = _Inkling(
    thoughts={"<|content_thinking|>": _BLOCK_ENDS},
    calls={_INVOKE: json_calls.tagged_calls, _INVOKE_TEXT: _unnamed, "<|message_model|>": _header},
    silent=("<|message_model|>", "<|content_text|>", *_BLOCK_ENDS),
)


_CALL = '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}'
_CITED = '{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris", "days": 3}}'

ROWS: Mapping[str, FormatSpec] = {
    "cohere3": FormatSpec(
        parse=_COHERE,
        families="Command R7B",
        first=("<|START_RESPONSE|>",),
        example=f"<|START_THINKING|>I should look.<|END_THINKING|><|START_ACTION|>[\n    {_CITED}\n]<|END_ACTION|>",
        aliases=("cohere_command3",),
        special=True,
        signs=("<|START_ACTION|>", "<|START_RESPONSE|>"),
        differs="A response cannot hold the sources of citations: the gateway drops their tags and reports a warning.",
    ),
    "cohere4": FormatSpec(
        parse=_COHERE,
        families="Command A, Command A Plus, Command A Vision, Cohere 2 MoE",
        first=(
            "<|START_THINKING|>",
            "<|START_TEXT|>",
        ),
        example=f"<|START_THINKING|>I should look.<|END_THINKING|><|START_ACTION|>[\n    {_CITED}\n]<|END_ACTION|>",
        aliases=("cohere_command4",),
        special=True,
        signs=("<|START_ACTION|>", "<|START_TEXT|>"),
        differs="SGLang passes calls on only as a complete list, without the model's ids; the gateway streams them.",
    ),
    "internlm": FormatSpec(
        parse=Markup(
            calls={"<|plugin|>": json_calls.tagged_calls}, before=("<|action_start|>",), after=("<|action_end|>",)
        ),
        families="InternLM 2 and 2.5, Intern S1",
        example=(
            "<|action_start|><|plugin|>\n"
            '{"name": "get_weather", "parameters": {"city": "Paris", "days": 3}}<|action_end|>'
        ),
        aliases=("intern-s1", "interns1"),
        special=True,
        signs=("<|action_start|>", "<|plugin|>"),
        differs="vLLM passes one call on and drops calls of tools that were not offered; the gateway keeps all.",
    ),
    "gigachat3": FormatSpec(
        parse=Markup(
            calls={"<|function_call|>": json_calls.tagged_calls, "function call<|role_sep|>": json_calls.tagged_calls},
            silent=("<|message_sep|>",),
            ends=end_tokens("</s>"),
        ),
        families="GigaChat 3.0, 3.1",
        example=f"Let me see.<|message_sep|>\n\nfunction call<|role_sep|>\n{_CALL}",
        special=True,
        signs=("<|role_sep|>", "function call"),
        differs="vLLM drops what stands between the text and the call when it does not stream; the gateway keeps it.",
    ),
    "apertus": FormatSpec(
        parse=Markup(
            thoughts={"<|inner_prefix|>": ("<|inner_suffix|>",)},
            calls={"<|tools_prefix|>": json_calls.keyed_calls},
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
    "inkling": FormatSpec(
        parse=_INKLING,
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
            "A block <|content_invoke_tool_text|> is the first argument of the tool before it, or of the only tool; "
            "SGLang calls that argument `text`. "
            "SGLang drops a call whose two names differ; here the one inside its JSON counts."
        ),
    ),
    "openpangu": FormatSpec(
        parse=Markup(
            thoughts={**THINK, "[unused16]": ("[unused17]",)},
            calls={"<|tool_call_start|>": json_calls.tagged_calls, "[unused11]": json_calls.tagged_calls},
            after=("<|tool_call_end|>", "[unused12]"),
        ),
        first=("[unused16]", "[unused11]"),
        families="openPangu; its first versions write tokens like `[unused11]`",
        example=f"<think>I should look.</think><|tool_call_start|>[{_CALL}]<|tool_call_end|>",
        aliases=("openpangu_v2", "pangu"),
        special=True,
        signs=("<|tool_call_start|>", "<|tool_call_end|>", "<|message_start|>"),
        differs="vLLM passes on complete calls, and none if the last bracket is missing; the gateway streams calls.",
    ),
    "sarashina": FormatSpec(
        parse=Markup(calls={"<|tool_calls|>": json_calls.tagged_calls, "[": bare_json.named("[")}),
        families="Sarashina 2.2",
        example="<|tool_calls|>[{'name': 'get_weather', 'arguments': {'city': 'Paris', 'days': 3}}]",
        special=True,
        signs=("<|tool_calls|>",),
    ),
}
