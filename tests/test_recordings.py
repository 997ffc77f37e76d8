"""Answers of real servers: whatever the cut, what was recorded once is what comes of them, streamed or whole."""

import json

import pytest
from openai import NOT_GIVEN
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter
from replay import BROKEN, EXCHANGES, RECORDINGS, asked, body, golden, golden_file, replay
from streams import payloads

GOLDENS = {name: json.loads(golden_file(name).read_text()) for name in EXCHANGES}
ANSWERED = [name for name, exchange in EXCHANGES.items() if exchange.status == 200]
WHOLE = [name for name in ANSWERED if "completion" in GOLDENS[name]]
FAILED = [name for name in ANSWERED if "completion" not in GOLDENS[name]]
CHUNK, COMPLETION = TypeAdapter(ChatCompletionChunk), TypeAdapter(ChatCompletion)


def in_pieces(data, size):
    return [data[i : i + size] for i in range(0, len(data), size)]


def folded(frames):
    """The answer as the SDK puts it together from the frames."""
    state = ChatCompletionStreamState(input_tools=NOT_GIVEN, response_format=NOT_GIVEN)
    for frame in frames:
        state.handle_chunk(CHUNK.validate_python(frame, strict=True))
    return state.current_completion_snapshot.model_dump()


def meaning(completion):
    return [
        {
            "index": choice["index"],
            "role": choice["message"]["role"],
            "content": choice["message"]["content"] or "",
            "reasoning": choice["message"].get("reasoning_content", ""),
            "calls": [
                (call["id"], call["type"], call["function"]["name"], call["function"]["arguments"])
                for call in choice["message"].get("tool_calls") or ()
            ],
            "logprobs": (choice["logprobs"] or {}).get("content"),
            "finish_reason": choice["finish_reason"],
        }
        for choice in completion["choices"]
    ]


def test_each_recording_has_its_row_and_its_golden():
    files = {str(path.relative_to(RECORDINGS)) for path in RECORDINGS.glob("*/*")}
    assert files == {*EXCHANGES, *(f"{name}.golden.json" for name in EXCHANGES)}


@pytest.mark.parametrize("name", EXCHANGES)
def test_what_comes_of_an_answer_is_its_golden(name):
    assert golden(name) == GOLDENS[name]


@pytest.mark.parametrize("name", ANSWERED)
def test_every_cut_means_the_same(name):
    data = body(name)
    whole = replay(name)
    for size in (1, 7, 64, 1000):
        cut = replay(name, in_pieces(data, size))
        assert (cut.events, cut.ledger, cut.problem) == (whole.events, whole.ledger, whole.problem), size


@pytest.mark.parametrize("name", [name for name in ANSWERED if name.endswith(".sse")])
def test_line_ends_mean_the_same(name):
    whole = replay(name)
    for line_end in (b"\r\n", b"\r"):
        other = replay(name, in_pieces(body(name).replace(b"\n", line_end), 5))
        assert (other.events, other.problem) == (whole.events, whole.problem)


@pytest.mark.parametrize("name", WHOLE)
def test_the_sdk_puts_the_stream_together_to_the_whole_answer(name):
    told = replay(name, stream=True, stream_options={"include_usage": True})
    completion = GOLDENS[name]["completion"]
    COMPLETION.validate_python(completion, strict=True)
    fold = folded(payloads(told.data))
    assert told.data.endswith(b"data: [DONE]\n\n")
    assert meaning(fold) == meaning(completion)
    assert fold["usage"] == CompletionUsage.model_validate(completion["usage"]).model_dump()


@pytest.mark.parametrize("name", FAILED)
def test_a_failure_comes_after_what_was_said_and_ends_the_stream(name):
    told = replay(name, stream=True)
    *frames, last = payloads(told.data)
    assert last == {"error": told.problem.error()}
    assert b"[DONE]" not in told.data
    assert meaning(folded(frames))[0]["finish_reason"] is None
    assert replay(name, stream=False, stream_options=None).data == b""


def test_where_a_stream_breaks_decides_whether_it_failed():
    name = "llamacpp/chat_stream_include_usage.sse"
    data = body(name)
    finish = data.index(b'"finish_reason":"stop"')
    end_of_finish = data.index(b"\n\n", finish)
    for place in range(len(data)):
        told = replay(name, [data[:place]], broken=True)
        assert told.problem == (BROKEN if place < end_of_finish else None), place


def test_a_continuous_count_stands_in_every_chunk():
    name = "vllm/chat_stream_continuous_usage.sse"
    counts = [frame["usage"]["completion_tokens"] for frame in payloads(replay(name).data)]
    assert asked(name).continuous_usage and counts == [1, 1, 2, 3, 4, 4, 4]
