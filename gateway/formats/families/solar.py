"""Families of Upstage, whose calls stand between special tokens, with typed text or with JSON."""

import re
from collections.abc import Mapping

from gateway.formats.grammars.json_calls import read_arguments
from gateway.formats.grammars.tagged import TaggedCall
from gateway.formats.markup import Markup
from gateway.formats.parser import ParseContext, ParserOutput, start_call
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.spec import FormatSpec
from gateway.formats.text_buffer import Malformed

_BEGIN, _NAME, _ARGS, _END = (f"<|tool_call:{part}|>" for part in ("begin", "name", "args", "end"))
_ID = re.compile(r"[\w.:-]*")
_FIRST = ("{", '"', "'", "")  # beginnings of arguments; "" for the end of the text

_PAIRS = TaggedCall(
    next=("<|tool_call:start|>",),
    name_end="",
    key="<|tool_arg:start|>",
    key_end="<|tool_arg:value|>",
    value_ends=("<|tool_arg:end|>",),
    call_ends=("<|tool_call:end|>",),
    trim=False,
)


def call(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
    """Parse an id, a name and JSON, each behind a tag of its own."""
    id = yield from read.run(_ID)
    yield from read.expect(_NAME)
    yield from read.peek()
    name = yield from read.read_word()
    tag = yield from read.expect(_ARGS, _END)
    tag = (yield from read.accept(_END)) or tag
    if tag == _ARGS and (yield from read.peek()) not in _FIRST:
        raise Malformed
    start_call(read, emit, name, id)
    if tag == _END:
        emit.tool_args("{}")
    elif not (yield from read_arguments(read, emit.tool_args, context.shape(name))):
        return ""
    emit.tool_end()
    return tag


ROWS: Mapping[str, FormatSpec] = {
    "solar_open2": FormatSpec(
        parse=Markup(
            thoughts={"<|think:start|>": ("<|think:end|>",)},
            # Some models open a call with a code fence in place of the tag.
            calls={"<|tool_call:start|>": _PAIRS, "```": _PAIRS},
            after=("<|tool_call:end|>",),
        ),
        families="Solar Open 2, Solar Pro 4",
        example=(
            "<|think:start|>I should look.<|think:end|><|tool_call:start|>get_weather\n"
            "<|tool_arg:start|>city<|tool_arg:value|>Paris<|tool_arg:end|>\n"
            "<|tool_arg:start|>days<|tool_arg:value|>3<|tool_arg:end|>\n<|tool_call:end|>"
        ),
        special=True,
        signs=("<|tool_call:start|>", "<|tool_arg:value|>"),
        differs="SGLang passes a call on when it is complete; the gateway streams its strings.",
    ),
    "solar_open": FormatSpec(
        parse=Markup(
            thoughts={"<|think|>": ("<|end|>", "<|begin|>assistant", "<|content|>")},
            calls={_BEGIN: call},
            before=("<|tool_calls|>",),
            after=(_END, "<|calls|>"),
            silent=("<|begin|>assistant", "<|content|>", "<|flush|>", "<|end|>"),
        ),
        families="Solar Open 100B",
        first=("<|content|>",),
        example=(
            f"<|think|>I should look.<|end|><|begin|>assistant<|tool_calls|>{_BEGIN}a1b2c3d4e5{_NAME}get_weather"
            f'{_ARGS}{{"city": "Paris", "days": 3}}{_END}<|calls|>'
        ),
        aliases=("solar_open_100b",),
        special=True,
        signs=("<|tool_calls|>", _BEGIN),
        differs="vLLM's parser of the family loses text after a call; the gateway keeps it.",
    ),
}
