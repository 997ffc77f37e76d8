"""Parse a text in a format as data: from pieces of text to events for case files."""

import sys
from functools import wraps

from msgspec.structs import replace

from gateway.events import Finish, ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallEnd, ToolCallStart
from gateway.formats.parser import ParseContext
from gateway.pipeline.normalizer import Normalizer
from support.pipeline import TOOLS, merge, parser_settings

OFFERED = ParseContext(TOOLS)


def untraced(test):
    """Run a test without coverage: its many texts reach nothing new, and would take four times as long."""

    @wraps(test)
    def run(*args, **options):
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            return test(*args, **options)
        finally:
            sys.settrace(tracer)

    return run


def text_events(pieces, format="hermes_json", context=OFFERED, finish="stop", ledger=None, limit=8 << 20):
    """Return the events of a text in these pieces."""
    normalizer = Normalizer(replace(parser_settings(format, ledger=ledger, limit=limit), context=context))
    events = [event for piece in pieces if piece for event in normalizer.feed(TextDelta(0, piece))]
    return merge([*events, *normalizer.feed(Finish(0, finish)), *normalizer.close()])


def written(events):
    """Return events as a case file has them."""
    out = []
    for event in events:
        match event:
            case TextDelta() | ReasoningDelta():
                out.append([event.__struct_config__.tag.lower(), event.text])
            case ToolCallStart():
                out.append(["call", event.name, ""])
            case ToolArgsDelta():
                out[-1][2] += event.json
            case ToolCallEnd(complete=False):
                out[-1].append("incomplete")
    return out


def strings(events, kind):
    """Return all text, or all reasoning, of written events."""
    return "".join(event[1] for event in events if event[0] == kind)


def calls(events):
    """Return name and arguments of each call of written events."""
    return [tuple(event[1:3]) for event in events if event[0] == "call"]
