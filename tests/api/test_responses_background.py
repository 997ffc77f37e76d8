"""Test responses in the background, responses that resume after their first events, and those that generate nothing."""

import pytest
from msgspec import Raw, json

from gateway.api.responses import LogReplay, ResponseHead, ResponseParams, created_events, event_stream
from gateway.errors import CANCELLED
from gateway.events import ExtraField, Failure, Finish, TextDelta
from gateway.request import Request
from support.app import gateway
from support.responses import BEGUN, BROKE, ECHO, KEEP_ALIVE, LENGTH, STOP, counted, encoded, new_encoder
from support.responses_events import checked, checked_whole, events_of
from support.sse import events
from support.upstream import COUNTS, HELLO, chunk, completion_body, frame, stream, whole


def opened(background=True):
    request = Request(model="m", messages=(), stream=True)
    params = ResponseParams(request=request, echo={**ECHO, "background": background}, background=background)
    response, frames = created_events(ResponseHead("resp_1", 1790000000, "m"), params)
    return json.decode(json.encode(response)), frames


def resumed(number, events, **options):
    """Return the stream of a response that resumes after this number of events."""
    out = new_encoder(events_sent=number, background=True, **options)
    beats = (out.keep_alive() if event is KEEP_ALIVE else out.encode([event]) for event in events)
    return out.start() + b"".join(beats) + out.close(stored=True)


# In the background


def test_background_response_is_queued_first():
    response, frames = opened()
    assert response == {**BEGUN, "background": True, "status": "queued"}
    created, queued, begun = events_of(frames + event_stream.DONE)
    assert created == {"type": "response.created", "sequence_number": 0, "response": response}
    assert queued == {"type": "response.queued", "sequence_number": 1, "response": response}
    in_progress = {**response, "status": "in_progress"}
    assert begun == {"type": "response.in_progress", "sequence_number": 2, "response": in_progress}


def test_foreground_response_is_not_queued():
    response, frames = opened(background=False)
    assert response == BEGUN and frames == new_encoder().start()


@pytest.mark.parametrize(
    ("end", "status"),
    [(STOP, "completed"), (LENGTH, "incomplete"), (BROKE, "failed"), (Failure(CANCELLED), "cancelled")],
)
def test_background_response_resumes_after_its_first_events(end, status):
    _, frames = opened()
    events = [KEEP_ALIVE, TextDelta(0, "a"), KEEP_ALIVE, end]
    data = frames + resumed(3, events)
    assert checked(data)["status"] == status and data == encoded(events, background=True)


def test_encoder_behind_earlier_events_still_has_to_be_started():
    out = new_encoder(events_sent=3, background=True, stored=True)
    out.encode([TextDelta(0, "a")])
    assert out.stored_object() is None
    out = new_encoder(events_sent=3, background=True, stored=True)
    assert out.start() == b""
    out.encode([STOP])
    assert out.stored_object()["status"] == "completed"


def test_response_may_begin_again_until_content_was_sent():
    queued, frames = opened()
    frames += new_encoder(events_sent=3, background=True).keep_alive()
    fold = LogReplay(queued)
    fold.feed(frames)
    assert (fold.next_event_number, fold.has_output) == (4, False)
    assert checked(frames + resumed(fold.next_event_number, [TextDelta(0, "a"), STOP]))["status"] == "completed"


# Nothing to generate


SILENT = [ExtraField(None, "prompt_token_ids", Raw(b"[1]")), Finish(0, "stop"), counted(7, 0)]


def test_prewarm_response_has_no_output():
    response = checked(encoded(SILENT, generates=False), {"prompt_token_ids"}, silent=True)
    assert (response["status"], response["output"]) == ("completed", [])
    assert response["usage"]["input_tokens"] == response["usage"]["total_tokens"] == 7
    assert checked_whole(encoded(SILENT, stream=False, generates=False), {"prompt_token_ids"}) == response


def test_prewarm_error_is_a_failed_response_without_output():
    assert checked(encoded([BROKE], generates=False))["output"] == []


READ = stream(chunk("I"), chunk(finish="length"), frame(choices=[], usage=COUNTS))
WHOLE = whole(
    completion_body("I", tool_calls=[{"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}])
)


@pytest.mark.parametrize("fields", [{"generate": False}, {"prompt_cache_options": {"prewarm": True}, "generate": True}])
@pytest.mark.parametrize("streamed", [False, True])
async def test_prewarm_reads_a_prompt_that_a_later_response_continues(fields, streamed):
    tools = [{"type": "function", "name": "f"}]
    async with gateway(READ if streamed else WHOLE, HELLO) as site:
        answer = await site.respond(input="Read this.", stream=streamed, tools=tools, max_output_tokens=50, **fields)
        assert answer.headers["x-gateway-warnings"].startswith("emulated:")
        assert site.upstream_body["max_completion_tokens"] == 1
        assert [tool["function"]["name"] for tool in site.upstream_body["tools"]] == ["f"]
        first = events(answer.text)[-1]["response"] if streamed else answer.json()
        assert (first["status"], first["output"], first["usage"]["output_tokens"]) == ("completed", [], 0)
        assert first["usage"]["input_tokens"] == first["usage"]["total_tokens"] == COUNTS["prompt_tokens"]
        second = await site.respond(input="And?", stream=True, previous_response_id=first["id"])
        assert [message["content"] for message in site.upstream_body["messages"]] == ["Read this.", "And?"]
        assert "max_completion_tokens" not in site.upstream_body and events(second.text)[-1]["response"]["output"]


async def test_prewarm_usage_is_estimated_for_the_prompt_alone():
    async with gateway(stream(chunk("a word or two"), chunk(finish="length"))) as site:
        answer = await site.respond(stream=True, generate=False)
        usage = events(answer.text)[-1]["response"]["usage"]
        assert usage["output_tokens"] == 0 and usage["input_tokens"] == usage["total_tokens"] > 0


async def test_compaction_writes_a_summary_despite_generate_false():
    async with gateway(whole(completion_body("They spoke."))) as site:
        answer = await site.client.post("/v1/responses/compact", json={"model": "m", "input": "q", "generate": False})
        assert answer.json()["output"][-1]["type"] == "compaction" and "max_completion_tokens" not in site.upstream_body
