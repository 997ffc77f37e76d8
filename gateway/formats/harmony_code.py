"""Code for a tool, as text that is no JSON: the tool's first argument."""

from gateway.formats.format import ParseContext, ParserOutput
from gateway.formats.markers import Markers
from gateway.formats.reader import ReadStep, TextReader
from gateway.formats.schema import escape_json_string


def code(
    read: TextReader, emit: ParserOutput, context: ParseContext, name: str, stops: Markers, unknown: str = "code"
) -> ReadStep:
    """Read text that is no JSON: all of it is the first argument.  Return the tag after it.

    unknown: the argument's name, where the tool has no schema.
    """
    properties = context.tools.get(name, {}).get("properties")
    key = next(iter(properties if isinstance(properties, dict) else ()), unknown)
    emit.tool_args(f'{{"{escape_json_string(key)}": "')
    mark = yield from read.until(stops, lambda text: emit.tool_args(escape_json_string(text)))
    if mark or not read.cut:
        emit.tool_args('"}')
        emit.tool_end()
    return mark
