"""Families that write calls like Python."""

from collections.abc import Mapping

from gateway.formats.families.xml_elements import QWEN
from gateway.formats.grammars import bare_json, json_calls
from gateway.formats.grammars.pythonic import Pythonic
from gateway.formats.markup import Markup
from gateway.formats.parser import CallParser, ParseContext, ParserOutput, by_next_token
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.spec import FormatSpec


def _twice(tag: str, call: CallParser) -> Mapping[str, CallParser]:
    """Return the parser of a call's opening tag, which models may write twice."""
    options: dict[str, CallParser] = {}
    options[tag] = by_next_token(options, call)
    return options


def _json_or_tagged(expressions: Pythonic) -> CallParser:
    """Return the parser of tagged calls of a family that writes them as JSON if its prompt says so."""

    def calls(read: TextReader, emit: ParserOutput, context: ParseContext) -> ReadStep:
        yield from read.peek()
        json = yield from read.lookahead("{", "[{", "[ {")
        return (yield from (json_calls.tagged_calls if json else expressions.tagged)(read, emit, context))

    return calls


def _json_or_named(expressions: Pythonic) -> CallParser:
    """Return the parser of a list that names an offered tool, as JSON or like Python."""
    return by_next_token({"{": bare_json.named("[")}, expressions.named)


_LFM2, _LLAMA4 = Pythonic("lfm2_pythonic"), Pythonic("llama4_pythonic")


ROWS: Mapping[str, FormatSpec] = {
    "pythonic": FormatSpec(
        parse=Markup(
            calls={"[": _json_or_named(Pythonic("pythonic")), "<function=": QWEN},
            after=("</function>",),
            in_thought="last",
        ),
        families="Llama 3.2 with its template for small models, ToolACE",
        first=("[",),
        example='[get_weather(city="Paris", days=3)]',
        differs=(
            "vLLM accepts a list of calls only without text around it, and refuses positional arguments.  Here a "
            "list anywhere counts if its first name is one of the tools; any other bracket is text."
        ),
    ),
    "llama4_pythonic": FormatSpec(
        parse=Markup(
            calls={
                **_twice("<|python_start|>", _json_or_tagged(_LLAMA4)),
                "{": bare_json.named("{"),
                "[": _json_or_named(_LLAMA4),
                "<function=": QWEN,
            },
            after=("<|python_end|>", "</function>"),
            in_thought="last",
        ),
        families="Llama 4",
        example='<|python_start|>[get_weather(city="Paris", days=3)]<|python_end|>',
        special=True,
        signs=("<|python_start|>",),
        differs="vLLM's parser of this name takes the JSON of the family's own template as text; here both count.",
    ),
    "lfm2_pythonic": FormatSpec(
        parse=Markup(
            calls=_twice("<|tool_call_start|>", _json_or_tagged(_LFM2)), after=("<|tool_call_end|>",), in_thought="text"
        ),
        families="LFM2, LFM2.5",
        example=(
            "<think>\nI should look.\n</think>\n\n"
            '<|tool_call_start|>[get_weather(city="Paris", days=3)]<|tool_call_end|>'
        ),
        aliases=("lfm2",),
        special=True,
        signs=("<|tool_call_start|>", "<|tool_call_end|>"),
    ),
    "olmo3_pythonic": FormatSpec(
        parse=Markup(calls=_twice("<function_calls>", Pythonic("olmo3_pythonic").tagged), after=("</function_calls>",)),
        families="OLMo 3",
        example='<think>I should look.</think><function_calls>\nget_weather(city="Paris", days=3)\n</function_calls>',
        aliases=("olmo3",),
        signs=("<function_calls>", "</function_calls>"),
        differs="vLLM's result depends on how the text is cut; the gateway's result does not.",
    ),
}
