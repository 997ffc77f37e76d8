"""Test that chunks of a known form are read without decoding, and give the events that decoding would give."""

import json
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.backends.ollama import OllamaDecoder as Ollama
from gateway.backends.openai import repeat_decoder
from gateway.backends.openai.decoder import ChatDecoder
from gateway.backends.openai.repeat_decoder import RepeatedChunkDecoder
from gateway.events import ReasoningDelta, TextDelta, ToolArgsDelta
from gateway.sse import SSE
from gateway.warnings import Warnings
from support.pipeline import cut, parser_settings, singly, upstream
from support.sampling import examples

WORDS = [
    "a",
    " the",
    "content",
    "",
    '"',
    "\\",
    "\n",
    "é😀",
    '","x":"',
    '","',
    "stop",
    "null",
    "\x00 another text",
    '\\"',
    "0",
    "}",
]
words = st.sampled_from(WORDS)


def payload(delta, *, ascii=False, **more):
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return json.dumps({"id": "x", "object": "chunk", "choices": [choice | more]}, ensure_ascii=ascii).encode()


def arguments(text):
    return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}


SHAPES = [
    lambda word: payload({"content": word}),
    lambda word: payload({"content": word}, ascii=True),
    lambda word: payload({"content": word, "role": word}),
    lambda word: payload({"reasoning": word}),
    lambda word: payload({"reasoning": word, "reasoning_content": word}),
    lambda word: payload({"reasoning": word, "content": word}),
    lambda word: payload({"content": "fixed", "name": word}),
    lambda word: payload(arguments(word)),
    lambda word: payload({"content": word}, finish_reason="stop"),
    lambda word: payload({"content": word}, stop_reason=word),
    lambda word: payload({"content": word}, logprobs={"content": [{"token": word, "logprob": -1}]}),
    lambda word: json.dumps({"error": word or None}).encode(),
    lambda word: b'{"choices": [{"delta": {"content": "\\ud83d' + json.dumps(word).encode()[1:] + b"}}]}",
]  # fmt: skip


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SHAPES), words), max_size=12), st.sampled_from([1, 2]))
def test_chunk_decoded_in_a_stream_means_what_it_means_alone(chunks, n):
    decoder = ChatDecoder(Warnings(), n)
    for shape, word in chunks:
        alone, data = deepcopy(decoder), shape(word)
        alone._repeats = RepeatedChunkDecoder()
        alone._repeats.decoded_characters = decoder._repeats.decoded_characters
        assert decoder.decode(data) == alone.decode(data)
        assert decoder.decoded_characters == alone.decoded_characters


@pytest.mark.parametrize(
    ("shape", "event"),
    [
        (lambda word: payload({"content": word}), lambda word: TextDelta(0, word)),
        (lambda word: payload({"reasoning": word}), lambda word: ReasoningDelta(0, word)),
        (lambda word: payload(arguments(word)), lambda word: ToolArgsDelta(0, 0, word)),
    ],
)
def test_chunk_template_is_learned_from_the_first_chunk_and_proven_once_by_the_second(shape, event):
    known, decoded = repeat_decoder.RepeatedChunkDecoder(), []

    def decode(data):
        decoded.append(data)
        return ChatDecoder(Warnings()).decode(data)

    known.train(shape("one"), [event("one")])
    assert known.event(payload({"refusal": "two"}), decode) is None and not decoded
    for word in filter(None, WORDS):
        assert known.event(shape(word), decode) in (event(word), None)
    assert known.event(shape("two"), decode) == event("two") and len(decoded) == 1
    assert known.event(shape(""), decode) is None


def test_chunk_template_is_not_learned_if_the_place_of_the_text_is_uncertain():
    known = repeat_decoder.RepeatedChunkDecoder()
    decode, data = ChatDecoder(Warnings()).decode, payload({"content": "content"})  # the first such string is the key
    known.train(data, [TextDelta(0, "content")])
    assert known.is_settled and known.event(data, decode) is None and not known.is_settled
    known.train(data, [TextDelta(0, "content")])
    assert known.run(b"data: %b\n\n" % data, 0, SSE, decode) == ([], 0) and not known.is_settled
    known.train(payload({"content": "é"}, ascii=True), [TextDelta(0, "é")])
    assert known.event(payload({"content": "é"}, ascii=True), decode) is None


def test_chunk_template_gives_up_if_chunks_have_no_common_form():
    known, decode = repeat_decoder.RepeatedChunkDecoder(), ChatDecoder(Warnings()).decode
    for i in range(100):
        data = payload({"content": "word"}, at=i)
        assert known.event(data, decode) is None
        known.train(data, [TextDelta(0, "word")])
    assert known.is_settled and known.event(data, decode) is None


# Several chunks in one read

FRAMES = [
    *[lambda word, shape=shape: b"data: %b\n\n" % shape(word) for shape in SHAPES],
    lambda word: b"data: %b\r\n\r\n" % payload({"content": word}),
    lambda word: b"data:%b\n\n" % payload({"content": word}),
    lambda word: b"event: x\ndata: %b\n\n" % payload({"content": word}),
    lambda word: b": %b\n\n" % payload({"content": word}),
    lambda word: b"data: %b" % payload({"content": word}),  # no empty line before the next frame
    lambda word: b"data: %b\n\n" % payload({"content": "raw"}).replace(b"raw", word.encode()),
    lambda word: b"data: %b\n\n" % payload({"content": "raw"}).replace(b'"raw"', b' "\xff" '),
    lambda word: b"data: %b\n\n" % payload({"content": "raw"}).replace(b"raw", b"\\ud83d"),
    lambda word: b"data: %b\n\n" % (2 * payload({"content": word})),
    lambda word: b"data: [DONE]\n\n",
    lambda word: b"\n",
]
often = st.sampled_from([FRAMES[0], FRAMES[0], FRAMES[0], FRAMES[3], FRAMES[7], *FRAMES])


@pytest.mark.parametrize("format", ["native", "think", "hermes_json"])
@settings(max_examples=examples(300), deadline=None)
@given(st.data(), st.lists(st.tuples(often, words), max_size=20))
def test_chunks_mean_the_same_alone_and_together(format, data, frames):
    whole = b"".join(shape(word) for shape, word in frames)
    together, alone = upstream(parser_settings(format)), upstream(parser_settings(format))
    events = [event for piece in cut(data, whole) for event in together.feed(piece)]
    assert events == [event for piece in singly(whole) for event in alone.feed(piece)]
    assert together.close() == alone.close()
    assert together.usage == alone.usage


def test_chunks_of_a_long_run_are_not_decoded_one_by_one():
    texts = [f"{i} é" for i in range(1000)]
    decoder = ChatDecoder(Warnings())
    first, *more = [b"data: %b\n\n" % payload({"content": text}) for text in ["first", *texts]]
    decoder.decode(first[6:-2])
    data, at, events, reads = b"".join(more), 0, [], 0
    while at < len(data):
        run, at = decoder.run(data, at, SSE)
        events += run
        reads += 1
    assert events == [TextDelta(0, text) for text in texts]
    assert 1 < reads < 10
    assert decoder.run(data + b"data", len(data), SSE) == ([], len(data))


def test_chunk_of_a_known_form_is_read_without_decoding():
    decoder = ChatDecoder(Warnings())
    first, second, third, more = [
        b"data: %b\n\n" % payload({"content": word}) for word in ("one", "two", "drei é", "x")
    ]
    decoder.decode(first[6:-2])
    assert decoder.repeated_event is None  # the bytes around payloads are unknown yet
    assert decoder.run(second, 0, SSE) == ([TextDelta(0, "two")], len(second))
    assert decoder.repeated_event == TextDelta(0, "")
    read = decoder.single_chunk_decoder(len(third))
    assert read(third) == (TextDelta(0, "drei é"),)
    others = [2 * more, more[:-1], more[1:], b"data: [DONE]\n\n", third.replace(b"drei", b"drei vier")]
    for data in [*others, *[more.replace(b"x", text) for text in (b"", b"\xff", b"\n", b'","')]]:
        assert read(data) is None
    assert decoder.decoded_characters == len("onetwodrei é")


def test_chunk_text_with_an_unescaped_quote_is_not_read_by_the_repeat_decoder():
    """The text `","` without escapes would be two strings."""
    decoder = ChatDecoder(Warnings())
    decoder.decode(payload({"content": "first"}))
    well, ill = b"data: %b\n\n" % payload({"content": "second"}), b"data: %b\n\n" % payload({"content": "raw"})
    ill = ill.replace(b"raw", b'","')
    assert decoder.run(2 * well, 0, SSE) == (2 * [TextDelta(0, "second")], len(2 * well))
    for data in (ill + well, well + ill, well + ill + well):
        assert decoder.run(data, 0, SSE) == ([], 0)


def test_decoder_is_settled_if_a_template_is_known_or_given_up():
    decoder = ChatDecoder(Warnings())
    assert not decoder.repeats_settled
    decoder.decode(payload({"content": "word"}))
    assert decoder.repeats_settled
    decoder.decode(payload({"refusal": "word"}))
    assert not decoder.repeats_settled
    for _ in range(repeat_decoder._MAX_UNUSED_FORMS):
        assert not ChatDecoder(Warnings()).repeats_settled
        decoder.decode(payload({"content": "word"}))
        decoder.decode(payload({"refusal": "word"}))
    assert decoder.repeats_settled and Ollama(Warnings()).repeats_settled
