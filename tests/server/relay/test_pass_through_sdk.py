"""Test the endpoints that are passed on with the OpenAI SDK: whole, streamed, aborted, and with a failure in the middle."""

import json

import openai
import pytest

from support.app import listening
from support.upstream import CLOSE, END, HANG, head, whole
from support.wait import until

IMAGE = {
    "created": 1,
    "data": [{"b64_json": "AAAA"}],
    "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
}
HARM = {"id": "modr_1", "model": "guard", "results": [{"flagged": False, "categories": {}, "category_scores": {}}]}
FILE = ("a.wav", b"RIFF" * 1000)


def event(**members):
    """Return a frame of an event."""
    return f"data: {json.dumps(members)}\n\n".encode()


DELTA = event(type="transcript.text.delta", delta="Hel")
FINAL = event(type="transcript.text.done", text="Hello")
PARTIAL = event(type="image_generation.partial_image", b64_json="AA", partial_image_index=0)


def client_of(site):
    return openai.AsyncOpenAI(base_url=f"{site.client.base_url}/v1", api_key="none", max_retries=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # OpenAI has models for it no more
async def test_sdk_gets_whole_responses_of_passed_endpoints():
    scripts = [whole({"text": "Hello"}), whole({"text": "Hi"}), [head(type="audio/mpeg"), b"ID3", b"abc", END]]
    scripts += [whole(IMAGE), whole(IMAGE), whole(IMAGE), whole(HARM)]
    async with listening(*scripts, model={"upstream_model": "large"}) as site, client_of(site) as client:
        assert (await client.audio.transcriptions.create(model="m", file=FILE)).text == "Hello"
        assert (await client.audio.translations.create(model="m", file=FILE)).text == "Hi"
        speech = await client.audio.speech.create(model="m", input="Hello", voice="alloy")
        assert speech.content == b"ID3abc"
        image = ("a.png", b"png")
        assert (await client.images.generate(model="m", prompt="A boat.")).data[0].b64_json == "AAAA"
        assert (await client.images.edit(model="m", prompt="A boat.", image=image)).usage.total_tokens == 3
        assert (await client.images.create_variation(model="m", image=image)).data[0].b64_json == "AAAA"
        assert not (await client.moderations.create(model="m", input="Hello")).results[0].flagged
        posts = site.upstream.posts
    assert [post.path for post in posts] == [
        "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech", "/v1/images/generations",
        "/v1/images/edits", "/v1/images/variations", "/v1/moderations",
    ]  # fmt: skip
    assert all(b"large" in post.body for post in posts) and FILE[1] in posts[0].body


async def transcribed(client):
    return await client.audio.transcriptions.create(model="m", file=FILE, stream=True)


async def generated(client):
    return await client.images.generate(model="m", prompt="A boat.", stream=True)


STREAMS = pytest.mark.parametrize(
    ("ask", "first", "last"), [(transcribed, DELTA, FINAL), (generated, PARTIAL, PARTIAL)]
)


@STREAMS
async def test_sdk_gets_streams_of_passed_endpoints(ask, first, last):
    async with listening([head(), first, last, END]) as site, client_of(site) as client:
        types = [one.type async for one in await ask(client)]
    assert types == [json.loads(frame.removeprefix(b"data: "))["type"] for frame in (first, last)]


@STREAMS
async def test_sdk_sees_a_failure_in_the_middle_of_a_stream(ask, first, last):
    async with listening([head(), first, CLOSE]) as site, client_of(site) as client:
        stream = await ask(client)
        assert (await anext(stream)).type
        with pytest.raises(openai.APIError) as info:
            await anext(stream)
    assert info.value.code == "upstream_lost"


@STREAMS
async def test_sdk_that_aborts_a_stream_frees_the_backend(ask, first, last):
    async with listening([head(), first, HANG]) as site, client_of(site) as client:
        stream = await ask(client)
        assert (await anext(stream)).type
        await stream.close()
        await until(lambda: site.app.state.directory.backends["up"].limiter.queue.active, 0)


async def test_sdk_sees_that_audio_is_incomplete():
    async with listening([head(type="audio/mpeg"), b"ID3", CLOSE]) as site, client_of(site) as client:
        with pytest.raises(openai.APIConnectionError):
            await client.audio.speech.create(model="m", input="Hello", voice="alloy")
