"""Test the event log of a response: the events after a number, and the end that a cut log gets."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from openai.types.responses import ResponseCompactionCompactingEvent

from gateway.api.responses import LogReplay, event_stream, final_event
from gateway.api.responses.objects import encode
from gateway.errors import CANCELLED, Problem
from gateway.events import BuiltinItem, Failure, ReasoningDelta, RefusalDelta, TextDelta, ToolCallStart
from gateway.warnings import Warnings
from support.format_events import untraced
from support.response_strategies import OPTIONS, answers, hosted
from support.responses import (
    BROKE,
    FIELDS,
    HERE,
    KEEP_ALIVE,
    LENGTH,
    NESTED,
    STOP,
    call,
    done_here,
    encoded,
    entry,
    new_encoder,
)
from support.responses_events import checked, events_of
from support.sampling import examples, places

DIED = Problem(500, "The process that answered has died.", "server_error")
EXTRAS = {"token_ids"}
CHANCES = (entry("t", -1.0, "u"),)
# Every kind of item and part that can be open, and all that can come beside them.
EVERYTHING = [
    KEEP_ALIVE, ReasoningDelta(0, "h"), ReasoningDelta(0, "m"), TextDelta(0, "he", CHANCES), NESTED, TextDelta(0, "y"), KEEP_ALIVE,
    RefusalDelta(0, "n"), RefusalDelta(0, "o"), TextDelta(0, "b", CHANCES), hosted("ws_1"), *call("{", "}"), ReasoningDelta(0, "again"),
    *call("i", "n", kind="custom", n=1, id="call_2"), *call(json.dumps(FIELDS["shell"][1]), kind="shell", n=2, id="call_3"),
]  # fmt: skip


def ledger_with_warnings():
    """Return a ledger with two warnings, which a stream has before its last event."""
    ledger = Warnings()
    ledger.add("dropped", "service_tier")
    ledger.add("renamed", "tools.name")
    return ledger


def logged(events, **options):
    """Return the frames of a response, each event with the comment before it."""
    frames = []
    for frame in (
        encoded(events, ledger=ledger_with_warnings(), **options).removesuffix(event_stream.DONE).split(b"\n\n")[:-1]
    ):
        comment = frames.pop() if frames and frames[-1].startswith(b":") else b""
        frames.append(comment + frame + b"\n\n")
    return frames


def folded(pieces, **options):
    (created, *_) = event_stream.event_payloads(new_encoder(**options).start())
    fold = LogReplay(json.loads(created)["response"])
    for data in pieces:
        fold.feed(data)
    return fold


def broken_off(frames, problem=DIED, **options):
    """End a log that breaks off; return its response."""
    fold = folded(frames, **options)
    record, end = fold.fail(problem)
    response = checked(b"".join(frames) + end + fold.close(stored=True) + event_stream.DONE)
    assert response == json.loads(encode(record))
    return response


def last_type(frames):
    """Return the type of the last event."""
    return events_of(b"".join(frames) + event_stream.DONE)[-1]["type"]


# The end of a log that breaks off


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data(), events=answers(), options=OPTIONS, background=st.booleans())
@untraced
def test_log_cut_anywhere_gets_a_valid_end(data, events, options, background):
    options["background"] = background
    frames = logged(events, **options)
    frames = frames[: data.draw(st.integers(0, len(frames)))]
    fold = folded(frames, background=background)
    assert fold.next_event_number == len(frames)
    if fold.ended:
        assert fold.ended == checked(b"".join(frames) + event_stream.DONE, EXTRAS)
        return
    problem = data.draw(st.sampled_from([DIED, CANCELLED]))
    failed = problem is DIED or (frames and last_type(frames) == "error")
    assert broken_off(frames, problem, background=background)["status"] == ("failed" if failed else "cancelled")
    ends = sorted(data.draw(st.sets(st.integers(0, len(frames)), max_size=4)))
    other = folded((b"".join(frames[a:b]) for a, b in pairwise([0, *ends, len(frames)])), background=background)
    assert (other.next_event_number, other.has_output, *other.fail(problem)) == (
        fold.next_event_number,
        fold.has_output,
        *fold.fail(problem),
    )
    assert other.close(stored=True) == fold.close(stored=True)


@pytest.mark.parametrize("operator", ["summary", "text", "both", "hidden"])
@pytest.mark.parametrize("end", [STOP, LENGTH, BROKE])
def test_log_end_keeps_complete_items_unchanged(operator, end):
    frames = logged([*EVERYTHING, end], operator=operator, logprobs=True)
    *_, last = events_of(b"".join(frames) + event_stream.DONE)
    whole = last["response"]["output"]
    for place in places(len(frames)):
        response = broken_off(frames[:place])
        done = [frame for frame in frames[:place] if frame.startswith(b"event: response.output_item.done")]
        assert response["output"][: len(done)] == whole[: len(done)]
        assert len(response["output"]) <= len(done) + 1
    assert folded(frames).ended == last["response"]


def test_log_end_closes_an_open_message_as_incomplete():
    (message,) = broken_off(logged([TextDelta(0, "Hel"), TextDelta(0, "lo"), STOP])[:5])["output"]
    part = {"type": "output_text", "text": "Hel", "annotations": [], "logprobs": []}
    assert message == {"id": "msg_1", "type": "message", "role": "assistant", "status": "incomplete", "content": [part]}


@pytest.mark.parametrize(("frames", "wanted"), [(2, None), (3, []), (4, [""]), (5, ["a"]), (6, ["a"]), (7, ["a"])])
def test_log_end_keeps_the_parts_that_an_open_message_began(frames, wanted):
    output = broken_off(logged([TextDelta(0, "a"), STOP])[:frames])["output"]
    assert [[part["text"] for part in item["content"]] for item in output] == ([] if wanted is None else [wanted])


def test_log_end_shows_partial_reasoning_unsealed():
    frames = logged([ReasoningDelta(0, "a"), ReasoningDelta(0, "b"), STOP], operator="both", sealed=True)
    (item,) = broken_off(frames[:5])["output"]
    assert item["encrypted_content"] is None and item["status"] == "incomplete"
    assert [item[name][0]["text"] for name in ("summary", "content")] == ["a", "a"]
    (whole,) = folded(frames).ended["output"]
    assert whole["encrypted_content"]


def test_log_end_keeps_a_begun_tool_call_with_empty_arguments():
    frames = logged([ToolCallStart(0, 0, "call_1", "f"), BROKE])
    (item,) = broken_off(frames[:3])["output"]
    assert (item["name"], item["arguments"], item["status"]) == ("f", "", "incomplete")


@pytest.mark.parametrize("kind", FIELDS)
def test_log_end_keeps_a_tool_call_of_a_single_event_complete(kind):
    frames = logged([*call(json.dumps(FIELDS[kind][1]), kind=kind), STOP])
    assert last_type(frames[:3]) == "response.output_item.added"
    assert broken_off(frames[:3])["output"] == folded(frames).ended["output"]


@pytest.mark.parametrize("place", [3, 4])
def test_log_end_keeps_a_compaction_complete(place):
    item = {"id": "cmp_1", "type": "compaction", "status": "completed", "encrypted_content": "gw1.A"}
    frames = logged([BuiltinItem(0, Raw(json.dumps(item).encode())), TextDelta(0, "a"), STOP])
    ResponseCompactionCompactingEvent.model_validate(events_of(frames[3] + event_stream.DONE)[0], strict=True)
    record, end = folded(frames[:place]).fail(DIED)
    assert record["output"] == [item]
    done, error = events_of(end + event_stream.DONE)
    assert (done["type"], done["item"]) == ("response.output_item.done", item) and error["type"] == "error"
    assert [done["sequence_number"], error["sequence_number"]] == [place, place + 1]


@pytest.mark.parametrize("status", ["completed", "failed", None])
@pytest.mark.parametrize("type", HERE)
def test_log_end_keeps_the_last_status_of_a_hosted_item(type, status):
    pieces = ['{"a":', "1}"] if type == "mcp_call" else []
    frames = logged([*done_here(type, "ours_1", *pieces, run=type != "mcp_list_tools", status=status), BROKE])
    for place in range(3, len(frames) - 1):
        (item, *_) = broken_off(frames[:place])["output"]
        last = last_type(frames[:place]).rpartition(".")[2]
        wanted = {"completed": {"completed"}, "failed": {"failed"}, "done": {status, "incomplete"}}
        assert item.get("status", "incomplete") in wanted.get(last, {"incomplete"}) | {"incomplete"}


def test_log_end_does_not_repeat_an_error():
    frames = logged([TextDelta(0, "a"), Failure(Problem(429, "Slowly.", "slow_down", "input"))])[:-1]
    assert last_type(frames) == "error"
    for problem in (DIED, CANCELLED):
        response = broken_off(frames, problem)
        assert response["status"] == "failed"
        assert response["error"] == {"code": "rate_limit_exceeded", "message": "Slowly."}


def test_log_end_of_a_cancelled_response_has_no_error():
    response = broken_off(logged([TextDelta(0, "a"), STOP])[:5], CANCELLED)
    assert (response["status"], response["error"], len(response["output"])) == ("cancelled", None, 1)


@pytest.mark.parametrize("background", [False, True])
def test_log_without_events_gets_a_complete_end(background):
    fold = folded([], background=background)
    assert (fold.next_event_number, fold.has_output, fold.ended) == (0, False, None)
    assert broken_off([], background=background)["output"] == []


def test_log_end_of_a_deleted_response_has_store_false():
    frames = logged([TextDelta(0, "a"), STOP])[:5]
    fold = folded(frames)
    record, end = fold.fail(DIED)
    last = events_of(fold.close(stored=False) + event_stream.DONE)[0]
    assert last["response"] == {**record, "store": False} and last["sequence_number"] == fold.next_event_number
    assert fold.next_event_number == 5 + event_stream.count_events(end)


def test_log_without_its_beginning_keeps_its_complete_items():
    frames = logged([*EVERYTHING, STOP], logprobs=True)
    whole = folded(frames).ended["output"]
    ends = [place for place, frame in enumerate(frames) if frame.startswith(b"event: response.output_item.done")]
    for first in range(1, len(frames) - 1):
        fold = folded(frames[first:-1])
        record, end = fold.fail(DIED)
        assert fold.has_output and record["output"] == [
            item for item, place in zip(whole, ends, strict=True) if place >= first
        ]
        (error,) = events_of(end + event_stream.DONE)
        assert (error["type"], error["sequence_number"]) == ("error", len(frames) - 1)
    assert frames[2].startswith(b"event: response.in_progress") and folded(frames[2:3]).has_output


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled"])
def test_ending_event_has_the_status_of_the_response(status):
    (event,) = events_of(final_event({"id": "resp_1", "status": status}, 7) + event_stream.DONE)
    name = "failed" if status == "cancelled" else status
    assert event == {"type": f"response.{name}", "sequence_number": 7, "response": {"id": "resp_1", "status": status}}


# The content of a log


@pytest.mark.parametrize("frames", range(1, 5))
def test_log_records_whether_content_was_sent(frames):
    log_of = logged([KEEP_ALIVE, TextDelta(0, "a"), STOP])
    assert folded(log_of[:frames]).has_output is (frames == 4)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), events=answers())
def test_log_behind_a_number_has_only_later_events(data, events):
    frames = logged(events)
    first = data.draw(st.integers(0, len(frames)))
    some = frames[first : data.draw(st.integers(first, len(frames)))]
    joined = b"".join(some)
    assert event_stream.count_events(joined) == len(some)
    for after in range(-1, len(frames) + 1):
        assert event_stream.events_after(joined, first, after) == b"".join(some[max(after + 1 - first, 0) :])


def test_log_comment_belongs_to_the_event_after_it():
    *_, last = logged([STOP])
    number = json.loads(*event_stream.event_payloads(last))["sequence_number"]
    comment, _ = last.split(b"event:")
    assert comment == b": gateway-warnings dropped:service_tier, renamed:tools.name\n\n"
    assert (
        event_stream.events_after(comment, number, number - 1) == comment
        and event_stream.events_after(comment, number, number) == b""
    )
    assert (
        event_stream.events_after(last, number, number - 1) == last
        and event_stream.events_after(last, number, number) == b""
    )
    assert event_stream.warning_comments(last) == ["dropped:service_tier", "renamed:tools.name"]
    assert event_stream.warning_comments(logged([STOP])[0]) == [] and event_stream.count_events(comment) == 0
