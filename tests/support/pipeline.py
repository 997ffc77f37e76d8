"""Helpers for tests of the core: ways to cut, the meaning of a list of events, and a path from bytes to events."""

import json
from itertools import count

from hypothesis import strategies as st

from gateway.backends.openai.decoder import ChatDecoder
from gateway.events import (
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolInputDelta,
)
from gateway.formats import FORMATS
from gateway.formats.parser import ParseContext
from gateway.pipeline.tool_calls import ParserSettings
from gateway.pipeline.upstream_reader import UpstreamReader
from gateway.warnings import Warnings

DONE = b"data: [DONE]\n\n"
TOOLS = {
    "f": {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}, "o": {}}},
    "g": {},
    "u": {
        "properties": {
            "l": {"type": ["integer", "null", 5]},
            "e": {"enum": [1, "one"]},
            "x": {"anyOf": [{"type": "number"}, {"type": "string"}, 7]},
            "s": 7,
        }
    },
    "v": {"properties": []},
}
EVENT_STREAM = "text/event-stream; charset=utf-8"


def cut(data, whole):
    """Cut bytes at drawn places."""
    places = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=12)))
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


def singly(whole):
    """Cut bytes into single ones."""
    return [whole[i : i + 1] for i in range(len(whole))]


def merge(events):
    """Return the same events without a trace of their chunks."""
    out = []
    for e in events:
        last = out[-1] if out else None
        same = type(e) is type(last) and getattr(e, "choice", None) == getattr(last, "choice", None)
        if same and type(e) in (TextDelta, RefusalDelta):
            out[-1] = type(e)(e.choice, last.text + e.text, last.logprobs + e.logprobs)
        elif same and type(e) is ReasoningDelta and not last.signature:
            out[-1] = ReasoningDelta(e.choice, last.text + e.text, e.signature)
        elif same and type(e) is ToolArgsDelta:
            out[-1] = ToolArgsDelta(e.choice, e.call, last.json + e.json)
        elif same and type(e) is ToolInputDelta:
            out[-1] = ToolInputDelta(e.choice, e.call, last.text + e.text)
        else:
            out.append(e)
    return out


def grammatical(events):
    """Check the promise of events.py for one choice; return True if it has its Finish."""
    open_call, calls, finished = None, 0, False
    for e in events:
        assert not finished
        if type(e) is ToolCallStart:
            assert open_call is None and e.call == calls and e.id and e.name
            open_call, calls = e.call, calls + 1
        elif type(e) in (ToolArgsDelta, ToolInputDelta):
            assert e.call == open_call
        elif type(e) is ToolCallEnd:
            assert e.call == open_call
            open_call = None
        else:
            assert open_call is None
            finished = type(e) is Finish
    return finished and open_call is None


def parser_settings(
    format="hermes_json", *, tools=TOOLS, thought_open=False, ledger=None, taken=frozenset(), limit=8 << 20
):
    """Return the settings of a parser."""
    new_id = map("call_{}".format, count()).__next__
    context = ParseContext(tools, thought_open)
    return ParserSettings(FORMATS[format].parse, context, new_id, ledger or Warnings(), taken, limit)


def upstream(settings=None, *, filters=(), n=1, wanted=frozenset(), content_type=EVENT_STREAM, limit=8 << 20):
    """Return a reader of an upstream's response."""
    settings = settings or parser_settings()
    up = UpstreamReader(ChatDecoder(settings.ledger, n, wanted), settings, lambda: 40, filters, limit)
    up.set_content_type(content_type)
    return up


def events_of(pieces, settings=None, **options) -> list[Event]:
    """Return the events of a response in these pieces."""
    up = upstream(settings, **options)
    return merge([*(e for piece in pieces for e in up.feed(piece)), *up.close()])


def chunk(finish=None, index=0, logprobs=None, **delta):
    """Return the frame of a chunk."""
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    if logprobs is not None:
        choice["logprobs"] = logprobs
    return sse({"choices": [choice]})


def sse(payload):
    """Return a frame."""
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def call(index=None, id=None, name=None, arguments=None):
    """Return a piece of a tool call."""
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}


def payloads(data: bytes):
    """Return the JSON payloads of a stream."""
    return [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
