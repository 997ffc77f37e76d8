"""Families of gpt-oss, which write channels: JSON, or code, for the tool that a header names.

Some servers leave out the special tokens:

    analysisI should look.assistantcommentary to=functions.f json{…}assistantfinalHello.

Only models of that family write so, and only a text that begins like this is read as such a turn.  If only the first
tag of a turn is missing, the tags behind its first words show that.

Amazon Bedrock sends reasoning as text, between tags.  In a stream these stand around each piece.
"""

import re
from collections.abc import Collection, Mapping

from gateway.formats.grammars.channels import CHANNEL, CONSTRAIN, MESSAGE, START, ChannelFormat, code
from gateway.formats.grammars.json_calls import read_arguments
from gateway.formats.markers import Markers
from gateway.formats.parser import ParseContext, ParserOutput, start_call
from gateway.formats.reader import ReadStep, TextReader, TextSink
from gateway.formats.spec import FormatSpec
from gateway.formats.text_buffer import Malformed

_CHANNELS, _TO = ("analysis", "commentary", "final"), " to="
_HEADERS = tuple(f"assistant{word}" for word in (*_CHANNELS, _TO))
_NEXT = Markers(*_HEADERS)
# Characters that follow such a word inside a sentence.  "final" may begin another word, such as "finally"; "analysis"
# begins none.
_PROSE = {"final": re.compile(r"[a-z\s.,:;_/)'-]*")}
_MARKS = re.compile(r"[\s.,:;_/)'-]*")
_NAME = re.compile(r"[\w.:/-]*")
_GLUED = ("", *_CHANNELS, "json", "code")  # words that may follow a name without a space
_BEGINS, _ENDS = (START, CHANNEL), ("<|end|>", "<|call|>", "<|return|>")
_WRAPPED = ("<reasoning>", "</reasoning>")  # of Amazon Bedrock
_IN_CODE = Markers(*_BEGINS, *_ENDS)


def begins(read: TextReader) -> ReadStep:
    """Take the header at the beginning of a turn; return "" for any other text.

    The text that was taken stays recorded.
    """
    read.begin_recording()
    header = yield from read.take_literal(*_CHANNELS, *_HEADERS)
    if header not in _CHANNELS or (yield from read.lookahead(_TO)):
        return header
    return "" if (yield from read.run(_PROSE.get(header, _MARKS))) or read.ended else header


def turn(read: TextReader, emit: ParserOutput, context: ParseContext, header: str) -> ReadStep:
    """Read all messages of a turn whose first header was taken; return the beginning of a header that has tags."""
    while header and not header.startswith(_BEGINS):
        header = yield from _message(read, emit, context, header)
    return header


def _message(read: TextReader, emit: ParserOutput, context: ParseContext, header: str) -> ReadStep:
    """Read one message; return the header of the next."""
    read.begin_recording(header)
    put: TextSink = emit.reasoning if header.endswith("analysis") else emit.text
    if (yield from read.lookahead(MESSAGE)):
        return _tagged(read.end_recording())
    if not header.endswith(_TO) and not (yield from read.take_literal(_TO)):
        read.end_recording()
        return (yield from read.until(_NEXT, put))
    name = _tool((yield from read.run(_NAME)), context.tools)
    yield from read.accept(*_CHANNELS)
    yield from read.accept("json", "code")
    yield from read.peek()
    if context.tools and (yield from read.lookahead(CHANNEL, CONSTRAIN, MESSAGE)):
        return _tagged(read.end_recording())
    if not (name and context.tools) or (read.ended and read.cut):
        (emit.incomplete_call if read.ended else emit.text)(read.end_recording())
        return (yield from read.until(_NEXT, emit.text))
    return (yield from _call(read, emit, context, name))


def _tagged(header: str) -> str:
    """Return the beginning of a header with its first tag."""
    words = header.removeprefix("assistant")
    return (START if words.startswith(_TO) else CHANNEL) + words


def _call(read: TextReader, emit: ParserOutput, context: ParseContext, name: str) -> ReadStep:
    start_call(read, emit, name)
    if not (yield from read.lookahead("{", '"{')):
        return (yield from code(read, emit, context, name, _NEXT))
    if not (yield from read_arguments(read, emit.tool_args, context.shape(name))):
        return ""
    emit.tool_end()
    yield from read.peek()
    return (yield from read.until(_NEXT, emit.text))


def _tool(name: str, tools: Collection[str]) -> str:
    """Return the tool of a name that the next word may be glued to."""
    plain = name.removeprefix("functions.")
    return next((found for word in _GLUED if (found := plain.removesuffix(word)) in tools), plain)


def harmony_format(*, spaced: bool = False) -> ChannelFormat:
    """Return the format of gpt-oss.  `spaced`: a space follows each tag."""
    return ChannelFormat(
        begins=_BEGINS,
        ends=_ENDS,
        body=_read_harmony_body,
        thoughts=frozenset({"analysis"}),
        non_tools=frozenset({"assistant", "user", "all"}),
        spaced=spaced,
        wrapped=None if spaced else _WRAPPED,
        untagged=None if spaced else (begins, turn),
    )


def _read_harmony_body(read: TextReader, emit: ParserOutput, context: ParseContext, name: str) -> ReadStep:
    if not name:
        raise Malformed
    start_call(read, emit, name)
    yield from read.peek()
    if (yield from read.lookahead("{", '"{')):
        if (yield from read_arguments(read, emit.tool_args, context.shape(name))):
            emit.tool_end()
            yield from read.peek()
        return ""
    if (yield from read.lookahead(*_BEGINS, *_ENDS)):
        emit.tool_args("{}")
        emit.tool_end()
        return ""
    return "" if read.ended else (yield from code(read, emit, context, name, _IN_CODE))


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
}
