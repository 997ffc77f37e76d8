"""Test that a large body is encoded in steps to the same bytes."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from gateway.backends.openai import body_encoder

SIZE = 16 << 20  # bytes of a large body
TEXTS = st.text(st.sampled_from('a"\\\n\x00é😀\u2028'), max_size=30)
VALUES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)


@given(st.dictionaries(TEXTS, VALUES, max_size=4), st.integers(1, 9), st.integers(0, 3))
def test_steps_encode_a_body_to_the_same_bytes(body, step, levels):
    assert body_encoder.encoded(body, {}, step, levels) == json.encode(body)


def test_steps_encode_what_is_nested_deeply():
    value = "x"
    for _ in range(590):
        value = [value]
    assert body_encoder.encoded({"a": value}) == json.encode({"a": value})


def test_steps_encode_many_small_elements():
    messages = [{"role": "user", "content": f"{number}"} for number in range(250)]
    assert body_encoder.encoded({"messages": messages}) == json.encode({"messages": messages})


def test_steps_copy_the_json_of_a_known_text():
    text, other = "a" * (9 << 20), "b" * (1 << 17)
    body, known = {"messages": [{"content": text}, {"content": other}]}, memoryview(json.encode(text))
    assert body_encoder.encoded(body, {id(text): (text, known)}) == json.encode(body)


def test_steps_hold_one_copy_of_the_encoded_body():
    body = {"messages": [{"role": "user", "content": "a" * SIZE}]}
    tracemalloc.start()
    try:
        body_encoder.encoded(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * SIZE
