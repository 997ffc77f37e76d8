"""Test the official SDK on endpoints that are passed on: whole and streamed, with an abort and a failure in the middle."""

import json

import httpx
import openai
import pytest

from support.app import listening
from support.sdk_cases import sdk
from support.upstream import CLOSE, DONE, END, HANG, head, whole
from support.wait import until

pytestmark = pytest.mark.smoke

WAV = ("a.wav", b"RIFF" + b"\0" * 1000, "audio/wav")
PNG = ("a.png", b"\x89PNG" + b"\0" * 1000, "image/png")
SPEECH_REQUEST = {"model": "m", "input": "Hello", "voice": "alloy"}
AUDIO = [head(type="audio/mpeg"), b"ID3", b"\xff\xfb", END]


def sse_event(type, **more):
    return b"data: " + json.dumps({"type": type, **more}).encode() + b"\n\n"


DELTAS = [head(), *(sse_event("transcript.text.delta", delta=piece) for piece in ("Hel", "lo"))]
TRANSCRIPT = [*DELTAS, sse_event("transcript.text.done", text="Hello"), DONE, END]


async def test_sdk_reads_a_transcript_whole_and_streamed():
    async with listening(whole({"text": "Hello"}), TRANSCRIPT) as site, sdk(site) as client:
        create = client.audio.transcriptions.create
        response = await create(model="m", file=WAV)
        events = [event async for event in await create(model="m", file=WAV, stream=True)]
        first, second = site.upstream.posts
    assert response.text == "Hello" and WAV[1] in first.body
    assert "".join(event.delta for event in events[:2]) == events[2].text == "Hello"
    assert b'name="stream"\r\n\r\ntrue' in second.body


async def test_sdk_reads_speech_whole_and_in_pieces():
    async with listening(AUDIO) as site, sdk(site) as client:
        response = await client.audio.speech.create(**SPEECH_REQUEST)
        async with client.audio.speech.with_streaming_response.create(**SPEECH_REQUEST) as answer:
            pieces = [piece async for piece in answer.iter_bytes()]
    assert response.content == b"".join(pieces) == b"ID3\xff\xfb"


async def test_sdk_reads_images_of_a_prompt_and_of_a_file():
    image = whole({"created": 1, "data": [{"b64_json": "AAAA"}]})
    async with listening(image) as site, sdk(site) as client:
        made = await client.images.generate(model="m", prompt="A lighthouse.")
        edited = await client.images.edit(model="m", image=PNG, prompt="Add a boat.")
        paths = [post.path for post in site.upstream.posts]
    assert [one.data[0].b64_json for one in (made, edited)] == ["AAAA"] * 2
    assert paths == ["/v1/images/generations", "/v1/images/edits"]


async def test_sdk_reads_images_as_they_are_streamed():
    partial = sse_event("image_generation.partial_image", b64_json="AA", partial_image_index=0)
    done = sse_event("image_generation.completed", b64_json="AAAA")
    async with listening([head(), partial, done, END]) as site, sdk(site) as client:
        stream = await client.images.generate(model="m", prompt="A lighthouse.", stream=True, partial_images=1)
        events = [event async for event in stream]
    assert [event.b64_json for event in events] == ["AA", "AAAA"]


async def test_sdk_reads_moderations():
    result = {"flagged": True, "categories": {}, "category_scores": {}}
    async with listening(whole({"id": "x", "model": "m", "results": [result]})) as site, sdk(site) as client:
        found = await client.moderations.create(model="m", input="Hello")
    assert found.results[0].flagged


async def test_sdk_that_leaves_a_stream_ends_the_request_of_the_backend():
    async with listening([*DELTAS, HANG]) as site, sdk(site) as client:
        stream = await client.audio.transcriptions.create(model="m", file=WAV, stream=True)
        assert (await anext(aiter(stream))).delta == "Hel"
        await stream.close()
        await site.upstream.gone.wait()
        turns = site.app.state.directory.backends["up"].limiter.queue
        await until(lambda: turns.active, 0)


async def test_sdk_raises_the_failure_in_the_middle_of_a_stream():
    events = []
    async with listening([*DELTAS, CLOSE]) as site, sdk(site) as client:
        with pytest.raises(openai.APIError) as failed:
            async for event in await client.audio.transcriptions.create(model="m", file=WAV, stream=True):
                events.append(event)
    assert "".join(event.delta for event in events) == "Hello"
    assert failed.value.code == "upstream_lost"


async def test_sdk_sees_that_audio_is_incomplete():
    async with listening([*AUDIO[:2], CLOSE]) as site, sdk(site) as client:
        with pytest.raises((openai.APIConnectionError, httpx.RemoteProtocolError)):
            await client.audio.speech.create(**SPEECH_REQUEST)


async def test_sdk_raises_the_error_of_a_backend_that_is_gone():
    async with listening(backend={"url": "http://127.0.0.1:1"}) as site, sdk(site) as client:
        with pytest.raises(openai.InternalServerError) as failed:
            await client.audio.transcriptions.create(model="m", file=WAV)
    assert failed.value.code == "upstream_unreachable"


async def test_sdk_raises_the_reason_of_a_refused_group():
    async with listening(TRANSCRIPT) as site, sdk(site) as client:
        with pytest.raises(openai.NotFoundError) as failed:
            await client.fine_tuning.jobs.list()
    assert failed.value.code == "endpoint_not_supported" and "Model servers train no models." in failed.value.message
