"""Test that a chunk without uninterpreted values has the same events as one that needs the slower way."""

import pytest
from msgspec import Raw, json

from gateway.backends.openai.decoder import ChatDecoder
from gateway.events import ExtraField, Finish, TextDelta
from gateway.warnings import Warnings

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
TEXT = {"index": 0, "delta": {"content": "Hi"}, "logprobs": None, "finish_reason": None}
END = {"index": 0, "delta": {}, "finish_reason": "stop"}
FINGERPRINT = {"system_fingerprint": "b1-é"}
CHUNKS = {
    "OpenAI": [TEXT],
    "llama.cpp": [TEXT, FINGERPRINT],
    "no fingerprint": [TEXT, {"system_fingerprint": None}],
    "vLLM": [{**TEXT, "token_ids": None, "stop_reason": None}],
    "vLLM's first": [{**TEXT, "prompt_token_ids": None}, {"prompt_token_ids": None, "prompt_text": None}],
    "token ids": [{**TEXT, "token_ids": [1, 2]}, FINGERPRINT],
    "a stop reason": [{**END, "stop_reason": "END"}, FINGERPRINT],
    "ids of the prompt": [TEXT, {"prompt_token_ids": [1, 2]}],
    "an end": [END, FINGERPRINT],
}


def events_of(*chunks):
    """Return the events of the chunks of one response."""
    decoder = ChatDecoder(Warnings())
    return [event for chunk in chunks for event in decoder.decode(json.encode(chunk))]


@pytest.mark.parametrize("name", CHUNKS)
def test_plain_chunk_has_the_events_of_any_other(name):
    choice, beside = (*CHUNKS[name], {})[:2]
    chunks = [{**HEAD, "choices": [one], **beside} for one in (TEXT, choice, TEXT, END)]
    assert events_of(*chunks) == events_of(*({**chunk, "unknown": None} for chunk in chunks))


def test_plain_chunks_pass_their_fingerprint_once():
    first, *rest = events_of(*({**HEAD, **FINGERPRINT, "choices": [one]} for one in (TEXT, TEXT, END)))
    assert first == ExtraField(None, "system_fingerprint", Raw(json.encode("b1-é")))
    assert rest == [TextDelta(0, "Hi"), TextDelta(0, "Hi"), Finish(0, "stop")]
