"""Chunks of a known form are not decoded again, and mean exactly what they would mean if they were."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.backends.openai import template
from gateway.backends.openai.decode import Decoder
from gateway.events import Reasoning, Text, ToolArgs
from gateway.ledger import Ledger

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


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SHAPES), words), max_size=12), st.sampled_from([1, 2]))
def test_a_stream_means_what_each_of_its_chunks_means_alone(chunks, n):
    decoder, said = Decoder(Ledger(), n), 0
    for shape, word in chunks:
        alone = Decoder(Ledger(), n)
        data = shape(word)
        known = decoder.known(data)
        assert ([known] if known else decoder.decode(data)) == alone.decode(data)
        said += alone.said
    assert decoder.said == said


@pytest.mark.parametrize(
    ("shape", "event"),
    [
        (lambda word: payload({"content": word}), lambda word: Text(0, word)),
        (lambda word: payload({"reasoning": word}), lambda word: Reasoning(0, word)),
        (lambda word: payload(arguments(word)), lambda word: ToolArgs(0, 0, word)),
    ],
)
def test_a_form_is_learnt_from_its_first_chunk(shape, event):
    known, decoded = template.Template(), []
    decode = Decoder(Ledger()).decode
    known.learn(shape("one"), [event("one")], lambda data: decoded.append(data) or decode(data))
    assert len(decoded) == 1
    for word in filter(None, WORDS):
        assert known.event(shape(word)) in (event(word), None)
    assert known.event(shape("two")) == event("two") and len(decoded) == 1
    assert known.event(shape("")) is None and known.event(payload({"refusal": "two"})) is None


def test_a_text_whose_place_is_not_certain_teaches_nothing():
    known = template.Template()
    data = payload({"content": "content"})  # the first such string is the key
    known.learn(data, [Text(0, "content")], Decoder(Ledger()).decode)
    assert known.event(data) is None
    known.learn(payload({"content": "é"}, ascii=True), [Text(0, "é")], Decoder(Ledger()).decode)
    assert known.event(payload({"content": "é"}, ascii=True)) is None


def test_a_stream_whose_chunks_have_no_common_form_is_not_studied_for_ever():
    known, lessons = template.Template(), []
    for i in range(100):
        data = payload({"content": "word"}, at=i)
        assert known.event(data) is None
        known.learn(data, [Text(0, "word")], lambda data: lessons.append(data) or Decoder(Ledger()).decode(data))
    assert len(lessons) == template._PATIENCE
