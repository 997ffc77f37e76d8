"""Test that the stream of any order of events that events.py allows is valid and loses no content."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from gateway.events import ReasoningDelta, RefusalDelta, TextDelta, ToolArgsDelta, ToolCallStart, ToolInputDelta
from gateway.warnings import Warnings
from support.format_events import untraced
from support.response_strategies import OPTIONS, answers
from support.responses import (
    BROKE,
    FIELDS,
    LENGTH,
    NESTED,
    STOP,
    call,
    encoded,
)
from support.responses_events import checked, events_of
from support.sampling import examples


def joined(events, kind, field="text"):
    return "".join(getattr(event, field) for event in events if type(event) is kind)


@settings(max_examples=examples(300), deadline=None)
@given(events=answers(), options=OPTIONS)
@untraced
def test_stream_of_any_events_is_valid_and_complete(events, options):
    ledger = Warnings()
    response = checked(encoded(events, ledger=ledger, **options), {"token_ids"})
    whole = encoded(events, stream=False, **options)
    assert json.loads(whole or "null") == (None if BROKE in events else response)
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    text, wanted = "".join(part.get("text", "") for part in parts), joined(events, TextDelta)
    if "dropped:content" in ledger.entries():
        text, wanted = "".join(text.split()), "".join(wanted.split())
    assert text == wanted and "".join(part.get("refusal", "") for part in parts) == joined(events, RefusalDelta)
    thoughts = [item for item in response["output"] if item["type"] == "reasoning"]
    for name in ("summary", "content"):
        shown = "".join(part["text"] for item in thoughts for part in item.get(name, ()))
        assert shown in ("", joined(events, ReasoningDelta))
    assert all(json.loads(item["encrypted_content"]) for item in thoughts if options["sealed"])
    assert calls_in(response) == calls_of(events)


def calls_of(events):
    """Return id, kind and arguments of each tool call of the events."""
    found = []
    for event in events:
        if type(event) is ToolCallStart:
            found.append([event.id, event.kind, ""])
        elif type(event) in (ToolArgsDelta, ToolInputDelta):
            found[-1][2] += event.json if type(event) is ToolArgsDelta else event.text
    return found


def calls_in(response):
    """Return the same of a response."""
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


# The checks of streams

ONE_OF_EACH = [
    ReasoningDelta(0, "h"), ReasoningDelta(0, "m"), TextDelta(0, "he"), NESTED, TextDelta(0, "y"), RefusalDelta(0, "n"), RefusalDelta(0, "o"), *call("{", "}"),
    *call("i", "n", kind="custom", n=1, id="call_2"), *call('{"action": {"commands": []}}', kind="shell", n=2, id="call_3"),
]  # fmt: skip


def renumbered(events):
    frames = []
    for number, event in enumerate(events):
        frames.append(f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n")
    return "".join([*frames, "data: [DONE]\n\n"]).encode()


@pytest.mark.parametrize("end", [STOP, LENGTH, BROKE])
@pytest.mark.parametrize("operator", ["summary", "text"])
def test_stream_check_finds_a_missing_doubled_or_early_event(end, operator):
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
