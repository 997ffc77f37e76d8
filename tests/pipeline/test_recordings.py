"""Test recorded responses of real servers: each gives its golden, streamed and whole, under every cut."""

import json
import random
from itertools import pairwise

import pytest
from openai import NOT_GIVEN
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types import Completion, CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from support.pipeline import payloads
from support.recorded_servers import (
    BROKEN,
    CHAT,
    COMPLETIONS,
    EXCHANGES,
    SERVERS,
    client_request,
    golden,
    golden_file,
    goldens,
    replay,
)
from support.sampling import places

GOLDENS = {name: one for server in SERVERS for name, one in json.loads(golden_file(server).read_text()).items()}
CHATS = [name for name, exchange in EXCHANGES.items() if exchange.answers and exchange.path == CHAT]
COMPLETED = [name for name, exchange in EXCHANGES.items() if exchange.answers and exchange.path == COMPLETIONS]
BODIES = [name for name in (*CHATS, *COMPLETED) if not EXCHANGES[name].like]


def expected(name):
    """Return the golden of a recording, or that of the recording it is like."""
    return GOLDENS.get(name) or GOLDENS[EXCHANGES[name].like]


WHOLE = [name for name in CHATS if "choices" in expected(name)]
FAILED = [name for name in CHATS if "choices" not in expected(name)]
CHUNK, COMPLETION = TypeAdapter(ChatCompletionChunk), TypeAdapter(ChatCompletion)


def in_pieces(data, size):
    return [data[i : i + size] for i in range(0, len(data), size)]


def at_random(data, name):
    """Return pieces of up to 40 bytes, the same in each run."""
    places, rng = [0], random.Random(name)
    while places[-1] < len(data):
        places.append(places[-1] + rng.randint(1, 40))
    return [data[a:b] for a, b in pairwise(places)]


def folded(frames):
    """Return the response that the SDK builds from the frames."""
    state = ChatCompletionStreamState(input_tools=NOT_GIVEN, response_format=NOT_GIVEN)
    for frame in frames:
        state.handle_chunk(CHUNK.validate_python(frame, strict=True))
    return state.current_completion_snapshot.model_dump()


def meaning(choices):
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
        for choice in sorted(choices, key=lambda choice: choice["index"])
    ]


def test_recordings_and_goldens_are_complete():
    assert len(EXCHANGES) == 349
    assert sorted(GOLDENS) == sorted(name for server in SERVERS for name in goldens(server))


@pytest.mark.parametrize("name", [name for name in EXCHANGES if {name, EXCHANGES[name].like} & GOLDENS.keys()])
def test_recording_gives_its_golden(name):
    assert golden(name) == expected(name), "make regenerate"


@pytest.mark.parametrize("name", BODIES)
def test_recording_has_the_same_events_under_every_cut(name):
    data, whole = EXCHANGES[name].body, replay(name)
    for pieces in (*(in_pieces(data, size) for size in (1, 7, 64, 1000)), at_random(data, name)):
        cut = replay(name, pieces)
        assert (cut.events, cut.ledger, cut.problem) == (whole.events, whole.ledger, whole.problem), pieces


@pytest.mark.parametrize("name", [name for name in BODIES if EXCHANGES[name].streamed])
def test_recording_has_the_same_events_with_other_line_ends(name):
    whole = replay(name)
    for line_end in (b"\r\n", b"\r"):
        other = replay(name, in_pieces(EXCHANGES[name].body.replace(b"\n", line_end), 5))
        assert (other.events, other.problem) == (whole.events, whole.problem)


@pytest.mark.parametrize("name", WHOLE)
def test_recording_folds_in_the_sdk_to_the_whole_response(name):
    outcome = replay(name, stream=True, stream_options={"include_usage": True})
    whole = json.loads(replay(name, stream=False, stream_options=None).data)
    COMPLETION.validate_python(whole, strict=True)
    fold = folded(payloads(outcome.data))
    assert outcome.data.endswith(b"data: [DONE]\n\n")
    assert meaning(fold["choices"]) == meaning(whole["choices"]) == meaning(expected(name)["choices"])
    assert fold["usage"] == CompletionUsage.model_validate(whole["usage"]).model_dump()


@pytest.mark.parametrize("name", COMPLETED)
def test_recording_of_a_completion_is_the_same_streamed_and_whole(name):
    outcome = replay(name, stream=True, stream_options={"include_usage": True})
    whole = json.loads(replay(name, stream=False, stream_options=None).data)
    *frames, count = payloads(outcome.data)
    Completion.model_validate(whole, strict=True)
    (choice,) = whole["choices"]
    assert "".join(frame["choices"][0]["text"] for frame in frames) == choice["text"]
    assert [frame["choices"][0]["finish_reason"] for frame in frames] == [None] * (len(frames) - 1) + ["stop"]
    assert choice["finish_reason"] == "stop" and count["usage"] == whole["usage"]


@pytest.mark.parametrize("name", FAILED)
def test_recording_of_a_failure_ends_with_the_error(name):
    outcome = replay(name, stream=True)
    *frames, last = payloads(outcome.data)
    assert last == {"error": outcome.problem.error()}
    assert b"[DONE]" not in outcome.data
    assert meaning(folded(frames)["choices"])[0]["finish_reason"] is None
    assert replay(name, stream=False, stream_options=None).data == b""


def test_recording_cut_before_its_finish_is_a_failure():
    name = "llamacpp/chat_stream_include_usage"
    data = EXCHANGES[name].body
    finish = data.index(b'"finish_reason":"stop"')
    end_of_finish = data.index(b"\n\n", finish)
    for place in places(len(data), most=len(data)):
        outcome = replay(name, [data[:place]], broken=True)
        assert outcome.problem == (BROKEN if place < end_of_finish else None), place


def test_recording_with_continuous_usage_has_it_in_every_chunk():
    name = "vllm/chat_stream_continuous_usage"
    counts = [frame["usage"]["completion_tokens"] for frame in payloads(replay(name).data)]
    assert client_request(name).stream_options["continuous_usage_stats"] and counts == [1, 1, 2, 3, 4, 4, 4]
