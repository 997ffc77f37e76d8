"""Test signatures of reasoning and tool calls: they go to the client, and back to the upstream unchanged."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from gateway.api import chat
from gateway.backends import KINDS
from gateway.backends.openai.decoder import ChatDecoder
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget
from gateway.backends.openai.request_body import chat_body as upstream_body
from gateway.events import ReasoningDelta, TextDelta, ToolArgsDelta, ToolCallStart
from gateway.pipeline.pipeline import Pipeline, SendBytes
from gateway.warnings import Warnings
from support.app import gateway
from support.pipeline import DONE, call, chunk, cut, events_of, grammatical, parser_settings, sse, upstream
from support.sampling import examples
from support.sse import payloads
from support.upstream import chunk as frame
from support.upstream import completion_body as body
from support.upstream import stream, whole


def thinking(text, signature=None):
    return {"type": "thinking", "thinking": text, **({} if signature is None else {"signature": signature})}


def redacted(data):
    return {"type": "redacted_thinking", "data": data}


def signed_reasoning(text, signature):
    return ReasoningDelta(0, text, json.dumps({"type": "thinking", "signature": signature}, separators=(",", ":")))


HIDDEN = ReasoningDelta(0, "", '{"type":"redacted_thinking","data":"d"}')
ONE = [thinking("Hm.", "s")]
TWO = [thinking("Hm.", "s"), redacted("d"), thinking("So.", "t")]
TWO_EVENTS = [signed_reasoning("Hm.", "s"), HIDDEN, signed_reasoning("So.", "t")]

# Deltas of an upstream in several styles, and their events.
THOUGHTS = {
    "pieces, their text also in the field for reasoning": (
        [
            {"reasoning_content": "H", "thinking_blocks": [thinking("H", "")]},
            {"reasoning_content": "m.", "thinking_blocks": [thinking("m.", "")]},
            {"reasoning_content": "", "thinking_blocks": [thinking("", "s")]},
        ],
        [signed_reasoning("Hm.", "s")],
    ),
    "pieces in blocks only": (
        [{"thinking_blocks": [thinking("H")]}, {"thinking_blocks": [thinking("m.")]}, {"thinking_blocks": [thinking("", "s")]}],
        [signed_reasoning("Hm.", "s")],
    ),
    "the signature with the last piece": (
        [{"thinking_blocks": [thinking("H")]}, {"reasoning_content": "m.", "thinking_blocks": [thinking("m.", "s")]}],
        [signed_reasoning("Hm.", "s")],
    ),
    "pieces in the field, the block whole at the end": (
        [{"reasoning_content": "H"}, {"reasoning_content": "m."}, {"thinking_blocks": [{"index": 0, **thinking("Hm.", "s")}]}],
        [signed_reasoning("Hm.", "s")],
    ),
    "the block whole beside the last piece": (
        [{"reasoning": "H"}, {"reasoning": "m.", "thinking_blocks": [thinking("Hm.", "s")]}],
        [signed_reasoning("Hm.", "s")],
    ),
    "the signature beside the text": ([{"reasoning": "Hm.", "thinking_blocks": [thinking("", "s")]}], [signed_reasoning("Hm.", "s")]),
    "all blocks at once": ([{"thinking_blocks": TWO}], TWO_EVENTS),
    "all blocks at once, their texts joined": ([{"reasoning_content": "Hm.\n\nSo.", "thinking_blocks": TWO}], TWO_EVENTS),
    "more in the field than in the blocks": (
        [{"reasoning_content": "Hm. Well.", "thinking_blocks": ONE}],
        [signed_reasoning("Hm.", "s"), ReasoningDelta(0, " Well.")],
    ),
    "something else in the field": (
        [{"reasoning_content": "A summary.", "thinking_blocks": [thinking("Hm.")]}],
        [ReasoningDelta(0, "A summary.Hm.")],
    ),
    "the same word twice": (
        [{"thinking_blocks": [thinking("ha")]}, {"thinking_blocks": [thinking("ha")]}, {"thinking_blocks": [thinking("", "s")]}],
        [signed_reasoning("haha", "s")],
    ),
    "a signature without a text": ([{"thinking_blocks": [thinking("", "s")]}, {"thinking_blocks": [thinking("", "t")]}], [signed_reasoning("", "s"), signed_reasoning("", "t")]),
    "no signature at all": ([{"reasoning": "Hm.", "thinking_blocks": []}, {"thinking_blocks": None}], [ReasoningDelta(0, "Hm.")]),
    "what is no block": (
        [
            {"reasoning": "H", "thinking_blocks": "soon"},
            {"thinking_blocks": [7, {}, {"type": "thinking"}, thinking(""), thinking(5), redacted(None), redacted(""), {"type": "text", "thinking": "x"}]},
            {"reasoning": "m.", "thinking_blocks": {"type": "thinking"}},
        ],
        [ReasoningDelta(0, "Hm.")],
    ),
}  # fmt: skip


def events_before_finish(pieces, format="native", **options):
    *events, _usage = events_of(pieces, parser_settings(format, **options))
    assert grammatical(events)
    return events[:-1]


@pytest.mark.parametrize("format", ["native", "hermes_json"])
def test_signature_covers_reasoning_that_was_fed_alone(format):
    pieces = [chunk(reasoning_content=piece) for piece in ("H", "m", ".", " So", ".")]
    frames = [*pieces, chunk(thinking_blocks=[thinking("Hm. So.", "s")]), chunk("stop", content="Yes."), DONE]
    source = upstream(parser_settings(format))
    events = [event for frame in frames for event in events_of_frame(source, frame)]
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["H", "m", ".", " So", ".", ""]


def events_of_frame(source, data):
    """Return the events of a frame, read as a Pipeline reads it."""
    events = source.single_chunk_decoder and source.single_chunk_decoder(data)
    return source.feed(data) if events is None else events


@pytest.mark.parametrize("format", ["native", "auto", "hermes_json"])
@pytest.mark.parametrize("case", THOUGHTS)
def test_reasoning_is_sent_once_with_its_signature_at_the_end(case, format):
    deltas, wanted = THOUGHTS[case]
    frames = [*(chunk(**delta) for delta in deltas), chunk("stop", content="Yes."), DONE]
    assert events_before_finish(frames, format) == [*wanted, TextDelta(0, "Yes.")]


def whole_events(message, format="native"):
    up = upstream(parser_settings(format), content_type="application/json")
    data = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    *events, _finish, _usage = [*up.feed(data), *up.close()]
    return events


@pytest.mark.parametrize("text", ["Hm.So.", "Hm.\nSo.", None])
def test_thinking_blocks_of_a_whole_response_stay_apart(text):
    message = {"role": "assistant", "content": "Yes.", "reasoning_content": text, "thinking_blocks": TWO}
    assert whole_events(message) == [*TWO_EVENTS, TextDelta(0, "Yes.")]


def test_reasoning_of_each_choice_has_its_own_signature():
    frames = [
        chunk(reasoning="A", index=0),
        chunk(reasoning="B", index=1),
        chunk(thinking_blocks=[thinking("B", "b")], index=1),
        chunk(thinking_blocks=[thinking("A", "a")], index=0),
    ]
    up = upstream(parser_settings("native"), n=2)
    events = [event for one in frames for event in up.feed(one)]
    assert [(e.choice, e.text, bool(e.signature)) for e in events] == [(0, "A", False), (1, "B", False), (1, "", True), (0, "", True)]  # fmt: skip


def test_reasoning_length_is_counted_once_with_thinking_blocks():
    decoder = ChatDecoder(Warnings())
    for delta in ({"reasoning": "abc"}, {"reasoning": "def"}, {"thinking_blocks": [thinking("abcdef", "s")]}):
        decoder.decode(chunk(**delta)[6:])
    assert decoder.decoded_characters == 6


pieces = st.lists(st.text('ab"\\é😀\n', min_size=1, max_size=4), max_size=5)


@st.composite
def signed_streams(draw):
    """Draw thinking blocks, and an upstream's chunks for them in one of several styles."""
    style = draw(st.sampled_from(["both", "blocks", "field", "beside"]))
    deltas, wanted = [], []
    for number, texts in enumerate(draw(st.lists(pieces, min_size=1, max_size=4))):
        block = thinking("".join(texts), f"s{number}")
        for text in texts:
            deltas.append({
                "both": {"reasoning_content": text, "thinking_blocks": [thinking(text, "")]},
                "blocks": {"thinking_blocks": [thinking(text)]},
                "field": {"reasoning_content": text},
                "beside": {"reasoning": text, "reasoning_content": text},
            }[style])  # fmt: skip
        deltas.append({"thinking_blocks": [block if style in ("field", "beside") else {**block, "thinking": ""}]})
        wanted.append(signed_reasoning(block["thinking"], block["signature"]))
    return b"".join(chunk(**delta) for delta in deltas) + chunk("stop", content="Yes.") + DONE, wanted


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), signed_streams())
def test_thinking_blocks_mean_the_same_in_every_style_and_cut(data, case):
    sent, wanted = case
    assert events_before_finish(cut(data, sent)) == [*wanted, TextDelta(0, "Yes.")]


SHAPES = [
    lambda word: {"reasoning_content": word},
    lambda word: {"thinking_blocks": [thinking(word)]},
    lambda word: {"reasoning_content": word, "thinking_blocks": [thinking(word, "")]},
    lambda word: {"thinking_blocks": [thinking("", word)]},
    lambda word: {"thinking_blocks": [thinking(word, "s")]},
    lambda word: {"thinking_blocks": [redacted(word)]},
    lambda word: {"content": word},
    lambda word: {"tool_calls": [{**call(0, "x", "f", "{}"), "provider_specific_fields": {"thought_signature": word}}]},
]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SHAPES), st.sampled_from(["a", "b", '"', "é"])), max_size=10))
def test_chunk_of_a_learned_form_with_signatures_means_the_same_as_decoded(chunks):
    learning, decoding = ChatDecoder(Warnings()), ChatDecoder(Warnings())
    for shape, word in chunks:
        payload = sse({"choices": [{"index": 0, "delta": shape(word)}]})[6:-2]
        assert learning.decode(payload) == decoding._decoded(payload)


# Tool calls

FORMS = {
    "LiteLLM": {"provider_specific_fields": {"thought_signature": "sig"}},
    "Google": {"extra_content": {"google": {"thought_signature": "sig"}}},
}
IN_FUNCTION = {"name": "f", "arguments": "{}", "provider_specific_fields": {"thought_signature": "sig"}}
NO_FORMS = [
    {"provider_specific_fields": None, "extra_content": None},
    {"provider_specific_fields": {"thought_signature": ""}, "extra_content": {"google": None}},
    {"provider_specific_fields": "sig", "extra_content": {"google": {"thought_signature": 5}}},
]


def starts(events):
    return [(e.id, e.name, e.signature) for e in events if type(e) is ToolCallStart]


def events_of_calls(*calls, format="native", ledger=None):
    return events_before_finish(
        [chunk(tool_calls=[one]) for one in calls] + [chunk("tool_calls"), DONE], format, ledger=ledger
    )


@pytest.mark.parametrize("format", ["native", "auto", "hermes_json"])
def test_tool_call_signature_is_read_in_each_form(format):
    for form in FORMS.values():
        assert starts(events_of_calls({**call(0, "x", "f", "{}"), **form}, format=format)) == [("x", "f", "sig")]
    assert starts(events_of_calls({"index": 0, "id": "x", "function": IN_FUNCTION}, format=format)) == [
        ("x", "f", "sig")
    ]
    for form in NO_FORMS:
        assert starts(events_of_calls({**call(0, "x", "f", "{}"), **form}, format=format)) == [("x", "f", "")]
    empty = {"provider_specific_fields": {"thought_signature": ""}, **FORMS["Google"]}
    assert starts(events_of_calls({**call(0, "x", "f", "{}"), **empty}, format=format)) == [("x", "f", "sig")]


def test_tool_call_that_interleaves_keeps_its_signature():
    form = FORMS["LiteLLM"]
    other = {"provider_specific_fields": {"thought_signature": "gis"}}
    events = events_of_calls(
        {**call(0, "x", "f", '{"a":'), **form}, {**call(1, "y", "g", "{"), **other}, call(0, arguments='"b"}'), call(1, arguments="}")
    )  # fmt: skip
    assert starts(events) == [("x", "f", "sig"), ("y", "g", "gis")]


def test_tool_call_signature_after_its_start_is_dropped_with_a_warning():
    ledger = Warnings()
    events = events_of_calls(call(0, "x", "f", "{"), {**call(0, arguments="}"), **FORMS["Google"]}, ledger=ledger)
    assert starts(events) == [("x", "f", "")]
    assert [e.json for e in events if type(e) is ToolArgsDelta] == ["{}"]
    assert ledger.entries() == ["dropped:tool_calls.provider_specific_fields", "estimated:usage"]


def test_signature_stays_if_the_response_repeats_the_prefill():
    settings = parser_settings("native")
    settings = replace(settings, context=replace(settings.context, prefill="Hm", echoed=True))
    frames = [chunk(thinking_blocks=[redacted("d")]), chunk(reasoning="Hm, yes"), chunk("stop"), DONE]
    *events, _finish, _usage = events_of(frames, settings)
    assert events == [HIDDEN, ReasoningDelta(0, ", yes")]


# The client

FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {}}}
STREAMED = [
    chunk(reasoning_content="Hm", thinking_blocks=[thinking("Hm")]),
    chunk(reasoning_content=".", thinking_blocks=[thinking(".")]),
    chunk(thinking_blocks=[thinking("", "s")]),
    chunk(thinking_blocks=[redacted("d")]),
    chunk(thinking_blocks=[thinking("So.", "t")]),
    chunk(reasoning_content="Unsigned."),
    chunk(tool_calls=[{**call(0, "x", "f", "{"), **FORMS["Google"]}]),
    chunk(tool_calls=[call(0, arguments="}")]),
    chunk("tool_calls"),
    DONE,
]


def parsed_request(**fields):
    return chat.parse_chat(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": "q"}], **fields}).encode()
    )


def client_bytes(frames, ledger=None, **fields):
    question, ledger = parsed_request(**fields), ledger or Warnings()
    encoder = chat.chat_encoder(chat.CompletionHead("chatcmpl-1", 7, "m"), question, ledger, str)
    turn = Pipeline(question.request, lambda _: upstream(parser_settings("native", ledger=ledger)), encoder)
    turn.start()
    turn.set_content_type("text/event-stream")
    return b"".join(map(turn.feed, frames)) + b"".join(one.data for one in turn.close() if isinstance(one, SendBytes))


def test_thinking_block_is_sent_whole_once_it_is_signed():
    deltas = [one["choices"][0]["delta"] for one in payloads(client_bytes(STREAMED, stream=True).decode())[1:-2]]
    assert deltas == [
        {"reasoning_content": "Hm"},
        {"reasoning_content": "."},
        {"thinking_blocks": [{"index": 0, **thinking("Hm.", "s")}]},
        {"thinking_blocks": [{"index": 1, **redacted("d")}]},
        {"reasoning_content": "So."},
        {"thinking_blocks": [{"index": 2, **thinking("So.", "t")}]},
        {"reasoning_content": "Unsigned."},
        {"tool_calls": [{"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": ""}, **FORMS["LiteLLM"]}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
    ]  # fmt: skip


def message_of_stream(text):
    state = ChatCompletionStreamState()
    for one in payloads(text):
        if one != "[DONE]":
            state.handle_chunk(ChatCompletionChunk.model_validate(one))
    return state.get_final_completion().choices[0].message.model_dump()


def without_index(entries):
    return [{name: value for name, value in one.items() if name != "index"} for one in entries]


def test_thinking_blocks_folded_by_the_sdk_are_those_of_the_whole_response():
    folded = message_of_stream(client_bytes(STREAMED, stream=True).decode())
    message = json.loads(client_bytes(STREAMED))["choices"][0]["message"]
    assert message["thinking_blocks"] == without_index(folded["thinking_blocks"]) == TWO
    assert message["reasoning_content"] == folded["reasoning_content"] == "Hm.So.Unsigned."
    (one,), (other,) = message["tool_calls"], folded["tool_calls"]
    assert one["provider_specific_fields"] == other["provider_specific_fields"] == {"thought_signature": "sig"}


def test_thinking_block_that_is_redacted_has_no_text():
    message = json.loads(client_bytes([chunk(thinking_blocks=[redacted("d")]), chunk("stop"), DONE]))["choices"][0][
        "message"
    ]
    assert message["thinking_blocks"] == [redacted("d")] and "reasoning_content" not in message


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), signed_streams())
def test_signatures_sent_by_one_gateway_are_read_by_another(data, case):
    sent, wanted = case
    assert events_before_finish(cut(data, client_bytes([sent], stream=True))) == [*wanted, TextDelta(0, "Yes.")]
    body = json.loads(client_bytes([sent]))
    assert whole_events(body["choices"][0]["message"]) == [*wanted, TextDelta(0, "Yes.")]


def test_signature_has_no_place_in_a_legacy_function_call():
    for streamed in (True, False):
        for form, listed in ((FORMS["LiteLLM"], ["dropped:tool_calls.provider_specific_fields"]), ({}, [])):
            ledger = Warnings()
            frames = [chunk(tool_calls=[{**call(0, "x", "f", "{}"), **form}]), chunk("tool_calls"), sse({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}), DONE]  # fmt: skip
            client_bytes(frames, ledger, functions=[FUNCTION["function"]], stream=streamed)
            assert ledger.entries() == listed


# Back to the upstream


def past_message(blocks, **form):
    one = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}, **form}
    return {"role": "assistant", "content": None, "reasoning_content": "Hm.So.", "thinking_blocks": blocks, "tool_calls": [one]}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_signatures_from_the_client_go_to_the_upstream_unchanged(kind):
    for form in FORMS.values():
        result = {"role": "tool", "tool_call_id": "x", "content": "1"}
        ledger = Warnings()
        request = parsed_request(messages=[{"role": "user", "content": "q"}, past_message(TWO, **form), result]).request
        sent = json.loads(upstream_body(request, BodyTarget("m", KINDS[kind], MessagePolicy()), frozenset(), ledger))
        _, message, _ = sent["messages"]
        assert message["thinking_blocks"] == TWO
        assert {name: message["tool_calls"][0][name] for name in form} == form
        assert ledger.entries() == []


@pytest.mark.parametrize("blocks", [[7, "x"], "soon", {"index": 0}])
def test_thinking_blocks_of_another_shape_are_passed_unchanged(blocks):
    request = parsed_request(messages=[{"role": "assistant", "content": "a", "thinking_blocks": blocks}]).request
    sent = json.loads(
        upstream_body(request, BodyTarget("m", KINDS["openai"], MessagePolicy()), frozenset(), Warnings())
    )
    assert sent["messages"][0]["thinking_blocks"] == blocks


@pytest.mark.parametrize("streamed", [True, False])
async def test_signatures_come_back_to_the_upstream_in_the_next_request(streamed):
    signature = {**call(0, "x", "f", "{}"), **FORMS["LiteLLM"]}
    first = stream(
        frame(reasoning_content="Hm.", thinking_blocks=[thinking("Hm.")]),
        frame(thinking_blocks=[thinking("", "s")]),
        frame(thinking_blocks=[redacted("d")]),
        frame(thinking_blocks=[thinking("So.", "t")]),
        frame(tool_calls=[signature]),
        frame(finish="tool_calls"),
    )
    message = {"reasoning_content": "Hm.So.", "thinking_blocks": TWO, "tool_calls": [{**signature, "type": "function"}]}
    async with gateway(first if streamed else whole(body(None, **message)), whole(body("Done."))) as site:
        answer = await site.chat(stream=streamed, tools=[FUNCTION])
        assistant_message = message_of_stream(answer.text) if streamed else answer.json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": "x", "content": "1"}
        await site.chat(messages=[{"role": "user", "content": "q"}, assistant_message, result], tools=[FUNCTION])
        _, given, _ = site.upstream_body["messages"]
        assert given["thinking_blocks"] == TWO and given["reasoning_content"] == "Hm.So."
        assert given["tool_calls"][0]["provider_specific_fields"] == {"thought_signature": "sig"}
