"""Test responses in the forms of hosted services: what the client gets, whole and streamed."""

import pytest

from support.app import gateway
from support.sse import payloads, text_of
from support.upstream import COUNTS, frame, stream, whole


def together(text, finish=None, delta=(), **beside):
    """Return a chunk of Together, which has the text twice."""
    delta = {"token_id": 30, "role": "assistant", "content": text, "tool_calls": None, **dict(delta)}
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, "seed": None, "delta": delta}
    return frame(choices=[{**choice, **beside}], usage=COUNTS if finish else None)


TOGETHER = stream(*map(together, ("Hel", "lo", ", ", "you", " there")), together("", "stop"))
TEXT = "Hello, you there"


async def test_text_beside_a_delta_with_the_same_text_counts_once():
    async with gateway(TOGETHER) as site:
        streamed = await site.chat(stream=True)
        answered = await site.chat()
        response = await site.respond()
        message = await site.message()
    assert text_of(streamed.text) == answered.json()["choices"][0]["message"]["content"] == TEXT
    assert response.json()["output"][0]["content"][0]["text"] == message.json()["content"][0]["text"] == TEXT


async def test_text_beside_a_whole_message_with_the_same_text_counts_once():
    choice = {"index": 0, "text": TEXT, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    async with gateway(whole({"choices": [choice], "usage": COUNTS})) as site:
        assert (await site.chat()).json()["choices"][0]["message"]["content"] == TEXT


@pytest.mark.parametrize("delta", [{}, {"role": "assistant", "content": None}])
async def test_text_beside_an_empty_delta_counts(delta):
    choice = {"index": 0, "text": TEXT, "delta": delta, "finish_reason": "stop"}
    async with gateway(stream(frame(choices=[choice]))) as site:
        answer = await site.client.post("/v1/completions", json={"model": "m", "prompt": "Hi"})
    assert answer.json()["choices"][0]["text"] == TEXT


async def test_legacy_completion_beside_a_delta_counts_once():
    async with gateway(TOGETHER) as site:
        answer = await site.client.post("/v1/completions", json={"model": "m", "prompt": "Hi"})
    assert answer.json()["choices"][0]["text"] == TEXT


async def test_reasoning_beside_an_empty_text_stays_reasoning():
    frames = together("", delta={"reasoning": "so"}), together("Hi"), together("", "stop")
    async with gateway(stream(*frames)) as site:
        message = (await site.chat()).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("so", "Hi")


@pytest.mark.parametrize(
    ("code", "status", "word"), [(502, 502, "upstream_error"), (429, 429, "rate_limit_exceeded"), (400, 400, None)]
)
async def test_error_within_a_choice_is_the_error_of_the_response(code, status, word):
    error = {"code": code, "message": "The provider is out of memory.", "metadata": {"provider_name": "p"}}
    ending = {"index": 0, "finish_reason": "error", "native_finish_reason": "error", "error": error}
    begun, ended = ({"role": "assistant", "content": text} for text in ("Hel", ""))
    answered = whole({"choices": [{**ending, "message": begun}]})
    at_once = stream(frame(choices=[{**ending, "delta": ended}]))
    late = stream(frame(choices=[{"index": 0, "delta": begun}]), frame(choices=[{**ending, "delta": ended}]))
    async with gateway(answered, at_once, late) as site:
        for answer in (await site.chat(), await site.chat(stream=True)):
            got = answer.json()["error"]
            assert (answer.status_code, got["code"], got["message"]) == (status, word, error["message"])
        streamed = await site.chat(stream=True)
    assert text_of(streamed.text) == "Hel" and payloads(streamed.text)[-1]["error"]["message"] == error["message"]
