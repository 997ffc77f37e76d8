"""Generate docs/reference/formats.md from the table of formats."""

from collections.abc import Iterator, Mapping

from gateway.formats.markup import Markup
from gateway.formats.spec import FormatSpec

_HEAD = """\
# Formats

A format is how a family of models writes thoughts and tool calls; its name goes to `models.*.format`.  With
`format: auto` the gateway chooses the format by the model's name, then by its chat template if the server shows it,
then by the tags in the output.  `gateway formats --markdown` generates this page.

These rules apply to all formats ("call" is short for "tool call"):

- The result does not depend on how the text is cut into chunks, and a whole response is the fold of a streamed one.
  Two rules below are different for whole responses: closing tags without an opening tag, and calls in another format.
- White space inside the opening tag of a thought, and around all tags in the text (at most 16 characters before a tag),
  belongs to the tags.  Text before the end of a thought stays as the model wrote it.
- A thought that is never closed continues to the end.  The gateway drops its opening tag if it is repeated inside.  It
  also drops a closing tag directly at the beginning of the text, after a thought or after a call.  Any other is text.
- Some servers remove the opening tag of a thought (llama.cpp, LM Studio, other OpenAI-compatible servers).  A closing
  tag then ends a thought if a line end or the end of the text follows.  In a whole response, all text before the tag is
  reasoning.  In a stream, the gateway drops the tag.
- If the request offers no tools, or allows no calls, the tags of calls are text.  The gateway passes names on that were
  not offered, and reports a warning.  A name that means exactly one offered tool (`Get-Weather`,
  `functions.get_weather:0`) becomes the name of that tool.  Text before, between and after calls is content.
- If no call follows the tag of a call, the tag is text.  Arguments that end early are closed if their last value is
  complete.  A cut value stays cut, and other arguments beyond repair stay as they are: both are reported as
  `invalid:tool_calls.function.arguments`, unless the token limit cut the call.
- The gateway passes arguments on byte for byte if they are JSON and match the tool's schema.  It repairs all others,
  and reports them as `repaired:tool_calls.function.arguments`.  A value without a type gets the type of the tool's
  schema.  If the schema allows only a string, the value is a string.
- A parameter that is repeated in a row between tags is sent once, with its last value.
- A call in Python begins when it is complete.  If a value is not a literal, the call is text, and is reported as
  `unread:tool_calls=FORMAT`.
- If a response calls no tool, but its text contains a call in another format, the call counts in whole responses with
  `format: auto`.  Otherwise it is reported as `unread:tool_calls=FORMAT`.
- A code block of the language `tool_code` is calls, as Gemini and Gemma write them, if all of it is calls of offered
  tools.  Other code is text.
- The gateway drops code fences directly around calls, and an extra brace behind a call.
- If text precedes and follows a call, a line end separates the two, unless white space does.
- The gateway drops tokens like `<|im_end|>` at the end of a turn, and only there.
"""
_IN_THOUGHT = {
    "end": "A call of an offered tool ends a thought, unless the closing tag of the thought and more text follow.",
    "text": "A call inside a thought is part of the thought.",
    "last": "A call inside a thought counts if the turn contains nothing else.",
}
_IDS = {
    "nine": "Its templates require ids of nine letters and digits; the gateway gives past calls such ids.",
    "counted": "The id of a call is `functions.NAME:n`; the gateway gives past calls such ids.",
}


def formats_page(rows: Mapping[str, FormatSpec]) -> str:
    """Return the whole page in Markdown."""
    return "\n".join([_HEAD, *(f"## {name}\n\n{format_section(row)}\n" for name, row in rows.items())])


def format_section(row: FormatSpec) -> str:
    """Return the section of one format: its models, an example, and its peculiarities."""
    fence = "````" if "```" in row.example else "```"
    lines = [f"{row.families[:1].upper()}{row.families[1:]}.", "", f"{fence}text", row.example, fence]
    if facts := " ".join(_facts(row)):
        lines += ["", facts]
    return "\n".join(lines)


def format_table(rows: Mapping[str, FormatSpec]) -> str:
    """Return the formats as plain text in columns, one line each."""
    lines = [("NAME", "FAMILIES", "ALIASES")]
    lines += [(name, row.families, ", ".join(row.aliases)) for name, row in rows.items()]
    name_width, families_width = (max(len(line[column]) for line in lines) for column in (0, 1))
    return "\n".join(f"{a:{name_width}}  {b:{families_width}}  {c}".rstrip() for a, b, c in lines)


def _facts(row: FormatSpec) -> Iterator[str]:
    if row.aliases:
        yield f"Also called {', '.join(row.aliases)}."
    if isinstance(row.parse, Markup) and row.parse.thoughts:
        yield f"A thought begins with {' or '.join(f'`{tag.strip()}`' for tag in row.parse.thoughts)}."
        if row.parse.calls:
            yield _IN_THOUGHT[row.parse.in_thought]
    if row.special:
        yield "Its tags are special tokens; the gateway asks vLLM and SGLang to leave them in the text."
    if row.ids in _IDS:
        yield _IDS[row.ids]
    if row.differs:
        yield row.differs
