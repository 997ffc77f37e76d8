"""Test the decoder of Anthropic's messages: whole and streamed, at any cuts, for clients of each API."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.backends.anthropic.decoder import MessageDecoder
from gateway.errors import Problem
from gateway.events import (
    NATIVE_BLOCK,
    NATIVE_END,
    NATIVE_USAGE,
    Annotation,
    ExtraField,
    Failure,
    Finish,
    Media,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from gateway.formats.parser import ParseContext
from gateway.pipeline.tool_calls import ParserSettings
from gateway.pipeline.upstream_reader import UpstreamReader
from gateway.sse import SSE
from gateway.warnings import Warnings
from support.anthropic_server import event, frames, message, text, thinking, tool_use
from support.pipeline import cut, merge, singly
from support.sampling import examples

TOOLS = {"f": {"properties": {"a": {"type": "integer"}}}, "g": {}}
COUNTED = Usage(10, 9, 3, 0, 2)
SIGNED = '{"type":"thinking","signature":"c2ln"}'
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
PLACE = {"type": "char_location", "cited_text": "a", "document_index": 0, "start_char_index": 0, "end_char_index": 1}
SUMMARY = {"type": "compaction", "content": "All so far."}
EVERYTHING = message(
    thinking("hm hm"),
    {"type": "redacted_thinking", "data": "cmVk"},
    text("Hello there", citations=[PLACE]),
    SEARCH,
    FOUND,
    text("and"),
    tool_use("f", a=1),
    tool_use("g", id="toolu_2"),
    reason="tool_use",
)


def reader(*, native=False, ledger=None):
    ledger = Warnings() if ledger is None else ledger
    parser_settings = ParserSettings(None, ParseContext(TOOLS), lambda: "call_new", ledger)
    return UpstreamReader(MessageDecoder(ledger, native=native), parser_settings, lambda: 8)


def read(*pieces, content_type="text/event-stream", **options):
    """Return the events of a body that arrives in these pieces."""
    upstream = reader(**options)
    upstream.set_content_type(content_type)
    events = [made for piece in pieces for made in upstream.feed(piece)]
    return events + upstream.close()


def whole(body, **options):
    return read(json.dumps(body).encode(), content_type="application/json", **options)


def stream(body, size=3):
    return b"".join(frames(body, size))


def decode(*payloads, native=False, ledger=None):
    """Return the raw events of payloads."""
    decoder = MessageDecoder(Warnings() if ledger is None else ledger, native=native)
    return [made for payload in payloads for made in decoder.decode(json.dumps(payload).encode())]


def start(index, block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, type, **members):
    return {"type": "content_block_delta", "index": index, "delta": {"type": type, **members}}


def stop(index):
    return {"type": "content_block_stop", "index": index}


def content(events):
    """Return the events of the content, without pieces and without the usage."""
    return [one for one in merge(events) if not isinstance(one, Usage)]


def shown(events):
    """Return the text of the events."""
    return "".join(one.text for one in events if isinstance(one, TextDelta))


# Chunks


@pytest.mark.parametrize("native", [False, True])
@given(data=st.data(), size=st.integers(1, 9))
@settings(max_examples=examples(40), deadline=None)
def test_message_stream_means_the_same_at_any_cuts(data, size, native):
    sent = stream(EVERYTHING, size)
    assert merge(read(*cut(data, sent), native=native)) == merge(read(sent, native=native))


@pytest.mark.parametrize("native", [False, True])
def test_message_stream_means_the_same_in_single_bytes(native):
    sent = stream(EVERYTHING)
    assert merge(read(*singly(sent), native=native)) == merge(read(sent, native=native))


def test_message_stream_means_the_same_as_the_whole_message():
    assert content(read(stream(EVERYTHING))) == content(whole(EVERYTHING))


def test_message_deltas_of_a_known_form_are_read_together():
    decoder = MessageDecoder(Warnings())
    frame = lambda word: event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})  # noqa: E731
    feed = SSE(1 << 20)
    for payload in feed.feed(event("content_block_start", index=0, content_block=text("")) + frame("Hel")):
        decoder.decode(payload)
    data = frame("lo") + frame(" \\ ") + frame("you")
    events, until = decoder.run(data + event("content_block_stop", index=0), 0, feed)
    assert (events, until) == ([TextDelta(0, word) for word in ("lo", " \\ ", "you")], len(data))
    assert decoder.single_chunk_decoder(1000)(frame("!")) == (TextDelta(0, "!"),)
    assert decoder.decoded_characters == len("Hello \\ you!")


# Blocks


def test_message_blocks_become_events():
    ledger = Warnings()
    assert content(whole(EVERYTHING, ledger=ledger)) == [
        ReasoningDelta(0, "hm hm", SIGNED),
        ReasoningDelta(0, "", '{"type":"redacted_thinking","data":"cmVk"}'),
        TextDelta(0, "Hello thereand"),
        ToolCallStart(0, 0, "toolu_up", "f"),
        ToolArgsDelta(0, 0, '{"a": 1}'),
        ToolCallEnd(0, 0),
        ToolCallStart(0, 1, "toolu_2", "g"),
        ToolArgsDelta(0, 1, "{}"),
        ToolCallEnd(0, 1),
        Finish(0, "tool_calls"),
    ]
    assert ledger.entries() == [
        "dropped:content.citations",
        "dropped:content.server_tool_use",
        "dropped:content.web_search_tool_result",
        "estimated:usage.reasoning_tokens",
    ]


def test_message_blocks_reach_a_client_of_the_same_api_unchanged():
    ledger = Warnings()
    events = [one for one in merge(read(stream(EVERYTHING), native=True, ledger=ledger)) if not _counts(one)]
    assert [type(one) for one in events].count(ExtraField) == 7  # the start of each block with events, and the end
    kept = [one for one in events if not isinstance(one, ExtraField)]
    assert kept == [
        ReasoningDelta(0, "hm hm", '{"type":"thinking","signature":"c2ln","unsealed":true}'),
        ReasoningDelta(0, "", '{"type":"redacted_thinking","data":"cmVk","unsealed":true}'),
        TextDelta(0, "Hello there"),
        Annotation(0, kept[3].json),
        Media(0, kept[4].json, "blocks"),
        Media(0, kept[5].json, "blocks"),
        TextDelta(0, "and"),
        *kept[7:],
    ]
    assert [json.loads(bytes(one.json)) for one in kept[3:6]] == [PLACE, SEARCH, FOUND]
    assert ledger.entries() == []


def _counts(one):
    return isinstance(one, Usage) or (isinstance(one, ExtraField) and one.name == NATIVE_USAGE)


def test_message_members_beyond_the_events_go_beside_them():
    called = {**tool_use("f"), "caller": {"type": "direct"}}
    events = decode(start(0, called), stop(0), native=True)
    (extra,) = [one for one in events if isinstance(one, ExtraField)]
    assert (extra.name, json.loads(bytes(extra.json))) == (NATIVE_BLOCK, {"caller": {"type": "direct"}})
    ended = {"stop_reason": "pause_turn", "container": {"id": "c"}}
    events = decode(
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 2, "iterations": []}}, native=True
    )
    named = {one.name: json.loads(bytes(one.json)) for one in events if isinstance(one, ExtraField)}
    assert named == {NATIVE_END: ended, NATIVE_USAGE: {"output_tokens": 2, "iterations": []}}


def test_message_block_of_an_unknown_type_is_put_together():
    pieces = start(0, {**SUMMARY, "content": ""}), delta(0, "compaction_delta", content="All ", seen=1)
    events = decode(*pieces, delta(0, "compaction_delta", content="so far."), stop(0), native=True)
    assert [json.loads(bytes(one.json)) for one in events] == [{**SUMMARY, "seen": 1}]
    events = decode(start(0, SEARCH), delta(0, "input_json_delta", partial_json='{"que'), stop(0), native=True)
    assert json.loads(bytes(events[0].json)) == {**SEARCH, "input": {}}


BROKEN = {
    "text without its block": ([delta(3, "text_delta", text="a")], [TextDelta(0, "a")]),
    "arguments without their call": ([delta(3, "input_json_delta", partial_json="{}")], []),
    "a delta of a new type": ([start(0, text("a")), delta(0, "mood_delta", mood="b")], [TextDelta(0, "a")]),
    "no delta": ([{"type": "content_block_delta", "index": 0}], []),
    "no block": ([{"type": "content_block_start", "index": 0}, stop(0)], []),
    "an event of a new type": ([{"type": "mood"}, {"type": "ping"}], []),
    "no encrypted data": ([start(0, {"type": "redacted_thinking"}), stop(0)], []),
    "a block that has begun": (
        [start(0, thinking("a")), stop(0)],
        [ReasoningDelta(0, "a"), ReasoningDelta(0, "", SIGNED)],
    ),
    "a block that never stops": (
        [start(0, thinking("", "s1")), delta(0, "signature_delta", signature="s2"), {"type": "message_delta"}],
        [ReasoningDelta(0, "", '{"type":"thinking","signature":"s1s2"}')],
    ),
    "a second block at its place": (
        [start(0, tool_use("g")), start(0, text("a"))],
        [ToolCallStart(0, 0, "toolu_up", "g"), ToolArgsDelta(0, 0, "{}"), TextDelta(0, "a")],
    ),
    "a signature without its block": ([delta(0, "signature_delta", signature="s")], []),
    "a stop without its block": ([stop(7)], []),
}


@pytest.mark.parametrize(("payloads", "events"), BROKEN.values(), ids=BROKEN)
def test_message_stream_with_faults_is_read(payloads, events):
    assert decode(*payloads) == events


NESTED = "[" * 100_000 + "]" * 100_000
INVALID = {
    "a block that is null": '{"type": "content_block_start", "index": 0, "content_block": null}',
    "a block with a number as its id": '{"type": "content_block_start", "content_block": {"type": "tool_use", "id": 7}}',
    "a whole message with such a block": '{"type": "message", "content": [{"type": "text", "text": "a"}, null]}',
    "a block of too many levels": f'{{"type": "content_block_start", "content_block": {{"type": "x", "y": {NESTED}}}}}',
    "a message of too many levels": f'{{"type": "message", "content": [], "x": {NESTED}}}',
}


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("payload", INVALID.values(), ids=INVALID)
def test_message_that_cannot_be_read_is_a_failure(payload, native):
    *_, failure = MessageDecoder(Warnings(), native=native).decode(payload.encode())
    assert isinstance(failure, Failure) and failure.problem.code == "upstream_error"
    assert failure.problem.message.startswith("The backend sent an invalid message: ")


@pytest.mark.parametrize("lost", [b"\\ud83d", b"\xff"])
@pytest.mark.parametrize("native", [False, True])
def test_message_with_a_half_of_a_character_is_read(lost, native):
    """A server that counts in bytes or in UTF-16 cuts a character at the token limit."""
    body = json.dumps(message(text("Hi ~"), reason="max_tokens", x="~")).encode().replace(b"~", lost)
    events = read(body, content_type="application/json", native=native)
    assert shown(events) == "Hi \ufffd" and Finish(0, "length") in events
    frames_sent = stream(message({"type": "mood", "mood": ""}, text("Hi ~"), text("and ~ more"))).replace(b"~", lost)
    mood = event("content_block_delta", index=0, delta={"type": "mood_delta", "mood": "~"}).replace(b"~", lost)
    events = read(frames_sent.replace(event("content_block_stop", index=0), mood), native=native)
    assert shown(events) == "Hi \ufffdand \ufffd more" and Finish(0, "stop") in events


def test_message_arguments_with_a_cut_character_are_whole():
    pieces = [delta(0, "input_json_delta", partial_json=part) for part in ('{"a": "\ud83d', '\ude00"}')]
    sent = [
        event(one["type"], **{k: v for k, v in one.items() if k != "type"})
        for one in (start(0, tool_use("g")), *pieces)
    ]
    end = event("message_delta", delta={"stop_reason": "tool_use"}) + event("message_stop")
    assert ToolArgsDelta(0, 0, '{"a": "😀"}') in merge(read(*sent, end))


def test_message_delta_of_a_known_form_with_an_unreadable_member_is_read():
    decoder = MessageDecoder(Warnings())
    payload = json.dumps({**delta(0, "text_delta", text="Hi"), "x": "\ud83d"}).encode()
    assert decoder.decode(payload) + decoder.decode(payload) == [TextDelta(0, "Hi"), TextDelta(0, "Hi")]


def test_message_block_of_an_unnamed_type_is_dropped_with_a_warning():
    ledger = Warnings()
    decode(start(0, {"type": "mood"}), stop(0), ledger=ledger)
    assert ledger.entries() == ["dropped:content.mood"]


# The end


def test_message_usage_counts_cached_and_written_tokens():
    usage = {"input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2, "output_tokens": 1}
    begun = {"type": "message_start", "message": {"usage": usage}}
    more = {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}, "input_tokens": None}
    ended = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": more}
    assert decode(begun, ended) == [Usage(10, 1, 3, 0, 2), Usage(10, 9, 3, 4, 2), Finish(0, "end_turn")]
    assert decode({"type": "message_start", "message": 5}, {"type": "message_delta"}) == []


ENDS = {
    "end_turn": "stop",
    "max_tokens": "length",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "pause_turn": "stop",
    "compaction": "stop",
    "refusal": "content_filter",
    "model_context_window_exceeded": "length",
}


@pytest.mark.parametrize(("reason", "finish"), ENDS.items())
def test_message_end_is_a_finish_reason(reason, finish):
    assert whole(message(text("a"), reason=reason))[-1] == Finish(0, finish)


def test_message_stop_sequence_is_named():
    events = decode({"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}})
    assert [(one.name, bytes(one.json)) for one in events[:1]] == [("stop_reason", b'"END"')]


def test_message_refusal_is_explained():
    details = {"type": "refusal", "category": None, "explanation": "No."}
    events = whole(message(reason="refusal", stop_details=details))
    assert [one for one in events if isinstance(one, RefusalDelta | Finish)] == [
        RefusalDelta(0, "No."),
        Finish(0, "content_filter"),
    ]
    for details in ("No.", {"explanation": 5}, None):
        assert not [one for one in whole(message(stop_details=details)) if isinstance(one, RefusalDelta)]


FAILURES = {
    "overloaded_error": (503, "server_is_overloaded"),
    "rate_limit_error": (429, "rate_limit_exceeded"),
    "invalid_request_error": (400, None),
    "api_error": (502, "upstream_error"),
    "authentication_error": (502, "upstream_auth_error"),
    "timeout_error": (504, "upstream_timeout"),
}


@pytest.mark.parametrize(("type", "expected"), FAILURES.items())
def test_message_error_amid_a_stream_has_the_status_of_its_type(type, expected):
    (failure,) = decode({"type": "error", "error": {"type": type, "message": "Sorry"}})
    assert (failure.problem.status, failure.problem.code) == expected


def test_message_error_without_a_type_is_a_failure():
    assert decode({"error": "broken"}) == [Failure(Problem(502, "broken", "upstream_error"))]
    assert decode({"type": "error", "error": {"type": [1], "message": "m"}})[0].problem.status == 502


def test_message_that_is_none_is_a_failure():
    for body in ({"object": "chat.completion", "choices": []}, {}):
        assert "not a message" in whole(body)[-1].problem.message
    assert "not a message" in read(event("ping"))[-1].problem.message
    (failure,) = whole([])
    assert failure.problem.message.startswith("The backend sent an invalid message: ")


def test_message_stream_without_its_end_is_lost():
    sent = b"".join([*frames(message(text("Hello")))][:-2])
    events = read(sent)
    assert merge(events)[-2] == TextDelta(0, "Hello") and events[-1].problem.code == "upstream_lost"
