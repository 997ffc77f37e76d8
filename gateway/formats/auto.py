"""No format is known: thoughts and calls are recognised by the tags that any of the families would write.

Also the net under a backend that parses by itself and lets markup through.  What is no mark by itself, a bracket or a
word, counts at the beginning only, and a tag that a page of the web has as well does not.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from gateway.formats.format import Call, Context, Emit, Format, by_next
from gateway.formats.json_call import tagged
from gateway.formats.markup import THINK, Markup
from gateway.formats.reader import Reader, Step
from gateway.formats.row import Row

_Value = TypeVar("_Value")


def format(rows: Mapping[str, Row]) -> Format:
    """The format of what any of the rows may have written."""
    net = _net(rows)
    first = {tag: row.parse for row in rows.values() for tag in row.first if row.parse}

    def parse(read: Reader, emit: Emit, context: Context) -> Step:
        read.ends = net.ends
        tag = "" if context.thought_open else (yield from read.ahead(*first))
        chosen = first[tag] if tag else net
        return (yield from chosen(read, emit, context))

    return parse


def _net(rows: Mapping[str, Row]) -> Markup:
    """All tags in one Markup; where two families share one, what comes next decides, else the first of them."""
    markups = [row.parse for row in rows.values() if isinstance(row.parse, Markup)]
    calls = _first((tag, call) for markup in markups for tag, call in markup.calls.items())
    elements = {tag: call for tag, call in calls.items() if tag.endswith("=")}
    calls["<tool_call>"] = by_next({"{": tagged, "[": tagged, **elements}, _call(rows["glm47_xml"], "<tool_call>"))
    calls["<tool_calls>"] = by_next({"<tool_call>": _call(rows["hy_v3"], "<tool_call>")}, tagged)
    calls["[TOOL_CALLS]"] = _call(rows["mistral"], "[TOOL_CALLS]")
    before = _first((tag, tag) for markup in markups for tag in markup.before)
    return Markup(
        thoughts={**THINK, **_first(pair for markup in markups for pair in markup.thoughts.items())},
        calls=calls,
        before=tuple(tag for tag in before if tag not in calls),
        after=tuple(_first((tag, tag) for markup in markups for tag in markup.after)),
    )


def _call(row: Row, tag: str) -> Call:
    assert isinstance(row.parse, Markup)
    return row.parse.calls[tag]


def _first(tags: Iterable[tuple[str, _Value]]) -> dict[str, _Value]:
    """Tag → the first that was given with it, for tags that nobody but a model writes."""
    found: dict[str, _Value] = {}
    for tag, value in tags:
        if len(tag) > 3 and tag[0] in "<[]":
            found.setdefault(tag, value)
    return found
