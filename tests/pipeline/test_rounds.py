"""Test a turn from upstream bytes to client bytes: chunks, whole bodies, rounds, custom tools, failures."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway import events as ev
from gateway.api import chat
from gateway.api.chat.stream import ChatStreamEncoder
from gateway.api.chat.whole import ChatBodyEncoder
from gateway.errors import CANCELLED, Problem
from gateway.pipeline.pipeline import EndResponse, RoundFailed, SendBytes, StartCall
from gateway.request import Request
from gateway.transforms import close_filters, lower_request
from gateway.warnings import Warnings
from support.pipeline import DONE, call, chunk, cut, payloads, singly, sse
from support.sampling import examples
from support.turns import FUNCTION, chat_params, make_turn

USAGE = sse({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
CUSTOM = {"type": "custom", "custom": {"name": "patch", "description": "Edits.", "format": {"type": "text"}}}


def client_bytes(pieces, question=None, **options):
    turn = make_turn(question, **options)
    turn.start()
    turn.set_content_type("text/event-stream")
    sent = b"".join(map(turn.feed, pieces))
    return sent + b"".join(action.data for action in turn.close() if isinstance(action, SendBytes))


def frames(pieces, question=None, **options):
    return payloads(client_bytes(pieces, question, **options))


def deltas(pieces, question=None, **options):
    return [choice["delta"] for frame in frames(pieces, question, **options) for choice in frame["choices"]]


def test_stream_of_a_text_has_the_frames_of_the_api():
    question = chat_params(stream_options={"include_usage": True})
    sent = client_bytes([chunk(content="hé"), chunk("stop", content="y"), USAGE, DONE], question)
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    nothing = {"logprobs": None, "finish_reason": None}
    assert payloads(sent) == [
        {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "", "refusal": None}, **nothing}], "usage": None},
        {**head, "choices": [{"index": 0, "delta": {"content": "hé"}, **nothing}], "usage": None},
        {**head, "choices": [{"index": 0, "delta": {"content": "y"}, **nothing}], "usage": None},
        {**head, "choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}], "usage": None},
        {**head, "choices": [], "usage": {
            "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0},
        }},
    ]  # fmt: skip
    assert sent.endswith(DONE)


def test_usage_is_sent_only_if_the_client_asks():
    assert all("usage" not in frame for frame in frames([chunk("stop", content="a"), USAGE, DONE]))


@pytest.mark.parametrize(
    ("went", "prompt_details"), [(0, {"cached_tokens": 2}), (5, {"cached_tokens": 2, "cache_write_tokens": 5})]
)
def test_usage_shows_cache_write_tokens_if_there_are_any(went, prompt_details):
    details = {"prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": went}}
    count = sse({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1, **details}})
    pieces = [chunk("stop", content="a"), count, DONE]
    assert (
        json.loads(client_bytes(pieces, chat_params(stream=False)))["usage"]["prompt_tokens_details"] == prompt_details
    )
    shown = frames(pieces, chat_params(stream_options={"include_usage": True}))[-1]
    assert shown["usage"]["prompt_tokens_details"] == prompt_details


def test_tool_call_id_and_name_are_sent_once():
    output = deltas(
        [
            chunk(tool_calls=[call(0, "x", "f", '{"a":')]),
            chunk(tool_calls=[call(0, "x", "f", '"b"}')]),
            chunk("stop"),
            DONE,
        ]
    )
    assert output[1:] == [
        {"tool_calls": [{"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"b"}'}}]},
        {},
    ]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (("reasoning",), {"reasoning": "hm"}),
        (("reasoning_content", "reasoning"), {"reasoning_content": "hm", "reasoning": "hm"}),
    ],
)
def test_reasoning_goes_to_the_fields_that_the_model_configures(fields, wanted):
    assert deltas([chunk(reasoning="hm"), chunk("stop"), DONE], reasoning=fields)[1] == wanted
    whole = client_bytes([chunk(reasoning="hm"), chunk("stop"), DONE], chat_params(stream=False), reasoning=fields)
    assert {name: json.loads(whole)["choices"][0]["message"][name] for name in wanted} == wanted


def test_choices_open_in_ascending_order():
    output = frames([chunk(content="b", index=1), chunk("stop", index=1), chunk("stop"), DONE], chat_params(n=2))
    order = [
        (choice["index"], choice["delta"].get("role"), choice["finish_reason"])
        for frame in output
        for choice in frame["choices"]
    ]
    assert order == [
        (0, "assistant", None),
        (1, "assistant", None),
        (1, None, None),
        (1, None, "stop"),
        (0, None, "stop"),
    ]


def test_choices_that_are_missing_are_a_warning():
    for stream in (True, False):
        ledger = Warnings()
        sent = client_bytes([chunk("stop", content="a"), DONE], chat_params(n=2, stream=stream), ledger=ledger)
        assert "unenforced:n" in ledger.entries()
        assert (b": gateway-warnings" in sent and b"unenforced:n" in sent) is stream


def test_usage_is_in_every_chunk_if_the_client_asks():
    first = json.loads(chunk(content="a")[6:]) | {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    question = chat_params(stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [
        frame["usage"]["completion_tokens"] for frame in frames([sse(first), chunk("stop"), USAGE, DONE], question)
    ]
    assert counts == [1, 1, 4, 4]


def test_obfuscation_is_added_if_the_client_asks():
    output = frames([chunk("stop", content="a"), DONE], chat_params(stream_options={"include_obfuscation": True}))
    assert [frame["obfuscation"] for frame in output] == ["xx"] * 3


def test_extra_fields_come_back_on_the_chunk_they_are_about():
    def chunk_with_ids(text, *ids, **choice):
        body = json.loads(chunk(content=text)[6:]) | {"prompt_token_ids": [1]}
        body["choices"][0] |= {"token_ids": list(ids), **choice}
        return sse(body)

    stream = [
        chunk_with_ids("a", 2),
        chunk_with_ids("<", 3),
        chunk_with_ids("b", 4, stop_reason="x", finish_reason="stop"),
        DONE,
    ]
    wanted = frozenset({"prompt_token_ids", "token_ids"})
    for usage in (False, True):
        output = frames(
            stream, chat_params(return_token_ids=True, stream_options={"include_usage": usage}), wanted=wanted
        )
        assert output[1]["prompt_token_ids"] == [1] and output[1]["choices"] == []
        found = [
            (c["delta"].get("content"), c.get("token_ids"), c.get("stop_reason"))
            for frame in output
            for c in frame["choices"]
        ]
        assert found == [("", None, None), ("a", [2], None), ("<b", [3, 4], None), (None, None, "x")]
    whole = json.loads(client_bytes(stream, chat_params(stream=False), wanted=wanted))
    assert whole["prompt_token_ids"] == [1]
    assert (whole["choices"][0]["token_ids"], whole["choices"][0]["stop_reason"]) == ([2, 3, 4], "x")


THOUGHT, CALL = chunk(reasoning="\nhm\n"), chunk(tool_calls=[call(0, "x", "f", "{}")])


@pytest.mark.parametrize("format", ["hermes_json", "native"])
@pytest.mark.parametrize(
    ("pieces", "content"),
    [
        ([THOUGHT, chunk(content="\n\na\n b")], "\n\na\n b"),
        ([THOUGHT, chunk(content="\n"), chunk(content="\n"), chunk(content="a"), chunk(content=" b")], "\n\na b"),
        ([THOUGHT, chunk(content="\n\n"), CALL], "\n\n"),
        ([THOUGHT, chunk(content="a"), chunk(reasoning="hm"), chunk(content=" b")], "a b"),
        ([chunk(content=" a")], " a"),
    ],
)
def test_white_space_after_reasoning_of_the_backend_is_kept(pieces, content, format):
    """vLLM leaves this white space in the content, llama.cpp does not."""
    whole = json.loads(
        client_bytes([*pieces, chunk("stop"), DONE], chat_params(stream=False, tools=[FUNCTION]), format=format)
    )
    assert whole["choices"][0]["message"]["content"] == content


def test_logprobs_of_white_space_after_reasoning_are_kept():
    gap, shown, end = (
        {"token": token, "logprob": -0.5, "bytes": [1], "top_logprobs": []} for token in ("\n\n", "a", "")
    )
    stream = [
        THOUGHT, chunk(content="\n\na", logprobs={"content": [gap, shown]}), chunk(content="", logprobs={"content": [end]}),
        chunk("stop"), DONE,
    ]  # fmt: skip
    for pieces, kept in ((stream, [gap, shown, end]), ([THOUGHT, *stream[2:]], [end])):
        ledger = Warnings()
        (choice,) = json.loads(client_bytes(pieces, chat_params(stream=False), ledger=ledger))["choices"]
        assert choice["logprobs"]["content"] == kept
        assert "dropped:logprobs" not in ledger.entries()


def test_logprobs_annotations_and_refusals_are_sent_streamed_and_whole():
    entry = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    stream = [
        chunk(content="a", logprobs={"content": [entry]}), chunk(annotations=[{"type": "url_citation"}]),
        chunk(refusal="a", logprobs={"refusal": [entry]}), chunk(refusal="b"), chunk("stop"), DONE,
    ]  # fmt: skip
    choices = [frame["choices"][0] for frame in frames(stream)][1:5]
    assert choices[0]["logprobs"] == {"content": [entry], "refusal": None}
    assert choices[1]["delta"] == {"annotations": [{"type": "url_citation"}]}
    assert choices[2]["logprobs"] == {"content": None, "refusal": [entry]} and choices[3]["delta"] == {"refusal": "b"}
    (whole,) = json.loads(client_bytes(stream, chat_params(stream=False)))["choices"]
    assert whole["logprobs"] == {"content": [entry], "refusal": [entry]}
    assert whole["message"] == {
        "role": "assistant",
        "content": "a",
        "refusal": "ab",
        "annotations": [{"type": "url_citation"}],
    }


def test_role_is_that_of_the_last_message_if_the_model_continues_it():
    assert deltas([chunk("stop", content="a"), DONE], chat_params(add_generation_prompt=False))[0]["role"] == "user"


def test_service_tier_is_sent_if_the_request_names_one():
    assert frames([chunk("stop"), DONE], chat_params(service_tier="flex"))[0]["service_tier"] == "default"
    assert (
        json.loads(client_bytes([chunk("stop"), DONE], chat_params(service_tier="auto", stream=False)))["service_tier"]
        == "default"
    )


def test_legacy_functions_request_gets_one_function_call():
    two = [call(0, "x", "f", "{}"), call(1, "y", "f", "{}")]
    functions = [{"name": "f"}]
    ledger = Warnings()
    output = frames([chunk(tool_calls=two), chunk("stop"), DONE], chat_params(functions=functions), ledger=ledger)
    assert [c["delta"] for frame in output for c in frame["choices"]][1:] == [
        {"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": "{}"}}, {},
    ]  # fmt: skip
    assert output[-1]["choices"][0]["finish_reason"] == "function_call" and "dropped:tool_calls" in ledger.entries()
    (whole,) = json.loads(
        client_bytes([chunk(tool_calls=two), chunk("stop"), DONE], chat_params(functions=functions, stream=False))
    )["choices"]
    assert whole["finish_reason"] == "function_call" and whole["message"]["function_call"] == {
        "name": "f",
        "arguments": "{}",
    }
    (plain,) = json.loads(
        client_bytes([chunk("length", tool_calls=two), DONE], chat_params(functions=functions, stream=False))
    )["choices"]
    assert plain["finish_reason"] == "length"
    assert (
        frames([chunk("stop", content="a"), DONE], chat_params(functions=functions))[-1]["choices"][0]["finish_reason"]
        == "stop"
    )


def test_response_without_content_has_one_empty_text():
    (choice,) = json.loads(client_bytes([chunk("stop"), DONE], chat_params(stream=False)))["choices"]
    assert choice["message"]["content"] == "" and choice["finish_reason"] == "stop"


def test_hosted_tools_are_not_encoded_in_chat():
    event = ev.BuiltinItem(0, Raw(b"{}"))
    head, question = chat.CompletionHead("c", 1, "m"), chat_params()
    assert ChatStreamEncoder(head, question, Warnings()).encode([event]) == b""
    assert ChatBodyEncoder(head, question, Warnings()).encode([event]) == b""


@pytest.mark.parametrize("stream", [True, False])
def test_encoder_handles_every_event(stream):
    encoder = chat.chat_encoder(chat.CompletionHead("c", 1, "m"), chat_params(stream=stream), Warnings(), str)
    arms = (
        encoder._arms
        if isinstance(encoder, ChatStreamEncoder)
        else encoder._choices.setdefault(0, chat.whole._ChatChoice())._arms.keys() | {ev.Usage, ev.Failure}
    )
    assert set(ev.Event.__args__) == set(arms)


# The SDK

PIECES = [
    chunk(content="hello <tool_"), chunk(content='call>{"name": "f", "arguments": {"a": "é'), chunk(content='"}}</tool_call>'),
    chunk(content="<think>so</think>"), chunk(reasoning="hm"), chunk(refusal="no"), chunk(tool_calls=[call(0, "x", "f", "{")]),
    chunk(tool_calls=[call(0, None, None, "}"), call(1, "x", "f", {"a": "b"})]), chunk(index=1, content="two"),
    chunk("length", index=1), chunk("weird"), USAGE,
]  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(stream=st.lists(st.sampled_from(PIECES), max_size=10).map(b"".join), n=st.sampled_from([1, 2]), data=st.data())
def test_sdk_folds_the_stream_to_the_whole_body_under_any_cut(stream, n, data):
    stream += chunk("stop") + (chunk("stop", index=1) if n == 2 else b"") + DONE
    question = chat_params(n=n, tools=[FUNCTION], stream_options={"include_usage": True})
    sent = client_bytes([stream], question)
    assert sent == client_bytes(singly(stream), question) == client_bytes(cut(data, stream), question)
    state = ChatCompletionStreamState()
    for frame in payloads(sent):
        state.handle_chunk(ChatCompletionChunk.model_validate(frame))
    folded = state.current_completion_snapshot.model_dump(exclude_unset=True)
    whole = ChatCompletion.model_validate_json(client_bytes([stream], chat_params(n=n, tools=[FUNCTION], stream=False)))
    assert meaning(folded) == meaning(whole.model_dump(exclude_unset=True))


TEXTS = [
    chunk(reasoning="hm"), chunk(reasoning=" so"), chunk(tool_calls=[call(0, None, None, "}")]), chunk(content="<tool_"),
    chunk(content="a"), chunk(content=" wörd"), chunk(content='"\\\n'), chunk(content=""), chunk(content="long " * 40),
    chunk(content="raw").replace(b"raw", b"\xff"), chunk(content="raw").replace(b"raw", b'","'), chunk(content="a")[:-1],
    chunk(content="\n").replace(b"\\n", b"\n"),
]  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(
    reads=st.lists(st.sampled_from([*TEXTS, *TEXTS, *PIECES]), max_size=12),
    question=st.sampled_from(
        [chat_params(), chat_params(stream_options={"continuous_usage_stats": True}), chat_params(stream=False)]
    ),
    format=st.sampled_from(["native", "think", "hermes_json"]),
    limit=st.sampled_from([150, 8 << 20]),
)
def test_chunk_fed_alone_is_encoded_as_among_others(reads, question, format, limit):
    """A chunk like the one before takes a shorter path to the client."""
    outcomes = []
    for pieces in (reads, singly(b"".join(reads))):
        turn = make_turn(question, format=format, limit=limit)
        turn.start()
        turn.set_content_type("text/event-stream")
        sent = b"".join(map(turn.feed, pieces))
        ended = b"".join(action.data for action in turn.close() if isinstance(action, SendBytes))
        outcomes.append((sent + ended, turn.problem, turn.begun, turn.usage))
    assert outcomes[0] == outcomes[1]


def test_failure_ends_the_events_of_its_chunk():
    two = [{"index": 0, "delta": {}, "finish_reason": "error"}, {"index": 1, "delta": {"content": "late"}}]
    turn = make_turn(chat_params(n=2), format="native")
    turn.start()
    turn.set_content_type("text/event-stream")
    assert b"late" not in turn.feed(sse({"choices": two})) and turn.problem


def meaning(completion):
    """Return the meaning of a completion; empty parts compare equal however they are spelled."""
    entries = []
    for choice in completion["choices"]:
        message = choice["message"]
        calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
        entries.append(
            [
                message.get("content") or "",
                message.get("reasoning_content") or "",
                message.get("refusal") or "",
                calls,
                choice["finish_reason"],
            ]
        )
    return entries, completion["usage"]["total_tokens"]


# Custom tools

INPUT = 'say "hé" \\ \n😀 </tool_call>'


@settings(deadline=None)
@given(
    arguments=st.sampled_from([json.dumps({"input": INPUT}), json.dumps({"input": INPUT}, ensure_ascii=False)]),
    data=st.data(),
)
def test_custom_tool_input_is_decoded_under_any_cut(arguments, data):
    for pieces in (cut(data, arguments), singly(arguments)):
        chunks = [
            chunk(tool_calls=[call(0, "x", "patch")]),
            *(chunk(tool_calls=[call(0, None, None, piece)]) for piece in pieces),
        ]
        first, *rest, last = deltas([*chunks, chunk("stop"), DONE], chat_params(tools=[CUSTOM]))[1:]
        assert first == {
            "tool_calls": [{"index": 0, "id": "x", "type": "custom", "custom": {"name": "patch", "input": ""}}]
        }
        assert "".join(delta["tool_calls"][0]["custom"]["input"] for delta in rest) == INPUT and last == {}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ('{"input": "\\ud83d"}', "\ufffd"),
        ('{"input": "\\ud83d\\u0041"}', "\ufffdA"),
        ('{"code": 1}', '{"code": 1}'),
        ("[1]", "[1]"),
        ('{"input": "a", "b": 1}', "a"),
    ],
)
def test_custom_tool_input_of_an_odd_shape_is_not_lost(arguments, wanted):
    chunks = [
        chunk(tool_calls=[call(0, "x", "patch")]),
        *(chunk(tool_calls=[call(0, None, None, piece)]) for piece in arguments),
    ]
    (choice,) = json.loads(client_bytes([*chunks, chunk("stop"), DONE], chat_params(tools=[CUSTOM], stream=False)))[
        "choices"
    ]
    assert choice["message"]["tool_calls"] == [
        {"id": "x", "type": "custom", "custom": {"name": "patch", "input": wanted}}
    ]


def test_function_calls_stay_functions_beside_custom_tools():
    stream = [chunk(tool_calls=[call(0, "x", "f", "{}")]), chunk(content="a"), chunk("stop"), DONE]
    assert deltas(stream, chat_params(tools=[CUSTOM, FUNCTION]))[1]["tool_calls"][0]["type"] == "function"


def test_filters_close_without_events():
    _, filters = lower_request(chat_params(tools=[CUSTOM, FUNCTION], parallel_tool_calls=False).request, Warnings())
    assert len(filters) == 2 and list(close_filters(filters)) == []


def test_tool_calls_beyond_one_are_dropped_without_parallel_tool_calls():
    ledger = Warnings()
    stream = [chunk(tool_calls=[call(0, "x", "f", "{}"), call(1, "y", "f", "{}")]), chunk("stop"), DONE]
    output = deltas(stream, chat_params(tools=[FUNCTION], parallel_tool_calls=False), ledger=ledger)
    assert [delta["tool_calls"][0].get("id") for delta in output if "tool_calls" in delta] == ["x", None]
    assert "dropped:tool_calls" in ledger.entries()


# Rounds


def test_round_continues_where_the_round_before_ended():
    requests = iter([Request(model="m", messages=(), fresh=True), None])
    turn = make_turn(chat_params(stream_options={"include_usage": True}), next_request=requests.__next__)
    turn.start()
    first = turn.feed(chunk(content="wait ") + chunk("length") + USAGE + DONE)
    sent, go_on = turn.close()
    assert isinstance(go_on, StartCall) and go_on.request.fresh and turn.begun and not turn.round_has_content
    second = turn.feed(chunk(content="done") + chunk("stop") + USAGE + DONE)
    last, end = turn.close()
    output = payloads(first + sent.data + second + last.data)
    assert end == EndResponse() and last.data.endswith(DONE) and output[-1]["usage"]["total_tokens"] == 14
    texts = [c["delta"].get("content") or "" for frame in output for c in frame["choices"]]
    assert "".join(texts) == "wait done"


def test_round_without_output_can_be_retried():
    requests = iter([Request(model="m", messages=()), None])
    turn = make_turn(next_request=requests.__next__)
    turn.start()
    turn.feed(chunk(content="a") + chunk("stop") + DONE)
    turn.close()
    assert turn.fail(Problem(502, "broke")) == [SendBytes(b""), RoundFailed(Problem(502, "broke"))]


# Failures


def test_failure_before_the_first_output_sends_nothing():
    turn = make_turn()
    turn.start()
    problem = Problem(503, "boom", "server_is_overloaded")
    assert turn.feed(chunk(role="assistant") + sse({"error": {"message": "boom", "code": 503}})) == b""
    assert not turn.begun and turn.close() == [SendBytes(b""), RoundFailed(problem)]
    turn.start()
    assert turn.problem is None and turn.feed(chunk(content="a")) and turn.begun


def test_failure_before_the_first_output_is_sent_if_there_is_no_retry():
    turn = make_turn()
    turn.start()
    assert turn.fail(Problem(502, "broke")) == [SendBytes(b""), RoundFailed(Problem(502, "broke"))]
    assert turn.end_after_failure() == [SendBytes(b"data: " + Problem(502, "broke").body() + b"\n\n"), EndResponse()]


def test_done_is_reset_between_two_rounds():
    """A caller that waits for the second round must not take it for done."""
    turn = make_turn()
    turn.start()
    turn.feed(DONE + sse({"error": {"message": "boom", "code": 503}}))
    assert turn.done and isinstance(turn.close()[-1], RoundFailed) and not turn.done
    turn.start()
    assert not turn.done


def test_cancellation_between_two_rounds_is_the_error_that_is_sent():
    turn = make_turn()
    turn.start()
    turn.fail(Problem(502, "broke"))
    assert turn.end(CANCELLED) == [SendBytes(b"data: " + CANCELLED.body() + b"\n\n"), EndResponse()]


def test_failure_after_the_first_output_is_an_error_frame_without_done():
    question = chat_params(stream_options={"include_usage": True})
    sent = client_bytes([chunk(content="a"), USAGE, sse({"error": "boom"}), chunk("stop"), DONE], question)
    assert payloads(sent)[-1] == {
        "error": {"message": "boom", "type": "server_error", "param": None, "code": "upstream_error"}
    }
    assert DONE not in sent


def test_failure_of_a_whole_response_sends_no_body():
    turn = make_turn(chat_params(stream=False))
    turn.start()
    sent, _ = turn.fail(Problem(504, "late"))
    assert sent.data == b"" and turn.problem == Problem(504, "late")
    assert turn.keep_alive() == b"" and turn.begin_response() == b""


def test_head_of_the_stream_is_sent_once():
    turn = make_turn()
    turn.start()
    assert payloads(turn.begin_response())[0]["choices"][0]["delta"]["role"] == "assistant"
    assert turn.begin_response() == b"" and turn.keep_alive() == b": keep-alive\n\n"
    assert b"role" not in turn.feed(chunk(content="a"))


def test_request_without_tools_has_no_callable_tools():
    assert Request(model="m", messages=()).callable_tools == ()


TEXTS = st.builds(
    ev.TextDelta,
    st.integers(0, 1),
    st.sampled_from(["a", "", 'é"\\\x00\n', "𐐷"]),
    st.sampled_from([(), (), (), (ev.Logprob("a", -1.0, b"a"),)]),
)
ARGUMENTS = st.builds(ev.ToolArgsDelta, st.integers(0, 1), st.just(0), st.sampled_from(["{", '"\x00"', "}"]))
OTHERS = st.sampled_from(
    [
        ev.ReasoningDelta(0, "m"),
        ev.ExtraField(1, "x", Raw(b"1")),
        ev.ExtraField(1, "x", Raw(b"[1]")),
        ev.ExtraField(0, "x", Raw(b'"a"'), inside=True),
        ev.ToolCallStart(0, 1, "call_2", "g"),
        ev.Usage(1, 2),
    ]
)


@given(
    runs=st.lists(
        st.lists(TEXTS, min_size=1) | st.lists(ARGUMENTS, min_size=1) | OTHERS.map(lambda one: [one]), max_size=6
    ),
    usage=st.sampled_from(
        [{}, {"continuous_usage_stats": True}, {"include_usage": True}, {"include_obfuscation": True}]
    ),
    legacy=st.booleans(),
)
@example(
    runs=[[ev.ToolArgsDelta(0, 0, "{"), ev.ToolArgsDelta(0, 0, "}")]], usage={"include_obfuscation": True}, legacy=False
)
def test_events_encoded_together_give_the_bytes_of_each_encoded_alone(runs, usage, legacy):
    question = chat_params(
        n=2, stream_options=usage, **({"functions": [FUNCTION["function"]]} if legacy else {"tools": [FUNCTION]})
    )

    def encoded(runs):
        encoder = chat.chat_encoder(chat.CompletionHead("chatcmpl-1", 7, "m"), question, Warnings(), lambda: "xx")
        begun = [encoder.encode([ev.ToolCallStart(choice, 0, "call_1", "f")]) for choice in (0, 1)]
        return [*begun, *(encoder.encode(run) for run in runs)]

    assert b"".join(encoded(runs)) == b"".join(encoded([[event] for run in runs for event in run]))


def test_members_that_change_before_the_content_do_not_pile_up():
    turn = make_turn(chat_params(), format="native")
    turn.start()
    turn.set_content_type("text/event-stream")
    for number in range(100):
        assert turn.feed(sse({"choices": [], "odd": number})) == b""
        assert len(turn._early) <= 1
    (first, *_) = payloads(turn.feed(chunk(content="Hi")))
    assert first["odd"] == 99


AUDIO = [{"id": "audio_1", "data": "AAAA"}, {"data": "BBBB"}, {"data": "CCCC"}]


def test_deltas_of_a_member_without_text_are_sent_as_they_come():
    turn = make_turn(chat_params(), format="native")
    turn.start()
    turn.set_content_type("text/event-stream")
    first, *later = (turn.feed(chunk(audio=audio)) for audio in AUDIO)
    assert first == b"" and turn.begun
    sent = [choice["delta"]["audio"] for data in later for choice in payloads(data)[-1]["choices"]]
    assert sent == AUDIO[:-1]
    turn.feed(chunk("stop"))
    end, _ = turn.close()
    assert [choice["delta"] for frame in payloads(end.data) for choice in frame["choices"]] == [{"audio": AUDIO[-1]}]


def test_member_of_a_choice_that_failed_without_content_does_not_reach_the_client():
    turn = make_turn(chat_params(), format="native")
    turn.start()
    turn.set_content_type("text/event-stream")
    assert turn.feed(chunk(audio=AUDIO[0])) == b""
    assert isinstance(turn.fail(Problem(502, "broke"))[-1], RoundFailed)
    turn.start()
    turn.set_content_type("text/event-stream")
    assert "audio" not in turn.feed(chunk(content="Hi")).decode()


@pytest.mark.parametrize("stream", [True, False])
def test_round_that_failed_after_two_deltas_of_a_member_is_not_repeated(stream):
    turn = make_turn(chat_params(stream=stream), format="native")
    turn.start()
    turn.set_content_type("text/event-stream")
    for audio in AUDIO[:2]:
        turn.feed(chunk(audio=audio))
    assert turn.fail(Problem(502, "broke"))[-1] == EndResponse()
