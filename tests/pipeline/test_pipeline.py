"""Test the pipeline from upstream bytes to events: tolerance, repairs, ends, and the same events under every cut."""

import gc
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gateway.errors import Problem
from gateway.events import (
    Annotation,
    ExtraField,
    Failure,
    Finish,
    Logprob,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    TopLogprob,
    Usage,
)
from gateway.warnings import Warnings
from support.pipeline import (
    DONE,
    call,
    chunk,
    cut,
    events_of,
    grammatical,
    merge,
    parser_settings,
    singly,
    sse,
    upstream,
)
from support.sampling import examples

USAGE = {"prompt_tokens": 3, "completion_tokens": 4}
PIECES = [
    chunk(content="héllo <tool_"), chunk(content='call>{"name": "f", "arguments": {"a": '), chunk(content='"é😀"}}'),
    chunk(content="</tool_call>"), chunk(reasoning="hm"), chunk(content=[{"type": "text", "text": "part"}]), chunk(refusal="no"),
    chunk(tool_calls=[call(0, "x", "g", "{")]), chunk(tool_calls=[call(0, None, "g", "}")]), chunk(tool_calls=[call("1", "x", "f")]),
    chunk(tool_calls=[call(1, None, None, {"a": 1}), call()]), chunk("length"), chunk("tool_calls"), chunk(7), DONE, b": ping\r\n\r\n",
    b"data: {\r\ndata: }\r\n\r\n", sse({"usage": {"prompt_tokens": 3, "output_tokens": 4}}), chunk("stop", index=1, content="b"),
    sse({"error": {"message": "out of memory", "code": 507}}), b"data: garbage \xff\n\n", chunk("error"),
    chunk(content="x", logprobs={"content": [{"token": "x", "logprob": -1}]}), chunk(annotations=[{"type": "url_citation"}]),
]  # fmt: skip
streams = st.lists(st.sampled_from(PIECES), max_size=10).map(b"".join)


@settings(max_examples=examples(400), deadline=None)
@given(stream=streams, n=st.sampled_from([1, 2]), data=st.data())
def test_pipeline_events_are_the_same_under_any_cut(stream, n, data):
    whole = events_of([stream], n=n)
    assert whole == events_of(cut(data, stream), n=n) == events_of(singly(stream), n=n)
    for choice in range(n):
        events = [e for e in whole if getattr(e, "choice", None) == choice and type(e) is not ExtraField]
        assert not events or grammatical(events) or type(whole[-1]) is Failure
    assert sum(type(e) is Failure for e in whole) <= 1


@given(garbage=st.binary(max_size=200))
def test_upstream_garbage_is_a_failure_and_never_an_exception(garbage):
    events_of([garbage])
    events_of([b"data: " + garbage + b"\n\n"])
    assert type(events_of([garbage], content_type="application/json")[-1]) is Failure


def test_whole_body_has_the_events_of_its_stream():
    text = 'a<think>b</think>c<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    body = json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": USAGE}).encode()
    chunks = [chunk(content=c) for c in text] + [chunk("stop"), sse({"choices": [], "usage": USAGE}), DONE]
    of_body = events_of([body], content_type="application/json")
    assert sorted(map(repr, of_body)) == sorted(map(repr, events_of(chunks)))


# Fields of backends that differ from the API


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "reasoning_text", "thinking"])
def test_reasoning_has_many_spellings(field):
    assert events_of([chunk(**{field: "hm"}), chunk("stop"), DONE], parser_settings("native"))[0] == ReasoningDelta(
        0, "hm"
    )


def test_reasoning_is_read_from_parts_of_the_content():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "thinking", "thinking": "so"}]
    content = [*parts, "a", {"type": "text", "text": "b"}, {"type": "refusal", "refusal": "no"}, {"type": "image"}]
    assert events_of([chunk("stop", content=content)])[:3] == [
        ReasoningDelta(0, "hmso"),
        TextDelta(0, "ab"),
        RefusalDelta(0, "no"),
    ]


def test_chunk_without_content_gives_no_event():
    silent = [sse({"choices": [], "usage": {}}), chunk(thinking=[{"text": None}]), chunk(content="", tool_calls=[])]
    assert events_of([*silent, chunk("stop", content="a"), DONE]) == [
        TextDelta(0, "a"),
        Finish(0, "stop"),
        Usage(10, 1),
    ]


def test_reasoning_is_read_from_thinking_blocks():
    assert events_of([chunk("stop", thinking=[{"text": "a"}, {"text": None}, {"text": "b"}])])[0] == ReasoningDelta(
        0, "ab"
    )


@pytest.mark.parametrize(
    "payload",
    [
        {"choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}]},
        {"choices": [{"index": "0", "message": {"content": "hi"}, "finish_reason": {"type": "stop"}}]},
        {"choices": [{"index": 0.0, "delta": {"content": "hi", "role": 5}, "finish_reason": True}]},
        {"choices": [{"index": False, "delta": {"content": "hi"}, "finish_reason": {"reason": "eos"}}]},
        {"choices": [{"delta": {"content": "hi", "tool_calls": []}, "message": None, "finish_reason": {}}]},
        {"choices": [{"index": 3, "delta": {"content": "hi"}, "finish_reason": "weird"}]},
    ],
)
def test_choice_of_an_odd_shape_is_read(payload):
    assert events_of([sse(payload), DONE])[:2] == [TextDelta(0, "hi"), Finish(0, "stop")]


@pytest.mark.parametrize(
    "mark", [b"data: [DONE] \n\n", b"data:[DONE]\t\r\n\r\n", b"data: [DONE] ", b"data: [DONE]\x00\n\n"]
)
def test_end_mark_with_something_behind_it_ends_the_stream(mark):
    data = chunk("stop", content="hi") + mark
    for pieces in ([data], singly(data)):
        up = upstream(parser_settings("native"))
        events = [event for piece in pieces for event in up.feed(piece)]
        assert merge([*events, *up.close()])[:2] == [TextDelta(0, "hi"), Finish(0, "stop")] and up.done


def last_usage(events):
    return [event for event in events if type(event) is Usage][-1]


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        (USAGE, Usage(3, 4)),
        ({"input_tokens": "3", "output_tokens": 4.0}, Usage(3, 4)),
        ({"prompt_tokens": True, "completion_tokens": "x"}, Usage(1, 0)),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 5}}, Usage(9, 1, 5)),
        (
            {"prompt_tokens": 9, "completion_tokens": 8, "completion_tokens_details": {"reasoning_tokens": 7}},
            Usage(9, 8, 0, 7),
        ),
        (
            {"input_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1},
            Usage(8, 1, 5, cache_written=2),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cache_write_tokens": 5}},
            Usage(9, 1, cache_written=5),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"created_cache_tokens": 5}},
            Usage(9, 1, cache_written=5),
        ),
        ({"prompt_eval_count": 9, "eval_count": 1}, Usage(9, 1)),
        ({"tokens_evaluated": 9, "tokens_predicted": 1}, Usage(9, 1)),
        ({"total_tokens": 9, "completion_tokens": 4}, Usage(5, 4)),
        ({"total_tokens": 9, "prompt_tokens": 4}, Usage(4, 5)),
        ({"total_tokens": 9}, Usage(9, 0)),
        ({"total_tokens": 1, "prompt_tokens": 4}, Usage(4, 0)),
        ({"total_tokens": 99, "prompt_tokens": 4, "completion_tokens": 5}, Usage(4, 5)),
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4}, Usage(9, 1, 4)),
        ({"prompt_tokens": 1e999, "completion_tokens": 2}, Usage(0, 2)),
    ],
)
def test_usage_has_many_names_and_types(usage, wanted):
    stream = [chunk("stop", content="a"), sse({"choices": [], "usage": usage}), DONE]
    assert last_usage(events_of(stream)) == wanted


def test_usage_is_read_from_timings_if_there_is_no_other():
    timings = {"cache_n": 5, "prompt_n": 2, "predicted_n": 3}
    done = json.loads(chunk("stop", content="a")[6:]) | {"timings": timings}
    assert Usage(7, 3, 5) in events_of([sse(done), DONE])
    assert Usage(3, 4) == events_of([sse(done | {"usage": USAGE}), DONE])[0]
    assert Usage(10, 1) == events_of([sse(done | {"timings": {}}), DONE])[-1]


def test_usage_is_estimated_with_a_warning_if_none_is_given():
    ledger = Warnings()
    events = events_of(
        [chunk(content="12345"), chunk(reasoning="678"), chunk("stop"), DONE], parser_settings(ledger=ledger)
    )
    assert events[-1] == Usage(10, 2, reasoning=1) and ledger.entries() == ["estimated:usage"]


@pytest.mark.parametrize(
    ("stated", "thought", "answer", "reasoning"),
    [
        (100, "a" * 30, "b" * 70, 30),
        (10, "a", "b" * 999, 1),
        (10, "a" * 999, "", 10),
        (0, "a" * 8, "b" * 8, 0),
        (10, "", "b" * 8, 0),
    ],
)
def test_reasoning_tokens_are_estimated_by_share_of_the_text(stated, thought, answer, reasoning):
    for pieces in (
        [chunk(reasoning=thought), chunk(content=answer)],
        [chunk(content=f"<think>{thought}</think>{answer}")],
    ):
        if not (thought and answer) and len(pieces) == 1:
            continue
        ledger = Warnings()
        usage = sse({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": stated}})
        events = events_of([*pieces, chunk("stop"), usage, DONE], parser_settings("think", ledger=ledger))
        last = last_usage(events)
        markup = len("<think></think>") if len(pieces) == 1 else 0
        share = -(-stated * len(thought) // (len(thought + answer) + markup))
        assert last == Usage(3, stated, reasoning=share)
        assert markup or share == reasoning
        assert ledger.entries() == (["estimated:usage.reasoning_tokens"] if thought else [])


def test_reasoning_tokens_that_are_counted_are_not_estimated():
    ledger = Warnings()
    counts = {"prompt_tokens": 3, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 2}}
    stream = [chunk(reasoning="hm"), chunk("stop"), sse({"choices": [], "usage": counts}), DONE]
    assert last_usage(events_of(stream, parser_settings(ledger=ledger))) == Usage(3, 9, reasoning=2)
    assert ledger.entries() == []


def test_usage_is_read_from_x_groq():
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    end = json.loads(chunk("stop", content="a")[6:])
    first, last = (end | {"x_groq": {"id": "req_1"} | counts} for counts in ({}, {"usage": usage}))
    assert events_of([sse(last), DONE]) == [Usage(3, 4), TextDelta(0, "a"), Finish(0, "stop")]
    assert events_of([sse(first), DONE])[-1] == Usage(10, 1)


def test_usage_in_each_choice_is_summed_and_the_prompt_counted_once():
    def last(index):
        usage = {"prompt_tokens": 16, "completion_tokens": 8}
        return sse({"choices": [{"index": index, "delta": {"content": "a"}, "finish_reason": "stop", "usage": usage}]})

    counts = [event for event in events_of([last(0), last(1), DONE], n=2) if type(event) is Usage]
    assert counts == [Usage(16, 8), Usage(16, 16)]


def test_usage_per_choice_is_summed_and_the_prompt_counted_once():
    each = sse({"choices": [], "usage": {"prompt_tokens": 16, "completion_tokens": 8}})
    stream = [chunk(content="a"), chunk(index=1, content="b"), chunk("stop", index=1), each, chunk("stop"), each, DONE]
    assert last_usage(events_of(stream, n=2)) == Usage(16, 16)


def written(*counts):
    """Return the frames of usages, each in a chunk of its own."""
    return [sse({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": count}}) for count in counts]


def in_choice(count, index=0):
    """Return the frame of the end of a choice that states its usage."""
    usage = {"prompt_tokens": 5, "completion_tokens": count}
    return sse({"choices": [{"index": index, "delta": {}, "finish_reason": "stop", "usage": usage}]})


@pytest.mark.parametrize(
    ("stream", "n", "total"),
    [
        ([*written(4), chunk(content="a"), chunk("stop"), *written(9)], 1, 9),
        ([chunk("stop", content="a"), *written(1), chunk("stop", content="b"), *written(2)], 1, 2),
        ([chunk(content="a"), in_choice(9), *written(9)], 1, 9),
        ([chunk(content="a"), in_choice(9), in_choice(8, 1), *written(17)], 2, 17),
        ([chunk(content="a"), in_choice(8), in_choice(9), in_choice(8, 1)], 2, 17),
        ([*written(4), chunk("stop", content="a"), *written(9), chunk("stop", 1, content="b"), *written(8)], 2, 17),
        ([chunk("stop", content="a"), *written(8, 9), chunk("stop", 1, content="b"), *written(8)], 2, 17),
    ],
    ids=[
        "forecast",
        "finish in each chunk",
        "twice",
        "choices and all",
        "repeated",
        "forecast of two",
        "repeated alone",
    ],
)
def test_usage_that_a_server_states_several_times_counts_once(stream, n, total):
    assert last_usage(events_of([*stream, DONE], n=n)) == Usage(5, total)


def test_usage_with_every_chunk_is_not_summed():
    def chunk_with_usage(tokens, **delta):
        return sse(json.loads(chunk(**delta)[6:]) | {"usage": {"prompt_tokens": 5, "completion_tokens": tokens}})

    last = sse({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})
    stream = [
        chunk_with_usage(1, content="a"),
        chunk_with_usage(2, content="b"),
        chunk_with_usage(3, finish="stop"),
        last,
        DONE,
    ]
    assert last_usage(events_of(stream)) == Usage(5, 3)


def test_chunk_with_nan_surrogates_or_invalid_utf8_does_not_end_the_stream():
    stream = [
        b'data: {"choices":[{"delta":{"content":"a\\ud83d \\ud83d\\ude00 NaN \xff \\n"}}],"x":[NaN,-Infinity]}\n\n',
        chunk("stop"),
    ]
    extra, text, *_ = events_of(stream)
    assert (extra.name, bytes(extra.json)) == ("x", b"[-9999,-9999]")
    assert text == TextDelta(0, "a\ufffd 😀 NaN \ufffd \n")


@pytest.mark.parametrize("number", ["1e309", "-2.5E+400", "1" + "0" * 309 + ".5", "9" * 308 + "e1", "12345e305"])
def test_number_that_no_double_can_be_is_sent_as_one_that_is(number):
    beside = f'[1e3,"1e999",{number},1.5E2]'.encode()
    payload = b'data: {"choices":[{"delta":{"content":"a"},"stop_reason":%b}],"x":%b}\n\n' % (beside, beside)
    for pieces in ([payload], [payload[i : i + 1] for i in range(len(payload))]):
        found = [event for event in events_of([*pieces, chunk("stop")]) if isinstance(event, ExtraField)]
        assert {bytes(event.json) for event in found} == {b'[1e3,"1e999",-9999,1.5E2]'}


@pytest.mark.parametrize("end", [b"\n", b"\n\n", b"\r\n", b"\r"])
def test_member_of_several_lines_is_sent_in_one(end):
    body = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"x":{"y":%b[1,%b2]}}' % (end, end)
    up = upstream(parser_settings())
    up.set_content_type("application/json")
    (extra,) = [event for event in [*up.feed(body), *up.close()] if isinstance(event, ExtraField)]
    assert json.loads(bytes(extra.json)) == {"y": [1, 2]} and len(bytes(extra.json).splitlines()) == 1


def test_number_within_the_doubles_is_sent_as_it_came():
    data = b"[1.7976931348623157e308,-1E-400," + b"9" * 300 + b"]"
    (extra, *_) = events_of([b'data: {"choices":[{"delta":{"content":"a"}}],"x":%b}\n\n' % data, chunk("stop")])
    assert bytes(extra.json) == data


def test_extra_fields_are_marked_where_the_client_asked_for_them():
    body = json.loads(chunk("stop", content="a")[6:]) | {
        "prompt_logprobs": [None, {"1": -0.5}],
        "kv_transfer_params": None,
    }
    body["choices"][0] |= {"stop_reason": "x", "token_ids": [1, 2]}
    events = events_of([sse(body)], wanted=frozenset({"prompt_logprobs", "token_ids", "kv_transfer_params"}))
    assert [(e.choice, e.name, json.loads(bytes(e.json)), e.asked) for e in events if type(e) is ExtraField] == [
        (None, "prompt_logprobs", [None, {"1": -0.5}], True), (0, "token_ids", [1, 2], True),
        (0, "stop_reason", "x", False),
    ]  # fmt: skip
    assert not any(e.asked for e in events_of([sse(body)]) if type(e) is ExtraField)


def test_annotations_and_refusals_are_passed():
    events = events_of([chunk(annotations=[{"type": "url_citation"}]), chunk("stop", refusal="no")])
    assert type(events[0]) is Annotation and bytes(events[0].json) == b'{"type": "url_citation"}'
    assert events[1] == RefusalDelta(0, "no")


# Choices


def test_choice_that_comes_first_is_choice_0_and_others_are_dropped():
    ledger = Warnings()
    stream = [chunk(content="a", index=5), chunk(content="b", index=7), chunk("stop", index=5), DONE]
    assert events_of(stream, parser_settings(ledger=ledger))[:2] == [TextDelta(0, "a"), Finish(0, "stop")]
    assert "dropped:choices" in ledger.entries()


def test_choices_are_kept_apart():
    stream = [
        chunk(content="<think>a"),
        chunk(content="b", index=1),
        chunk(content="</think>c"),
        chunk("stop"),
        chunk("stop", index=1),
    ]
    assert events_of(stream, n=2)[:5] == [
        ReasoningDelta(0, "a"), TextDelta(1, "b"), TextDelta(0, "c"), Finish(0, "stop"), Finish(1, "stop"),
    ]  # fmt: skip


# Tool calls that the backend parsed


def test_reasoning_chunk_releases_text_that_was_held_back():
    events = events_of([chunk(content="a <tool"), chunk(reasoning_content="hm"), chunk(content="_call> b"), DONE])
    assert events[:4] == [TextDelta(0, "a <tool"), ReasoningDelta(0, "hm"), TextDelta(0, "_call> b"), Finish(0, "stop")]


TWO_CALLS = [
    ToolCallStart(0, 0, "a", "f"), ToolArgsDelta(0, 0, "{}"), ToolCallEnd(0, 0),
    ToolCallStart(0, 1, "b", "g"), ToolArgsDelta(0, 1, "{}"), ToolCallEnd(0, 1), Finish(0, "tool_calls"),
]  # fmt: skip


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param([[call(0, "a", "f", "{}"), call(1, "b", "g", "{}")]], id="whole calls in one chunk"),
        pytest.param([[call(0, "a", "f", "{}"), call(0, "b", "g", "{}")]], id="index 0 for all"),
        pytest.param([[call(0, "a", "f", "{}")], [call(0, "b", "g", "{}")]], id="index 0 for all, one by one"),
        pytest.param([[call(None, "a", "f", {})], [call(None, "b", "g", {})]], id="no index, arguments as objects"),
        pytest.param([[call(0, "a", "f", "{")], [call(1, "b", "g", "{")], [call(0, None, None, "}")], [call(1, None, None, "}")]], id="interleaved"),
        pytest.param([[call(0, "a", "f")], [call(0, "a", "f", "{")], [call(0, "a", "f", "}")], [call(1, "b", "g", "{}")]], id="head repeated"),
        pytest.param([[call(0, "a", "f")], [call(1, "b", "g")], [call(1, "b", "g", "{}")]], id="no arguments"),
        pytest.param([[call("", "a", "f", "{}"), {"index": 1}, call("1", "b", "g", None)]], id="odd indexes, an empty call"),
    ],
)  # fmt: skip
def test_tool_calls_of_the_backend_are_repaired(deltas):
    stream = [*(chunk(tool_calls=delta) for delta in deltas), chunk("tool_calls"), DONE]
    assert events_of(stream, parser_settings("native"))[:-1] == TWO_CALLS


def ids_and_warnings(stream, **options):
    ledger = Warnings()
    events = events_of(stream, parser_settings("native", ledger=ledger, **options))
    return [e.id for e in events if type(e) is ToolCallStart], ledger.entries()


def test_tool_call_id_is_kept_if_new_and_made_if_not():
    stream = [
        chunk(
            tool_calls=[call(0, "x", "f", "{}"), call(1, "x", "g", "{}"), call(2, "", "f", "{}"), call(3, 7, "g", "{}")]
        ),
        DONE,
    ]
    ids, notes = ids_and_warnings(stream)
    assert ids == ["x", "call_0", "call_1", "7"] and "synthesised:tool_calls.id" in notes


def test_tool_call_id_of_the_conversation_is_not_given_again():
    ids, _ = ids_and_warnings([chunk(tool_calls=[call(0, "x", "f", "{}")]), DONE], taken=frozenset({"x"}))
    assert ids == ["call_0"]


def test_tool_calls_without_ids_are_split_at_complete_arguments():
    stream = [chunk(tool_calls=[call(0, None, "f", part)]) for part in ('{"a"', ":1}", '{"a":2}')]
    ids, notes = ids_and_warnings([*stream, DONE])
    assert len(ids) == 2 and "repaired:tool_calls.index" in notes


def test_tool_call_with_invalid_json_does_not_change_the_order():
    stream = [
        chunk(tool_calls=[call(0, "a", "f", "oops")]),
        chunk(tool_calls=[call(1, "b", "g", "{}")]),
        chunk("tool_calls"),
        DONE,
    ]
    starts = [e for e in events_of(stream, parser_settings("native")) if type(e) in (ToolCallStart, ToolCallEnd)]
    assert starts == [
        ToolCallStart(0, 0, "a", "f"),
        ToolCallEnd(0, 0, complete=False),
        ToolCallStart(0, 1, "b", "g"),
        ToolCallEnd(0, 1),
    ]


def test_tool_call_arguments_are_closed_unless_the_finish_is_length():
    def events_and_warnings(reason):
        ledger = Warnings()
        events = events_of(
            [chunk(tool_calls=[call(0, "a", "f", '{"o": ["x"')]), chunk(reason), DONE],
            parser_settings("native", ledger=ledger),
        )
        return [e for e in events if type(e) in (ToolArgsDelta, ToolCallEnd, Finish)], ledger.entries()

    closed, notes = events_and_warnings("stop")
    assert closed == [ToolArgsDelta(0, 0, '{"o": ["x"]}'), ToolCallEnd(0, 0), Finish(0, "tool_calls")]
    assert {"repaired:tool_calls.function.arguments", "repaired:finish_reason"} <= set(notes)
    assert events_and_warnings("length")[0] == [
        ToolArgsDelta(0, 0, '{"o": ["x"'),
        ToolCallEnd(0, 0, complete=False),
        Finish(0, "length"),
    ]


@pytest.mark.parametrize(
    ("sent", "tail"),
    [("", "{}"), ("  ", "{}"), ('{"a": true', "}"), ('{"o": [{"b": "x"}', "]}"), ('{"n": 1 ', "}")],
)
def test_tool_call_arguments_get_the_brackets_that_are_missing(sent, tail):
    stream = [chunk(tool_calls=[call(0, "a", "f", sent)]), chunk("stop"), DONE]
    (args,) = [e.json for e in events_of(stream, parser_settings("native")) if type(e) is ToolArgsDelta]
    assert json.loads(args) == json.loads(sent + tail)


@pytest.mark.parametrize(
    "sent",
    [
        "{",
        '{"a',
        '{"a"',
        '{"a":',
        '{"a": tr',
        '{"a": "x',
        '{"a": "\\u00',
        '{"n": 1',
        '{"a": "\\',
        '{"n": 1,',
        '{"o": [1, ',
    ],
)
def test_tool_call_arguments_that_end_in_a_value_stay_as_they_came(sent):
    ledger = Warnings()
    stream = [chunk(tool_calls=[call(0, "a", "f", sent)]), chunk("stop"), DONE]
    events = events_of(stream, parser_settings("native", ledger=ledger))
    assert events[1:3] == [ToolArgsDelta(0, 0, sent), ToolCallEnd(0, 0, complete=False)]
    assert "invalid:tool_calls.function.arguments" in ledger.entries()


def test_tool_call_arguments_may_have_the_piece_null():
    pieces = ['{"a":', "null", "}"]
    stream = [
        chunk(tool_calls=[call(0, "a", "f", None)]),
        *(chunk(tool_calls=[call(0, None, None, piece)]) for piece in pieces),
    ]
    whole = b"".join([*stream, chunk("stop"), DONE])
    for pieces in ([whole], singly(whole)):
        assert events_of(pieces, parser_settings("native"))[1] == ToolArgsDelta(0, 0, '{"a":null}')


def test_tool_call_arguments_that_no_tail_closes_are_passed_unchanged():
    stream = [chunk(tool_calls=[call(0, "a", "f", "]}{")]), chunk("stop"), DONE]
    assert events_of(stream, parser_settings("native"))[1:3] == [
        ToolArgsDelta(0, 0, "]}{"),
        ToolCallEnd(0, 0, complete=False),
    ]


def test_tool_call_arguments_without_a_name_are_text():
    stream = [chunk(tool_calls=[call(0, None, None, '{"a":1}')]), chunk("tool_calls"), DONE]
    ledger = Warnings()
    assert events_of(stream, parser_settings("native", ledger=ledger))[:2] == [
        TextDelta(0, '{"a":1}'),
        Finish(0, "stop"),
    ]
    assert "repaired:finish_reason" in ledger.entries()
    assert events_of(stream)[0] == TextDelta(0, '{"a":1}')


def test_tool_call_is_read_from_a_legacy_function_call():
    stream = [
        chunk(function_call={"name": "f", "arguments": ""}),
        chunk(function_call={"arguments": "{}"}),
        chunk("function_call"),
        DONE,
    ]
    assert events_of(stream, parser_settings("native"))[:4] == [
        ToolCallStart(0, 0, "call_0", "f"), ToolArgsDelta(0, 0, "{}"), ToolCallEnd(0, 0), Finish(0, "tool_calls"),
    ]  # fmt: skip


def test_tool_calls_that_interleave_are_held_up_to_a_limit():
    ledger = Warnings()
    stream = [
        chunk(tool_calls=[call(0, "a", "f", '{"a'), call(1, "b", "g", '{"')]),
        chunk(tool_calls=[call(1, None, None, "x" * 100)]),
        chunk(tool_calls=[call(0, None, None, '": "late"}')]),
        chunk("stop"),
        DONE,
    ]
    assert events_of(stream, parser_settings("native", limit=50, ledger=ledger))[:-2] == [
        ToolCallStart(0, 0, "a", "f"),
        ToolArgsDelta(0, 0, '{"a'),
        ToolCallEnd(0, 0, complete=False),
        ToolCallStart(0, 1, "b", "g"),
        ToolArgsDelta(0, 1, '{"' + "x" * 100),
        ToolCallEnd(0, 1, complete=False),
    ]
    assert "invalid:tool_calls.function.arguments" in ledger.entries()


def test_tool_call_ends_at_the_text_after_it():
    stream = [chunk(tool_calls=[call(0, "a", "f", "{}")]), chunk(content="done"), chunk("stop"), DONE]
    for format in ("native", "hermes_json"):
        assert events_of(stream, parser_settings(format))[2:5] == [
            ToolCallEnd(0, 0),
            TextDelta(0, "done"),
            Finish(0, "tool_calls"),
        ]


def test_text_ends_at_a_tool_call_of_the_backend():
    stream = [chunk(content="a <tool"), chunk(tool_calls=[call(0, "a", "f", "{}")]), chunk("tool_calls"), DONE]
    assert events_of(stream)[:2] == [TextDelta(0, "a <tool"), ToolCallStart(0, 0, "a", "f")]


def test_reasoning_opened_by_the_prompt_ends_if_the_backend_splits_by_itself():
    stream = [chunk(reasoning_content="hm"), chunk(content="answer"), chunk("stop"), DONE]
    assert events_of(stream, parser_settings("think", thought_open=True))[:2] == [
        ReasoningDelta(0, "hm"),
        TextDelta(0, "answer"),
    ]


# Log-probabilities


def logprob_entry(token, logprob=-0.5, top=()):
    return Logprob(token, logprob, tuple(token.encode()), tuple(top))


ENTRY = {
    "token": "hi",
    "logprob": -0.5,
    "bytes": [104, 105],
    "top_logprobs": [{"token": "ho", "logprob": -1.5, "bytes": None}],
}


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"content": [ENTRY]}, (logprob_entry("hi", top=[TopLogprob("ho", -1.5, (104, 111))]),)),
        ({"content": [ENTRY, 5], "refusal": None}, (logprob_entry("hi", top=[TopLogprob("ho", -1.5, (104, 111))]),)),
        ([{"id": 5, "text": "hi", "logprob": -0.5}], (logprob_entry("hi"),)),
        (-0.5, (logprob_entry("hi"),)),
        (
            {"tokens": ["h", "i"], "token_logprobs": [-0.5], "top_logprobs": [{"x": -2}]},
            (logprob_entry("h", top=[TopLogprob("x", -2.0, (120,))]), logprob_entry("i", -9999.0)),
        ),
        ({"tokens": ["hi"], "token_logprobs": 7, "top_logprobs": {"0": -1}}, (logprob_entry("hi", -9999.0),)),
        ({"content": [{"token": "hi", "logprob": -1e9, "top_logprobs": "x"}]}, (logprob_entry("hi", -9999.0),)),
        ({"content": [{"token": "hi", "logprob": None, "bytes": ["x"]}]}, (logprob_entry("hi", -9999.0),)),
        ({"content": None}, ()),
        (True, ()),
        ("x", ()),
        ([], ()),
    ],
)
def test_logprobs_have_many_shapes(value, wanted):
    (text, *_) = events_of([chunk(content="hi", logprobs=value), chunk("stop"), DONE], parser_settings("native"))
    assert text == TextDelta(0, "hi", wanted)


def test_logprobs_that_json_cannot_say_are_clamped():
    payload = chunk(content="hi", logprobs={"content": [{"token": "hi", "logprob": 0}]}).replace(
        b'"logprob": 0', b'"logprob": -Infinity'
    )
    assert events_of([payload, chunk("stop"), DONE])[0] == TextDelta(0, "hi", (logprob_entry("hi", -9999.0),))


def test_logprobs_of_a_refusal_are_on_the_refusal():
    logprobs = {"content": None, "refusal": [{"token": "no", "logprob": -0.5}]}
    assert events_of([chunk(refusal="no", logprobs=logprobs), DONE])[0] == RefusalDelta(0, "no", (logprob_entry("no"),))


def test_logprobs_stay_with_their_text_and_those_of_markup_are_dropped():
    tokens = [
        "<think>",
        "hm",
        "</think>",
        "\n",
        "A",
        "b",
        " <tool",
        "_call>",
        '{"name": "f"',
        ', "arguments": {}}',
        "</tool_call>",
        "C",
        "",
    ]
    text = "".join(tokens)
    entries = [{"token": token, "logprob": -0.5} for token in tokens]
    ledger = Warnings()
    streamed = [
        chunk(content=token, logprobs={"content": [entry]}) for token, entry in zip(tokens, entries, strict=True)
    ]
    whole = events_of([chunk("stop", content=text, logprobs={"content": entries})], parser_settings(ledger=ledger))
    assert "dropped:logprobs" in ledger.entries()
    assert whole == events_of([*streamed, chunk("stop")])
    assert [e for e in whole if type(e) is TextDelta] == [
        TextDelta(0, "Ab", (logprob_entry("A"), logprob_entry("b"))),
        TextDelta(0, "\nC", (logprob_entry("C"), logprob_entry(""))),
    ]


def test_logprobs_may_begin_in_the_middle():
    stream = [
        chunk(content="a"),
        chunk(content="b", logprobs={"content": [{"token": "b", "logprob": -0.5}]}),
        chunk("stop"),
    ]
    assert events_of(stream)[0] == TextDelta(0, "ab", (logprob_entry("b"),))


# Ends


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("stop", "stop"),
        ("eos_token", "stop"),
        ("max_tokens", "length"),
        ("safety", "content_filter"),
        ("tool_calls", "stop"),
        ("pause_turn", "stop"),
        ("MAX_TOKENS", "length"),
        ("content_filter: RECITATION", "content_filter"),
    ],
)
def test_finish_reasons_are_of_the_closed_set(reason, wanted):
    assert events_of([chunk(reason, content="a"), DONE])[1] == Finish(0, wanted)


@pytest.mark.parametrize("reason", ["abort", "error", "insufficient_system_resource", "network_error"])
def test_finish_reasons_of_errors_are_failures(reason):
    *came, last = events_of([chunk(reason, content="a"), DONE])
    assert came == [TextDelta(0, "a")] and reason in last.problem.message


def test_finish_reason_missing_before_done_is_stop_with_a_warning():
    ledger = Warnings()
    assert events_of([chunk(content="a"), DONE], parser_settings(ledger=ledger))[:2] == [
        TextDelta(0, "a"),
        Finish(0, "stop"),
    ]
    assert "synthesised:finish_reason" in ledger.entries()


def test_finish_reason_without_done_ends_the_stream():
    assert events_of([chunk("stop", content="a")])[:2] == [TextDelta(0, "a"), Finish(0, "stop")]


def test_finish_reason_missing_in_one_of_two_choices_is_a_failure():
    assert type(events_of([chunk("stop", content="a"), chunk(index=1, content="b")], n=2)[-1]) is Failure


def test_usage_may_come_after_done():
    events = events_of([chunk("stop", content="a"), DONE, sse({"choices": [], "usage": USAGE})])
    assert events == [TextDelta(0, "a"), Finish(0, "stop"), Usage(3, 4)]


def test_choice_has_no_content_after_done():
    assert events_of([chunk("stop", content="a"), DONE, chunk(content="b")])[0] == TextDelta(0, "a")


def test_response_may_be_empty():
    assert events_of([chunk(), DONE])[0] == Finish(0, "stop")


NOTHING = {
    "only [DONE]": [DONE],
    "no body": [],
    "only usage": [sse({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}), DONE],
    "a choice without a delta": [sse({"choices": [{"index": 0, "finish_reason": "stop"}]}), DONE],
    "a delta that is null": [sse({"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]})],
    "a choice that never ends": [sse({"choices": [{"index": 0}]}), DONE],
}


@pytest.mark.parametrize("name", NOTHING)
def test_stream_without_a_message_is_a_failure_of_the_backend(name):
    data = b"".join(NOTHING[name])
    for pieces in ([data], singly(data)):
        last = events_of(pieces)[-1]
        assert type(last) is Failure and (last.problem.status, last.problem.code) == (502, "upstream_error")


@pytest.mark.parametrize("choice", [{"finish_reason": "stop"}, {"message": None, "finish_reason": "length"}, {}])
def test_whole_response_without_a_message_is_a_failure_of_the_backend(choice):
    body = json.dumps({"choices": [{"index": 0, **choice}], "usage": {"prompt_tokens": 5}}).encode()
    for data in (body, b""):
        last = events_of([data], content_type="application/json")[-1]
        assert (last.problem.status, last.problem.code) == (502, "upstream_error")


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 5, "reasoning_tokens": 3}}, Usage(9, 5, 0, 3)),
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 5, "cached_tokens": 4}}, Usage(9, 5, 4)),
        ({"usage": {"input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": 4}}, Usage(13, 5, 4)),
        ({"prompt_eval_count": 9, "eval_count": 5}, Usage(9, 5)),
        ({"prompt_tokens": 9, "completion_tokens": 5, "reasoning_tokens": 2}, Usage(9, 5, 0, 2)),
        ({"tokens_evaluated": 9, "tokens_predicted": 5}, Usage(9, 5)),
        ({"input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": 4}, Usage(13, 5, 4)),
        ({"input_tokens": 9}, Usage(9, 0)),
        ({"usage": {}, "prompt_eval_count": 9, "eval_count": 5}, Usage(9, 5)),
        ({"usage": {"queue_time": 1}, "x_groq": {}, "tokens_predicted": 5}, Usage(0, 5)),
        (
            {"usage": {"prompt_tokens": 9, "completion_tokens": 5, "cached_tokens": 4, "reasoning_tokens": "2"}},
            Usage(9, 5, 4, 2),
        ),
    ],
)
def test_tokens_are_counted_wherever_a_server_puts_them(counts, expected):
    body = json.loads(chunk("stop", content="a")[6:])
    streamed = events_of([chunk(content="a"), sse({**body, **counts}), DONE])
    whole = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], **counts}
    for events in (streamed, events_of([json.dumps(whole).encode()], content_type="application/json")):
        assert [event for event in events if type(event) is Usage] == [expected]


@pytest.mark.parametrize(
    ("details", "kept"),
    [
        ([{"type": "reasoning.text", "text": "So.", "index": 0, "format": "MiniMax-response-v1"}], False),
        ([{"type": "reasoning.summary", "summary": "So."}], False),
        ([{"type": "reasoning.text", "text": "S"}, {"type": "reasoning.text", "text": "o.", "signature": "x"}], True),
    ],
)
@pytest.mark.parametrize("twice", [False, True])
def test_reasoning_details_are_reasoning(details, kept, twice):
    message = {"reasoning_details": details, **({"reasoning": "So."} if twice else {})}
    events = events_of([chunk(**message), chunk("stop", content="Hi")])
    assert [event.text for event in events if type(event) is ReasoningDelta] == ["So."]
    assert [json.loads(bytes(event.json)) for event in events if type(event) is ExtraField] == [details] * kept


@pytest.mark.parametrize("details", ["So.", [5], [None], {"text": "So."}])
def test_reasoning_details_of_another_shape_are_passed_on(details):
    events = events_of([chunk("stop", reasoning_details=details)])
    assert [(event.name, json.loads(bytes(event.json))) for event in events if type(event) is ExtraField] == [
        ("reasoning_details", details)
    ]


def test_connection_lost_delivers_the_text_and_then_a_failure():
    *came, last = events_of([chunk(content="a <to")])
    assert came == [TextDelta(0, "a <to")] and last.problem.code == "upstream_lost"


def test_choice_keeps_content_after_a_finish_reason_and_the_last_reason():
    pieces = [chunk("stop", content="a"), chunk("stop", content="b"), chunk("length"), DONE]
    assert events_of(pieces)[:2] == [TextDelta(0, "ab"), Finish(0, "length")]


def test_failure_is_the_last_event():
    up = upstream()
    stream = sse({"error": "boom"}) + chunk("stop", content="a") + DONE
    assert [*up.feed(stream), *up.close(), *up.fail(Problem(502, "late"))] == [
        Failure(Problem(502, "boom", "upstream_error"))
    ]


@pytest.mark.parametrize("content_type", ["application/json", "", "text/html"])
def test_body_without_choices_is_a_failure(content_type):
    for body in (b"{}", b'{"detail": "x"}', b'{"usage": {"prompt_tokens": 1}}'):
        assert type(events_of([body], content_type=content_type)[-1]) is Failure


def test_error_object_is_a_failure_in_every_shape():
    for error in ({"error": "boom"}, {"error": {"message": "boom"}}, {"object": "error", "message": "boom"}):
        (failure,) = events_of([sse(error), DONE])
        assert failure.problem == Problem(502, "boom", "upstream_error")


def test_connection_lost_after_the_finish_is_no_failure():
    up = upstream()
    assert [*up.feed(chunk("stop", content="a")), *up.fail(Problem(502, "broke"))][:2] == [
        TextDelta(0, "a"),
        Finish(0, "stop"),
    ]


def test_connection_lost_delivers_an_event_without_its_empty_line():
    up = upstream()
    events = [*up.feed(chunk(content="a")), *up.feed(chunk(content="b").rstrip()), *up.fail(Problem(502, "broke"))]
    assert events == [TextDelta(0, "a"), TextDelta(0, "b"), Failure(Problem(502, "broke"))]


def test_whole_body_that_is_cut_gives_only_the_failure():
    up = upstream(content_type="application/json")
    assert [*up.feed(b'{"choices": [{"mess'), *up.fail(Problem(502, "broke"))] == [Failure(Problem(502, "broke"))]


def test_sse_event_that_is_too_long_is_a_failure():
    *_, last = events_of([chunk(content="x" * 100)], limit=80)
    assert last.problem.code == "frame_too_long"


# Cost


@pytest.mark.parametrize(
    ("format", "before", "word"),
    [
        ("native", "", " hello"),
        ("hermes_json", "", " hello"),
        ("hermes_json", "<think>", " hm"),
        ("hermes_json", '<tool_call>{"name": "f", "arguments": {"a": "', "word"),
        ("qwen_xml", f"<function=f><parameter=a>{'x' * 300}", "word"),
        ("llama3_json", '{"name": "f", "parameters": {"a": "', "word"),
    ],
)
def test_chunk_work_does_not_depend_on_the_chunks_before(format, before, word):
    """Count function calls: the thousandth chunk takes as many as the hundredth."""

    def calls_for(up, count):
        calls = 0

        def count_call(_, event, __):
            nonlocal calls
            calls += event in ("call", "c_call")

        gc.disable()  # callbacks of the collector would be counted
        sys.setprofile(count_call)
        try:
            for _ in range(count):
                list(up.feed(data))
        finally:
            sys.setprofile(None)
            gc.enable()
        return calls

    data, up = chunk(content=word), upstream(parser_settings(format))
    list(up.feed(chunk(content=before or "x") + data * 10))
    list(up.feed(data))  # the form is known from here on
    first = calls_for(up, 100)
    list(up.feed(data * 1000))
    assert calls_for(up, 100) == first


@pytest.mark.parametrize("format", ["native", "hermes_json", "auto"])
@pytest.mark.parametrize("whole", [False, True])
def test_text_keeps_its_order_while_the_second_of_two_interleaved_calls_is_open(format, whole):
    pieces = [
        chunk(tool_calls=[call(0, "x", "f", '{"a": ')]), chunk(content="one "), chunk(tool_calls=[call(1, "y", "g", "")]),
        chunk(content="two "), chunk(tool_calls=[call(0, None, None, '"b"}')]), chunk(content="three "),
        chunk(tool_calls=[call(1, None, None, '{"n": 1}')]), chunk(content="four"), chunk("tool_calls"), DONE,
    ]  # fmt: skip
    tools = {"f": {}, "g": {}, "get": {}}  # the name of the second call may go on
    settings = structs.replace(parser_settings(format, tools=tools), whole=whole, auto=format == "auto")
    events = events_of(pieces, settings)
    assert "".join(event.text for event in events if type(event) is TextDelta) == "one two three four"
    assert grammatical([event for event in events if type(event) is not Usage])


def test_reasoning_tags_of_bedrock_in_the_text_of_a_server_with_reasoning_of_its_own_stay():
    data = chunk(reasoning_content="hm") + chunk(content="<reasoning>x</reasoning>y") + chunk("stop") + DONE
    for pieces in ([data], singly(data)):
        assert events_of(pieces, parser_settings("harmony"))[:2] == [
            ReasoningDelta(0, "hm"),
            TextDelta(0, "<reasoning>x</reasoning>y"),
        ]


def test_reasoning_between_tags_of_bedrock_precedes_a_call_of_the_server():
    parts = ["<reasoning>I ca</reasoning>", "<reasoning>ll.</reasoning>"]
    made = {"tool_calls": [call(0, "c", "f", '{"n": 1}')]}
    data = b"".join(chunk(content=part) for part in parts) + chunk(**made) + chunk("tool_calls") + DONE
    for pieces in ([data], singly(data)):
        assert [type(event) for event in events_of(pieces, parser_settings("harmony"))][:2] == [
            ReasoningDelta,
            ToolCallStart,
        ]
