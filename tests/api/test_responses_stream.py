"""Test the encoder of /v1/responses: the stream of events and the whole response that it makes of internal events.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from gateway import events as ev
from gateway.api.responses.encoder import ResponseBuilder
from gateway.errors import Problem
from gateway.events import Finish, Logprob, ReasoningDelta, RefusalDelta, TextDelta, ToolArgsDelta, ToolCallStart
from gateway.warnings import Warnings
from support.responses import (
    BEGUN,
    BROKE,
    FIELDS,
    FILTER,
    FLAT,
    KEEP_ALIVE,
    LENGTH,
    NESTED,
    STOP,
    call,
    counted,
    encoded,
    entry,
    new_encoder,
    whole_response,
)
from support.responses_events import checked, checked_whole, events_of


def outline(response):
    """Return each item as its type, its content and, if it is not completed, its status."""
    found: list[Any] = []
    for item in response["output"]:
        match item["type"]:
            case "message":
                content: list[Any] = [part.get("text", part.get("refusal")) for part in item["content"]]
            case "reasoning":
                content = [[part["text"] for part in item[name]] for name in ("summary", "content") if name in item]
            case "function_call":
                content = [item["call_id"], item["arguments"]]
            case type:
                content = [item["call_id"], item["input"]] if type == "custom_tool_call" else []
        found.append([item["type"], *content, *([] if item["status"] == "completed" else [item["status"]])])
    return found


# The worked examples


THOUGHT = [ReasoningDelta(0, "Let me "), ReasoningDelta(0, "think"), TextDelta(0, "42"), counted(10, 9, 7), STOP]
SEQUENCES = {
    "text": ([TextDelta(0, "Hel"), TextDelta(0, "lo"), STOP, counted(10, 2)], {}),
    "reasoning as text": (THOUGHT, {"carrier": "text"}),
    "reasoning as summary": (THOUGHT, {"sealed": True}),
    "text and two calls": (
        [
            TextDelta(0, "Checking."),
            *call('{"city":', '"Oslo"}', name="get_weather"),
            *call('{"city":"Rome"}', name="get_weather", n=1, id="call_2"),
            Finish(0, "tool_calls"),
            counted(60, 30),
        ],
        {},
    ),
    "a call cut by the limit": ([*call('{"ci', name="get_weather", complete=False), LENGTH, counted(60, 16)], {}),
    "refusal": ([RefusalDelta(0, "I cannot help with that."), STOP, counted(10, 6)], {}),
    "the upstream dies": ([TextDelta(0, "Hel"), BROKE], {}),
    "custom tool": (
        [*call("*** Begin", " Patch", name="apply_patch", kind="custom"), Finish(0, "tool_calls"), counted(60, 12)],
        {},
    ),
}


def written_sequences():
    """Yield the name and the events of each example as (type, members); a Response has only the members that differ."""
    text = Path(__file__).with_name("responses_sequences.txt").read_text()
    for block in text.split("\n\n"):
        name, *lines = block.strip().split("\n")
        events = [line.partition(" ") for line in lines]
        yield name.removeprefix("# "), [(type, json.loads(members)) for type, _, members in events]


@pytest.mark.parametrize(("name", "wanted"), [*written_sequences()], ids=SEQUENCES)
def test_stream_of_a_worked_example_has_the_expected_events(name, wanted):
    events, fields = SEQUENCES[name]
    data = encoded(events, seal=lambda _: "gw1.AAA", **fields)
    checked(data)
    output = [members["item"] for type, members in wanted if type == "output_item.done"]
    expected = []
    for number, (type, members) in enumerate(wanted):
        full = members
        if type in ("created", "in_progress"):
            full = {"response": BEGUN}
        elif type in ("completed", "incomplete", "failed"):
            full = {"response": {**BEGUN, **members, "output": output}}
        named = type if type == "error" else f"response.{type}"
        expected.append({"type": named, "sequence_number": number, **full})
    assert events_of(data) == expected


# Items and warnings


A, B = TextDelta(0, "a"), TextDelta(0, "b")
BLANK, THINK = TextDelta(0, "\n\n"), ReasoningDelta(0, "hm")
CALLED, CUT = call("{}"), call('{"a', complete=False)
OUTLINES = {
    "white space before text is text": ([BLANK, A, STOP], [["message", "\n\na"]]),
    "white space before a call is nothing": ([BLANK, *CALLED, STOP], [["function_call", "call_1", "{}"]]),
    "white space within a thought is nothing": ([THINK, BLANK, THINK, STOP], [["reasoning", ["hmhm"]]]),
    "white space between thought and text is text": (
        [THINK, BLANK, TextDelta(0, " "), A, STOP],
        [["reasoning", ["hm"]], ["message", "\n\n a"]],
    ),
    "white space before a refusal is nothing": ([BLANK, RefusalDelta(0, "no"), STOP], [["message", "no"]]),
    "white space within a message is text": ([A, BLANK, *CALLED, STOP], [["message", "a\n\n"], ["function_call", "call_1", "{}"]]),
    "white space at the end is text": ([THINK, BLANK, STOP], [["reasoning", ["hm"]], ["message", "\n\n"]]),
    "white space behind a call is nothing": ([*CALLED, BLANK, STOP], [["function_call", "call_1", "{}"]]),
    "white space before text behind a call is text": (
        [*CALLED, BLANK, A, STOP],
        [["function_call", "call_1", "{}"], ["message", "\n\na"]],
    ),
    "white space that the limit cut": ([BLANK, LENGTH], [["message", "\n\n", "incomplete"]]),
    "white space before a failure": ([BLANK, BROKE], [["message", "\n\n", "incomplete"]]),
    "a thought after text is another item": (
        [THINK, A, THINK, STOP],
        [["reasoning", ["hm"]], ["message", "a"], ["reasoning", ["hm"]]],
    ),
    "text after a call is another message": ([A, *CALLED, B, STOP], [["message", "a"], ["function_call", "call_1", "{}"], ["message", "b"]]),
    "a message of several parts": ([A, RefusalDelta(0, "no"), RefusalDelta(0, "pe"), B, STOP], [["message", "a", "nope", "b"]]),
    "nothing": ([STOP], [["message", ""]]),
    "nothing, and no room": ([LENGTH], [["message", "", "incomplete"]]),
    "nothing but a thought": ([THINK, STOP], [["reasoning", ["hm"]]]),
    "nothing but the beginning of a thought": ([THINK, LENGTH], [["reasoning", ["hm"], "incomplete"]]),
    "nothing but a failure": ([BROKE], []),
    "a cut call, then text": ([*CUT, A, LENGTH], [["function_call", "call_1", '{"a'], ["message", "a", "incomplete"]]),
    "a cut call, then another": (
        [*CUT, *call("{}", n=1, id="call_2"), STOP],
        [["function_call", "call_1", '{"a'], ["function_call", "call_2", "{}"]],
    ),
    "a cut call, then a good end": ([*CUT, STOP], [["function_call", "call_1", '{"a']]),
    "a cut call, then the limit": ([*CUT, LENGTH], [["function_call", "call_1", '{"a', "incomplete"]]),
    "a cut call, then a failure": ([*CUT, BROKE], [["function_call", "call_1", '{"a', "incomplete"]]),
    "a whole call, then the limit": ([*CALLED, LENGTH], [["function_call", "call_1", "{}"]]),
    "a custom call without input": ([*call(kind="custom"), STOP], [["custom_tool_call", "call_1", ""]]),
    "a failure amid a call": ([ToolCallStart(0, 0, "call_1", "f"), ToolArgsDelta(0, 0, "{"), BROKE], [["function_call", "call_1", "{", "incomplete"]]),
    "a failure before the fields of a call": ([ToolCallStart(0, 0, "call_1", "shell", "shell"), BROKE], []),
    "text that was filtered": ([A, FILTER], [["message", "a", "incomplete"]]),
}  # fmt: skip


@pytest.mark.parametrize(("events", "wanted"), OUTLINES.values(), ids=OUTLINES)
def test_events_become_items(events, wanted):
    assert outline(whole_response(*events)) == wanted


@pytest.mark.parametrize(
    ("events", "status", "reason"),
    [
        ([A, STOP], "completed", None),
        ([*CALLED, Finish(0, "tool_calls")], "completed", None),
        ([A, LENGTH], "incomplete", "max_output_tokens"),
        ([*CALLED, LENGTH], "incomplete", "max_output_tokens"),
        ([A, FILTER], "incomplete", "content_filter"),
        ([A, RefusalDelta(0, "no"), FILTER], "completed", None),
        ([RefusalDelta(0, "no"), LENGTH], "incomplete", "max_output_tokens"),
    ],
)
def test_finish_reason_becomes_a_status(events, status, reason):
    response = whole_response(*events)
    assert response["status"] == status and response["incomplete_details"] == (reason and {"reason": reason})
    assert response["completed_at"] == (1790000002 if status == "completed" else None)


@pytest.mark.parametrize(
    ("events", "fields", "entries"),
    [
        ([BLANK, A, STOP], {}, []),
        ([BLANK, *CALLED, STOP], {}, ["dropped:content"]),
        ([TextDelta(0, "", (Logprob("</s>", -1.0, None),)), STOP], {"logprobs": True}, ["dropped:logprobs"]),
        ([*CALLED, TextDelta(0, "", (Logprob("</s>", -1.0, None),)), STOP], {}, []),
        ([RefusalDelta(0, "no", (Logprob("no", -1.0, None),)), STOP], {"logprobs": True}, ["dropped:logprobs"]),
        ([RefusalDelta(0, "no", (Logprob("no", -1.0, None),)), STOP], {}, []),
        ([A, ev.Annotation(0, Raw(b'{"type": "file_path"}')), STOP], {}, ["dropped:annotations"]),
        ([A, ev.Annotation(0, Raw(b'"so they say"')), STOP], {}, ["dropped:annotations"]),
    ],
)
def test_warning_names_dropped_parts_before_the_last_event(events, fields, entries):
    ledger = Warnings()
    data = encoded(events, ledger=ledger, **fields)
    checked(data)
    assert ledger.entries() == entries
    *_, last, terminal, done, nothing = data.split(b"\n\n")
    assert (last == b": gateway-warnings " + ",".join(entries).encode()) is bool(entries)
    assert terminal.startswith(b"event: response.completed") and (done, nothing) == (b"data: [DONE]", b"")
    whole = Warnings()
    encoded(events, stream=False, ledger=whole, **fields)
    assert whole.take_unsent() == ", ".join(entries)


def test_logprobs_without_text_make_no_message():
    alone = TextDelta(0, "", (Logprob("</s>", -1.0, None),))
    assert outline(whole_response(*CALLED, alone, STOP, logprobs=True)) == [["function_call", "call_1", "{}"]]


# Tool calls


@pytest.mark.parametrize("kind", FIELDS)
def test_tool_call_of_a_built_in_tool_is_added_and_done_at_once(kind):
    id, fields = FIELDS[kind]
    data = encoded([A, *call(json.dumps(fields), kind=kind, name=kind), STOP])
    checked(data)
    item = {"id": id, "type": f"{kind}_call", "call_id": "call_1", "status": "in_progress", **fields}
    assert [(event["type"], event["item"]) for event in events_of(data)[-3:-1]] == [
        ("response.output_item.added", item),
        ("response.output_item.done", {**item, "status": "completed"}),
    ]
    whole_response(A, *call(json.dumps(fields), kind=kind), LENGTH)


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_tool_call_has_its_namespace_and_signature(kind):
    (item,) = whole_response(*call("{}", kind=kind, namespace="mcp", signature="sig"), STOP)["output"]
    assert item["namespace"] == "mcp" and item["provider_specific_fields"] == {"thought_signature": "sig"}
    (plain,) = whole_response(*call("{}", kind=kind), STOP)["output"]
    assert item.keys() - plain.keys() == {"namespace", "provider_specific_fields"}


@pytest.mark.parametrize("kind", FIELDS)
def test_tool_call_of_a_built_in_tool_has_its_signature(kind):
    _, fields = FIELDS[kind]
    (item,) = whole_response(*call(json.dumps(fields), kind=kind, signature="sig"), STOP)["output"]
    assert item["provider_specific_fields"] == {"thought_signature": "sig"} and "namespace" not in item


def test_hosted_tool_item_is_passed_unchanged():
    item = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}
    hosted = ev.BuiltinItem(0, Raw(json.dumps(item).encode()))
    response = whole_response(THINK, BLANK, hosted, A, STOP)
    assert [one["type"] for one in response["output"]] == ["reasoning", "web_search_call", "message"]
    assert response["output"][1] == item


# Reasoning

SHOWN = {
    "summary": [["hmhm"]],
    "text": [[], ["hmhm"]],
    "both": [["hmhm"], ["hmhm"]],
    "hidden": [[]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "client", "carrier"),
    [
        ("summary", None, "summary"),
        ("text", None, "text"),
        ("both", None, "both"),
        ("hidden", None, "hidden"),
        ("summary", "text", "text"),
        ("both", "text", "text"),
        ("hidden", "text", "hidden"),
        ("summary", "summary", "summary"),
        ("text", "summary", "summary"),
        ("both", "summary", "both"),
        ("hidden", "summary", "hidden"),
    ],
)
def test_reasoning_is_in_the_field_that_operator_and_client_choose(operator, client, carrier):
    response = whole_response(THINK, KEEP_ALIVE, THINK, STOP, operator=operator, carrier=client)
    assert outline(response) == [["reasoning", *SHOWN[carrier]]]
    sealed = '["hmhm", "m"]' if carrier == "hidden" else None  # the model gets back what no client can read
    assert response["output"][0]["encrypted_content"] == sealed


def encrypted(*events, **fields):
    data = encoded([*events, STOP], **fields)
    items = [event["item"] for event in events_of(data) if event["type"].startswith("response.output_item")]
    assert items[0]["encrypted_content"] is None
    (item,) = checked(data)["output"]
    return json.loads(item["encrypted_content"])


@pytest.mark.parametrize("operator", SHOWN)
def test_reasoning_is_sealed_if_requested(operator):
    assert encrypted(THINK, THINK, operator=operator, sealed=True) == ["hmhm", "m"]


def test_reasoning_that_was_signed_is_always_sealed():
    signed, hidden = {"type": "thinking", "signature": "s"}, {"type": "redacted_thinking", "data": "d"}
    events = [
        ReasoningDelta(0, "a"), ReasoningDelta(0, "b", json.dumps(signed)), ReasoningDelta(0, "", json.dumps(hidden)),
        ReasoningDelta(0, "c"), ReasoningDelta(0, "", json.dumps(signed)), ReasoningDelta(0, "d"),
    ]  # fmt: skip
    assert encrypted(*events) == ["abcd", {**signed, "thinking": "ab"}, hidden, {**signed, "thinking": "c"}, "m"]
    assert encrypted(ReasoningDelta(0, "", json.dumps(hidden)), operator="both") == ["", hidden, "m"]


# Log probabilities, annotations and padding


def test_logprobs_are_shown_only_if_requested():
    events = [
        TextDelta(0, "he", (entry("h", -0.5, "x"), entry("e", -0.25))),
        TextDelta(0, "y"),
        TextDelta(0, "!", (entry("!", -1),)),
        STOP,
    ]
    data = encoded(events, logprobs=True)
    top = {"token": "x", "logprob": -9.0}
    wanted = [
        {"token": "h", "logprob": -0.5, "top_logprobs": [top]},
        {"token": "e", "logprob": -0.25, "top_logprobs": []},
        {"token": "!", "logprob": -1.0, "top_logprobs": []},
    ]
    found = {event["type"]: [] for event in events_of(data)}
    for event in events_of(data):
        found[event["type"]].append(event.get("logprobs"))
    assert found["response.output_text.delta"] == [wanted[:2], [], wanted[2:]]
    assert found["response.output_text.done"] == [wanted]
    (message,) = events_of(data)[-1]["response"]["output"]
    bare = [{**one, "bytes": []} for one in wanted]
    bare[0]["top_logprobs"] = [{**top, "bytes": [120]}]
    assert message["content"][0]["logprobs"] == bare
    (message,) = whole_response(*events)["output"]
    assert message["content"][0]["logprobs"] == []


def test_annotation_is_flattened_and_belongs_to_the_text_before_it():
    other = {**FLAT, "url": "http://b"}
    flat = ev.Annotation(0, Raw(json.dumps(other).encode()))
    (message,) = whole_response(A, NESTED, B, flat, STOP)["output"]
    assert message["content"] == [{"type": "output_text", "text": "ab", "annotations": [FLAT, other], "logprobs": []}]
    assert outline(whole_response(BLANK, NESTED, STOP)) == [["message", "\n\n"]]


def test_annotation_after_its_message_is_not_lost():
    response = whole_response(A, *CALLED, NESTED, STOP)
    assert outline(response) == [["message", "a"], ["function_call", "call_1", "{}"], ["message", ""]]
    assert response["output"][2]["content"][0]["annotations"] == [FLAT]
    (message,) = whole_response(A, RefusalDelta(0, "no"), NESTED, STOP)["output"]
    assert [part.get("annotations") for part in message["content"]] == [[], None, [FLAT]]


def test_obfuscation_is_on_deltas_if_requested():
    every = [THINK, A, RefusalDelta(0, "no"), *CALLED, *call("in", kind="custom", n=1, id="call_2"), STOP]
    padded = [event for event in events_of(encoded(every, obfuscation=True)) if event["type"].endswith(".delta")]
    assert [event.pop("obfuscation") for event in padded] == ["xx"] * 5
    assert padded == [event for event in events_of(encoded(every)) if event["type"].endswith(".delta")]
    checked(encoded(every, obfuscation=True))


# The response


def test_usage_is_the_last_count():
    response = whole_response(counted(10, 1), A, STOP, ev.Usage(10, 5, cached=4, reasoning=3))
    assert response["usage"] == {
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 15,
    }  # fmt: skip
    assert whole_response(A, STOP)["usage"] is None


def test_keep_alive_repeats_the_response_in_progress():
    data = encoded([KEEP_ALIVE, counted(1, 1), A, KEEP_ALIVE, B, STOP, KEEP_ALIVE])
    checked(data)
    assert [event["type"] for event in events_of(data)].count("response.in_progress") == 4
    out = new_encoder(stream=False)
    assert out.start() == out.keep_alive() == b""


@pytest.mark.parametrize(
    ("status", "code", "wanted"),
    [
        (502, "upstream_lost", "server_error"),
        (503, "server_is_overloaded", "server_error"),
        (500, None, "server_error"),
        (429, None, "rate_limit_exceeded"),
        (429, "insufficient_quota", "insufficient_quota"),
        (400, "context_length_exceeded", "context_length_exceeded"),
        (400, None, "invalid_prompt"),
        (404, "model_not_found", "invalid_prompt"),
    ],
)
def test_error_gets_a_code_that_tells_whether_to_retry(status, code, wanted):
    problem = Problem(status, "why", code, "input")
    data = encoded([A, counted(1, 1), ev.Failure(problem)])
    response = checked(data)
    error = {"code": code, "message": "why", "param": "input"}
    assert events_of(data)[-2].items() >= {"type": "error", **error, "error": {"type": problem.type, **error}}.items()
    assert response["error"] == {"code": wanted, "message": "why"} and response["usage"]["total_tokens"] == 2
    assert encoded([A, ev.Failure(problem)], stream=False) == b""


def test_extra_fields_belong_to_the_response():
    events = [
        ev.ExtraField(None, "prompt_token_ids", Raw(b"[1]"), asked=True), ev.ExtraField(0, "token_ids", Raw(b"[2]"), asked=True),
        A, ev.ExtraField(0, "token_ids", Raw(b"[3]"), asked=True), B, ev.ExtraField(0, "stop_reason", Raw(b'"x"')), STOP,
    ]  # fmt: skip
    extras = {"prompt_token_ids": [1], "token_ids": [2, 3]}
    response = checked(encoded(events), extras)
    assert response == {**whole_response(A, B, STOP), **extras}
    assert checked_whole(encoded(events, stream=False), extras) == response


def test_encoder_handles_every_event():
    assert set(ev.Event.__args__) == set(ResponseBuilder._arms)
