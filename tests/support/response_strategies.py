"""Hypothesis strategies for responses: any output of a model, in any order that events.py allows."""

import json

from hypothesis import strategies as st
from msgspec import Raw

from gateway import events as ev
from gateway.events import Finish, ReasoningDelta, RefusalDelta, TextDelta
from support.responses import (
    BROKE,
    FIELDS,
    FILTER,
    FLAT,
    HERE,
    KEEP_ALIVE,
    LENGTH,
    NESTED,
    STOP,
    call,
    counted,
    done_here,
    entry,
)

WORDS = st.sampled_from(["a", " ", "\n\n", "é\n", '{"', "%b", " 😀"])

SIGNATURES = st.sampled_from(
    ["", "", '{"type": "thinking", "signature": "s"}', '{"type": "redacted_thinking", "data": "d"}']
)

CHANCES = st.sampled_from([(), (), (entry("t", -1, "u", "v"),)])

REMARKS = st.sampled_from([NESTED, ev.Annotation(0, Raw(json.dumps(FLAT).encode())), ev.Annotation(0, Raw(b"{}"))])

HOSTED = object()

OF_OURS = st.tuples(st.sampled_from([*HERE]), st.lists(WORDS, max_size=2), st.sampled_from(["completed", "failed"]))

APART = st.sampled_from(
    [
        KEEP_ALIVE,
        counted(3, 4),
        ev.ExtraField(0, "stop_reason", Raw(b"1")),
        ev.ExtraField(None, "token_ids", Raw(b"[1]")),
    ]
)

CONTENT_EVENTS = st.one_of(
    st.builds(TextDelta, st.just(0), WORDS, CHANCES),
    st.builds(TextDelta, st.just(0), st.just(""), st.just((entry("t", -1),))),
    st.builds(ReasoningDelta, st.just(0), WORDS, SIGNATURES),
    st.builds(ReasoningDelta, st.just(0), st.just(""), SIGNATURES.filter(bool)),
    st.builds(RefusalDelta, st.just(0), WORDS, CHANCES),
    REMARKS,
    st.just(HOSTED),
)

ENDS = st.sampled_from([STOP, Finish(0, "tool_calls"), LENGTH, FILTER, BROKE])


def hosted(id):
    """Return the event of an item that is complete at once."""
    item = {"id": id, "type": "mcp_approval_request", "server_label": "s", "name": "f", "arguments": "{}"}
    return ev.BuiltinItem(0, Raw(json.dumps(item).encode()))


@st.composite
def calls(draw):
    """Draw the arguments of `call`, except for its number."""
    kind = draw(st.sampled_from(["function", "function", "custom", *FIELDS]))
    members = {"kind": kind, "signature": draw(st.sampled_from(["", "s"]))}
    if kind in FIELDS:
        return [json.dumps(FIELDS[kind][1])], members
    pieces = draw(st.lists(WORDS, min_size=1 if kind == "function" else 0, max_size=3))
    return pieces, {**members, "namespace": draw(st.sampled_from(["", "mcp"])), "complete": draw(st.booleans())}


@st.composite
def answers(draw):
    """Draw events that the grammar of events.py allows, with keep-alives, counts and extra fields in any place."""
    events, count = [], 0
    for block in draw(st.lists(st.one_of(CONTENT_EVENTS, CONTENT_EVENTS, calls(), OF_OURS), max_size=10)):
        if block is HOSTED:
            events.append(hosted(f"ws_{len(events)}"))
        elif isinstance(block, tuple) and len(block) == 3:
            type, pieces, status = block
            events += done_here(type, f"ours_{len(events)}", *pieces, status=status)
        elif isinstance(block, tuple):
            pieces, start = block
            events += call(*pieces, n=count, id=f"call_{count}", **start)
            count += 1
        else:
            events.append(block)
    events.append(draw(ENDS))
    for place in draw(st.sets(st.integers(0, len(events) - 1), max_size=4)):
        events.insert(place, draw(APART))
    return events


OPTIONS = st.fixed_dictionaries(
    {
        "operator": st.sampled_from(["summary", "text", "both", "hidden"]),
        "carrier": st.sampled_from([None, "summary", "text"]),
        **dict.fromkeys(("sealed", "logprobs", "obfuscation"), st.booleans()),
    }
)
