"""Test that a member which arrives behind the end of its choice reaches the client of a stream in a frame of its own."""

import json

import pytest
from msgspec import Raw

from gateway.api import chat, completions
from gateway.events import ExtraField, Finish, TextDelta
from gateway.warnings import Warnings
from support.sse import payloads

HEAD = {"model": "m", "stream": True}


def chat_encoder():
    params = chat.parse_chat(json.dumps({**HEAD, "messages": [{"role": "user", "content": "q"}]}).encode())
    return chat.chat_encoder(chat.CompletionHead("c", 7, "m"), params, Warnings(), lambda: "")


def completion_encoder():
    params = completions.parse_completion(json.dumps({**HEAD, "prompt": "q"}).encode())
    return completions.completion_encoder(completions.CompletionHead("c", 7, "m"), params, Warnings())


@pytest.mark.parametrize("make", [chat_encoder, completion_encoder])
def test_member_behind_the_end_of_its_choice_has_a_frame_of_its_own(make):
    encoder = make()
    frames = [
        encoder.encode([event]) for event in (TextDelta(0, "Hi"), Finish(0, "stop"), ExtraField(0, "late", Raw(b"1")))
    ]
    *_, last, end = payloads(b"".join([*frames, encoder.close(stored=True)]).decode())
    assert end == "[DONE]"
    (choice,) = last["choices"]
    assert (choice["late"], choice["finish_reason"], choice["index"]) == (1, None, 0)
