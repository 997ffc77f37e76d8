"""Whatever a model says, in any order that events.py allows: the stream is a good one, and says that."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meaning import untraced
from msgspec import Raw
from pydantic import ValidationError
from responses_answers import (
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
    encoded,
    entry,
)
from responses_events import checked, events_of

from gateway import events as ev
from gateway.events import Finish, Reasoning, Refusal, Text, ToolArgs, ToolInput, ToolStart
from gateway.ledger import Ledger

WORDS = st.sampled_from(["a", " ", "\n\n", "é\n", '{"', "%b", " 😀"])
SIGNATURES = st.sampled_from(
    ["", "", '{"type": "thinking", "signature": "s"}', '{"type": "redacted_thinking", "data": "d"}']
)
CHANCES = st.sampled_from([(), (), (entry("t", -1, "u", "v"),)])
REMARKS = st.sampled_from([NESTED, ev.Annotation(0, Raw(json.dumps(FLAT).encode())), ev.Annotation(0, Raw(b"{}"))])
HOSTED = object()
OF_OURS = st.tuples(st.sampled_from([*HERE]), st.lists(WORDS, max_size=2), st.sampled_from(["completed", "failed"]))
APART = st.sampled_from(
    [KEEP_ALIVE, counted(3, 4), ev.Extra(0, "stop_reason", Raw(b"1")), ev.Extra(None, "token_ids", Raw(b"[1]"))]
)
SPOKEN = st.one_of(
    st.builds(Text, st.just(0), WORDS, CHANCES),
    st.builds(Text, st.just(0), st.just(""), st.just((entry("t", -1),))),
    st.builds(Reasoning, st.just(0), WORDS, SIGNATURES),
    st.builds(Reasoning, st.just(0), st.just(""), SIGNATURES.filter(bool)),
    st.builds(Refusal, st.just(0), WORDS, CHANCES),
    REMARKS,
    st.just(HOSTED),
)
ENDS = st.sampled_from([STOP, Finish(0, "tool_calls"), LENGTH, FILTER, BROKE])


def hosted(id):
    item = {"id": id, "type": "mcp_approval_request", "server_label": "s", "name": "f", "arguments": "{}"}
    return ev.HostedTool(0, Raw(json.dumps(item).encode()))


@st.composite
def calls(draw):
    """What `call` takes, but for its number."""
    kind = draw(st.sampled_from(["function", "function", "custom", *FIELDS]))
    said = {"kind": kind, "signature": draw(st.sampled_from(["", "s"]))}
    if kind in FIELDS:
        return [json.dumps(FIELDS[kind][1])], said
    pieces = draw(st.lists(WORDS, min_size=1 if kind == "function" else 0, max_size=3))
    return pieces, {**said, "namespace": draw(st.sampled_from(["", "mcp"])), "complete": draw(st.booleans())}


@st.composite
def answers(draw):
    """All that the grammar of events.py allows, with keep-alives, counts and extra fields in any place."""
    events, count = [], 0
    for said in draw(st.lists(st.one_of(SPOKEN, SPOKEN, calls(), OF_OURS), max_size=10)):
        if said is HOSTED:
            events.append(hosted(f"ws_{len(events)}"))
        elif isinstance(said, tuple) and len(said) == 3:
            type, pieces, status = said
            events += done_here(type, f"ours_{len(events)}", *pieces, status=status)
        elif isinstance(said, tuple):
            pieces, start = said
            events += call(*pieces, n=count, id=f"call_{count}", **start)
            count += 1
        else:
            events.append(said)
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


def joined(events, kind, field="text"):
    return "".join(getattr(event, field) for event in events if type(event) is kind)


@settings(max_examples=300, deadline=None)
@given(events=answers(), options=OPTIONS)
@untraced
def test_any_answer_is_a_good_stream_and_says_what_was_said(events, options):
    ledger = Ledger()
    response = checked(encoded(events, ledger=ledger, **options), {"token_ids"})
    whole = encoded(events, stream=False, **options)
    assert json.loads(whole or "null") == (None if BROKE in events else response)
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    said, wanted = "".join(part.get("text", "") for part in parts), joined(events, Text)
    if "dropped:content" in ledger.entries():
        said, wanted = "".join(said.split()), "".join(wanted.split())
    assert said == wanted and "".join(part.get("refusal", "") for part in parts) == joined(events, Refusal)
    thoughts = [item for item in response["output"] if item["type"] == "reasoning"]
    for name in ("summary", "content"):
        shown = "".join(part["text"] for item in thoughts for part in item.get(name, ()))
        assert shown in ("", joined(events, Reasoning))
    assert all(json.loads(item["encrypted_content"]) for item in thoughts if options["sealed"])
    assert called(response) == calls_of(events)


def calls_of(events):
    """Id, kind and what it is called with, of each call."""
    found = []
    for event in events:
        if type(event) is ToolStart:
            found.append([event.id, event.kind, ""])
        elif type(event) in (ToolArgs, ToolInput):
            found[-1][2] += event.json if type(event) is ToolArgs else event.text
    return found


def called(response):
    """The same of a response."""
    found = []
    for item in response["output"]:
        match item["type"]:
            case "function_call":
                found.append([item["call_id"], "function", item["arguments"]])
            case "custom_tool_call":
                found.append([item["call_id"], "custom", item["input"]])
            case type if (kind := type.removesuffix("_call")) in FIELDS:
                found.append([item["call_id"], kind, json.dumps({name: item[name] for name in FIELDS[kind][1]})])
    return found


# The checks themselves

ONE_OF_EACH = [
    Reasoning(0, "h"), Reasoning(0, "m"), Text(0, "he"), NESTED, Text(0, "y"), Refusal(0, "n"), Refusal(0, "o"), *call("{", "}"),
    *call("i", "n", kind="custom", n=1, id="call_2"), *call('{"action": {"commands": []}}', kind="shell", n=2, id="call_3"),
]  # fmt: skip


def renumbered(events):
    frames = []
    for number, event in enumerate(events):
        frames.append(f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n")
    return "".join([*frames, "data: [DONE]\n\n"]).encode()


@pytest.mark.parametrize("end", [STOP, LENGTH, BROKE])
@pytest.mark.parametrize("operator", ["summary", "text"])
def test_no_event_can_be_missing_or_doubled_or_early(end, operator):
    good = events_of(encoded([*ONE_OF_EACH, end], operator=operator))
    assert checked(renumbered(good)) == good[-1]["response"]
    bad = [good[:i] + good[i + 1 :] for i in range(len(good))]
    bad += [good[:i] + good[i : i + 1] + good[i:] for i in range(len(good)) if i != 1]
    bad += [
        [*good[:i], later, event, *good[i + 2 :]]
        for i, (event, later) in enumerate(pairwise(good))
        if {event["type"], later["type"]} != {"response.output_text.delta", "response.output_text.annotation.added"}
    ]
    for events in bad:
        with pytest.raises((AssertionError, RuntimeError, ValidationError, LookupError)):
            checked(renumbered(events))
