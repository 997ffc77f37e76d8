"""Test whole bodies: a text and its finish are kept as they are, anything else is normalized."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.events import Failure, Finish, Logprob, ReasoningDelta, TextDelta, ToolCallStart, Usage
from gateway.formats.parser import ParseContext
from gateway.pipeline.normalizer import Normalizer
from gateway.pipeline.upstream_reader import BodyBuffer, passes_unchanged
from gateway.sse import FrameTooLong
from gateway.warnings import Warnings
from support.pipeline import TOOLS, events_of, parser_settings, singly

LIKELY = Logprob("Hi", -0.5, None)
CONTEXTS = [ParseContext(TOOLS), ParseContext({}, prefill="Hi", echoed=True), ParseContext({}, prefill="Hi")]
USAGES = st.builds(Usage, st.integers(0, 9), st.integers(0, 9))
FINISHES = st.builds(Finish, st.integers(0, 1), st.sampled_from(["stop", "length", "tool_calls", "eos", "error", "?"]))
EVENTS = st.one_of(
    USAGES,
    FINISHES,
    st.builds(TextDelta, st.integers(0, 1), st.sampled_from(["", "Hi", "Hi there"]), st.sampled_from([(), (LIKELY,)])),
    st.builds(ReasoningDelta, st.just(0), st.just("Hm")),
    st.builds(ToolCallStart, st.just(0), st.just(0), st.just("c"), st.just("weather")),
)
ANSWERS = st.one_of(st.tuples(USAGES, EVENTS, FINISHES).map(list), st.lists(EVENTS, max_size=4))


def events_of_body(settings, body, **options):
    return events_of([json.dumps(body).encode()], settings, content_type="application/json", **options)


def body_of(text, finish="stop", **more):
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}, **more}


@given(ANSWERS, st.sampled_from(["native", "hermes_json"]), st.sampled_from(CONTEXTS))
def test_normalizer_keeps_only_events_that_feeding_would_not_change(events, format, context):
    ledger = Warnings()
    settings = replace(parser_settings(format, ledger=ledger), context=context)
    fed = Normalizer(settings)
    output = [event for one in events for event in fed.feed(one)]
    output += fed.close()
    if passes_unchanged(events, settings):
        assert (output, fed.has_finished(), ledger.entries()) == (events, True, [])


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_whole_body_of_a_text_and_its_finish_is_kept(finish):
    kept = [Usage(5, 2), TextDelta(0, "Hi"), Finish(0, finish)]
    assert passes_unchanged(kept, parser_settings("native"))
    assert events_of_body(parser_settings("native"), body_of("Hi", finish)) == kept


@pytest.mark.parametrize(
    ("settings", "body", "options", "expected_events", "noted"),
    [
        ({}, body_of("Hi", usage=None), {}, [TextDelta(0, "Hi"), Finish(0, "stop"), Usage(10, 1)], ["estimated:usage"]),
        ({}, body_of("Hi"), {"n": 2}, [Usage(5, 2), TextDelta(0, "Hi"), Finish(0, "stop")], ["unenforced:n"]),
        ({}, body_of("Hi", "tool_calls"), {}, [Usage(5, 2), TextDelta(0, "Hi"), Finish(0, "stop")], ["repaired:finish_reason"]),
        ({"context": CONTEXTS[1]}, body_of("Hi there"), {}, [Usage(5, 2), TextDelta(0, " there"), Finish(0, "stop")], []),
    ],
    ids=["no usage", "a choice too few", "another end", "a beginning that is repeated"],
)  # fmt: skip
def test_whole_body_of_another_shape_is_normalized(settings, body, options, expected_events, noted):
    ledger = Warnings()
    assert (
        events_of_body(replace(parser_settings("native", ledger=ledger), **settings), body, **options)
        == expected_events
    )
    assert ledger.entries() == noted


@pytest.mark.parametrize("pieces", [1, 2, 9])
def test_whole_body_that_is_too_long_is_a_failure(pieces):
    body = json.dumps(body_of("Hi")).encode()
    size = -(-len(body) // pieces)
    cut = [body[i : i + size] for i in range(0, len(body), size)]
    [event] = events_of(cut, parser_settings("native"), content_type="application/json", limit=64)
    assert isinstance(event, Failure)
    assert (event.problem.status, event.problem.code) == (502, "frame_too_long")


def test_whole_body_is_one_payload():
    body = BodyBuffer(10)
    body.append(b"01234")
    body.append(b"56789")
    assert body.close() == b"0123456789"
    assert body.close() == b""


def test_whole_body_longer_than_the_limit_is_refused():
    for pieces in ([b"0123456789x"], singly(b"0123456789x")):
        body = BodyBuffer(10)
        with pytest.raises(FrameTooLong, match=r"^The backend sent a body larger than the limit of 10 bytes\.$"):
            for piece in pieces:
                body.append(piece)
