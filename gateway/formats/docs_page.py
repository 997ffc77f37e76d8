"""Generate docs/formats.md from the table of formats."""

from collections.abc import Iterator, Mapping

from gateway.formats.markup import Markup
from gateway.formats.spec import FormatSpec

_HEAD = """\
# Formats

What a model may write, by the name that goes to `models.*.format`.  With `format: auto` users need not know: the name
of the model decides, then its chat template where the server shows it, then the tags that the model writes.  This page
is made by `gateway formats --markdown`.

What holds for all of them:

- However the text is cut into chunks, the result is the same, and a whole answer is the fold of a streamed one.  Two
  rules below treat whole answers otherwise: those of closing tags without an opening tag, and of another format.
- White space inside the opening tag of a thought, and around all tags in the text (16 characters before one, at most),
  belongs to the tags.  What stands before the end of a thought is kept as the model wrote it.
- A thought that is never closed is a thought to its end.  Its opening tag, repeated inside, is dropped, and so is a
  closing tag right at the beginning of the text, after a thought or after a call; any other is text.
- A closing tag whose opening tag the server has taken out (llama.cpp, LM Studio, other OpenAI-compatible servers) ends
  a thought if a line end or the end follows.  All text before it is reasoning in a whole answer.  A stream drops it.
- Where no tools were offered, or none may be called, the tags of calls are text.  Names that were not offered are
  passed on, and listed, unless they mean exactly one offered tool (`Get-Weather`, `functions.get_weather:0`).  Text
  before, between and after calls is content.
- What a tag announces and is no call is text with its tag.  Arguments that end early get the brackets that they lack,
  if their last value is complete.  A value that was cut stays cut, and other arguments beyond repair stay as they came:
  both are reported as `invalid:tool_calls.function.arguments`, unless the token limit cut the call.
- Arguments that are JSON and fit the tool's schema are passed on byte for byte.  Others are repaired, and reported as
  `repaired:tool_calls.function.arguments`.  Values without a type of their own get that of the tool's schema; a
  parameter that may only be a string is one, whatever it looks like.
- A parameter that comes several times in a row between tags is sent once, with its last value.
- A call in Python begins when all of it was read.  A call with a value that is no literal is text, and is reported as
  `unread:tool_calls=FORMAT`.
- If an answer calls no tool, but its text has a call in another format, the call counts where `format: auto` may still
  read it: in whole answers.  Elsewhere it is reported as `unread:tool_calls=FORMAT`.
- Code fences right around calls, and a brace too many behind one, fall away.
- If text stands on both sides of a call, a line end parts the two, unless white space does.
- Tokens like `<|im_end|>` fall away at the end of a turn, and only there.
"""
_IN_THOUGHT = {
    "end": "A call of a tool that was offered ends a thought, unless the closing tag of the thought and more follow.",
    "text": "A call inside a thought is a part of it.",
    "last": "A call inside a thought counts if the turn brings nothing else.",
}
_IDS = {
    "nine": "Its templates take ids of nine letters and digits, so past calls that have others are sent with such.",
    "counted": "The id of a call is `functions.NAME:n`, so past calls that have others are sent with such.",
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
        yield "Its tags are special tokens, so vLLM and SGLang are asked to leave them in the text."
    if row.ids in _IDS:
        yield _IDS[row.ids]
    if row.differs:
        yield row.differs
