"""Test images by URL: the gateway fetches them for backends that cannot, within the configured networks."""

import asyncio
import base64
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway import config
from gateway.backends.data_urls import image_type
from gateway.errors import BadRequest
from gateway.request import Request
from gateway.server.fetch.attachments import inline_request_images
from gateway.transforms import attachments
from gateway.warnings import Warnings
from support.app import gateway, problem
from support.format_events import untraced
from support.upstream import HELLO, completion_body, whole
from support.wait import until
from support.web import HERE, PNG, hanging, page, web

IMAGES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "image/gif": b"GIF89a\1\0\1\0",
    "image/webp": b"RIFF\x24\0\0\0WEBPVP8 ",
}
FETCH, CANNOT = ("openai", "vllm", "sglang"), ("llamacpp", "ollama", "lmstudio", "transformers")
FAILED = "failed_to_download_image"
PARAM = "messages[0].content[0].image_url.url"


# Image bytes


async def fetch_inline(url, **limits):
    """Return the URL that a backend gets instead of this one."""
    settings = config.FetchSettings(fetch=True, networks=(HERE,), **limits)
    request = Request(model="m", messages=tuple(messages_with(image(url))))
    ((part,),) = (one["content"] for one in (await inline_request_images(request, settings, Warnings())).messages)
    return part["image_url"]["url"]


async def refusal_of(url, **limits):
    with pytest.raises(BadRequest) as caught:
        await fetch_inline(url, **limits)
    return caught.value.problem


@pytest.mark.parametrize("type", IMAGES)
async def test_image_type_is_that_of_its_bytes(type):
    async with web({"/a": page(IMAGES[type], content_type="text/html")}) as site:
        assert await fetch_inline(f"{site.url}/a") == inline(IMAGES[type], type)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<svg/>",
        b"%PDF-1.7",
        b"\x89PNG",
        b"\xff\xd8",
        b"GIF88a",
        b"RIFF\0\0\0\0WAVE",
        b"BM\0\0",
        gzip.compress(PNG, mtime=0),
    ],
)
async def test_image_of_an_unknown_format_is_refused_despite_its_content_type(body):
    async with web({"/a": page(body, content_type="image/png")}) as site:
        refusal = await refusal_of(f"{site.url}/a")
    assert (refusal.status, refusal.code, refusal.param) == (400, "unsupported_image_media_type", PARAM)
    assert refusal.message == f"Invalid '{PARAM}': expected a PNG, JPEG, GIF or WebP image."


async def test_image_with_a_content_encoding_is_not_decompressed():
    async with web({"/a": page(gzip.compress(PNG + bytes(1 << 20)), content_encoding="gzip")}) as site:
        assert (await refusal_of(f"{site.url}/a", max_bytes=4096)).code == "unsupported_image_media_type"
        ((_, headers),) = site.requests
    assert headers["accept-encoding"] == "identity"


# Images in requests


def image(url, **more):
    return {"type": "image_url", "image_url": {"url": url, **more}}


def messages_with(*parts, role="user"):
    return [{"role": role, "content": [*parts]}]


def fetching(**more):
    return {"images": {"fetch": True, "networks": [HERE], **more}}


def inline(data, type="image/png"):
    return f"data:{type};base64,{base64.b64encode(data).decode()}"


def images_sent(body):
    """Yield the images in the body of an upstream request, in base64."""
    for message in body["messages"]:
        yield from message.get("images", ())
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url":
                yield part["image_url"]["url"].removeprefix("data:image/png;base64,")


@pytest.mark.parametrize("kind", CANNOT)
async def test_image_url_is_sent_inline_to_a_backend_that_cannot_fetch(kind):
    native = {"message": {"role": "assistant", "content": "Hi"}, "done": True, "done_reason": "stop"}
    async with (
        web() as there,
        gateway(whole({**completion_body(), **native}), backend={"kind": kind}, **fetching()) as site,
    ):
        answer = await site.chat(messages=messages_with({"type": "text", "text": "What?"}, image(f"{there.url}/a")))
        assert [*images_sent(site.upstream_body)] == [base64.b64encode(PNG).decode()]
        assert "translated:image_url" in answer.headers["x-gateway-warnings"]


@pytest.mark.parametrize("kind", FETCH)
async def test_image_url_is_forwarded_to_a_backend_that_fetches(kind):
    async with web() as there, gateway(whole(completion_body()), backend={"kind": kind}, **fetching()) as site:
        parts = [image(f"{there.url}/a", detail="low"), image("file:///x"), image("data:,x")]
        answer = await site.chat(messages=messages_with(*parts))
        assert site.upstream_body["messages"] == messages_with(*parts) and there.requests == []
        assert "x-gateway-warnings" not in answer.headers


@pytest.mark.parametrize("kind", CANNOT)
async def test_image_url_is_refused_with_advice_if_fetching_is_off(kind):
    async with web() as there, gateway(HELLO, backend={"kind": kind}, images={"networks": [HERE]}) as site:
        answer = await site.chat(
            messages=[
                *messages_with({"type": "text", "text": "x"}),
                *messages_with(image("data:image/png;base64,QQ=="), image(f"{there.url}/a")),
            ]
        )
        assert problem(answer) == (
            400,
            "invalid_request_error",
            "unsupported_value",
            "messages[1].content[1].image_url.url",
        )
        assert "images.fetch" in answer.json()["error"]["message"] and "data URL" in answer.json()["error"]["message"]
        assert there.requests == [] and site.upstream.posts == []


async def test_image_url_replacement_keeps_all_other_parts():
    text = {"type": "text", "text": "x"}
    async with web({"/a": page(PNG), "/b": page(IMAGES["image/gif"])}) as there:
        messages = [
            {"role": "user", "content": "plain", "name": "Ann"},
            *messages_with(text, image(f"{there.url}/a", detail="low"), image(inline(PNG)), image(f"{there.url}/b")),
            *messages_with(image(f"{there.url}/a")),
        ]
        async with gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
            await site.chat(messages=messages, stream=True)
            gif = image(inline(IMAGES["image/gif"], "image/gif"))
            assert site.upstream_body["messages"] == [
                messages[0],
                *messages_with(text, image(inline(PNG), detail="low"), image(inline(PNG)), gif),
                *messages_with(image(inline(PNG))),
            ]
        assert sorted(path for path, _ in there.requests) == ["/a", "/b"]


BAD = {
    "data:image/png;base64,": "invalid_base64_image",
    "data:image/png;base64,QQ": "invalid_base64_image",
    "data:image/png;base64,Q Q=": "invalid_base64_image",
    "data:image/png;base64,QQ==ü": "invalid_base64_image",
    "data:image/svg+xml,<svg/>": "invalid_base64_image",
    "data:": "invalid_base64_image",
    "DATA:image/png;BASE64,QQ==": None,
    "QQ==": "invalid_image_url",
    "": "invalid_image_url",
    "file:///etc/passwd": "invalid_image_url",
    "ftp://example.com/a.png": "invalid_image_url",
    "//example.com/a.png": "invalid_image_url",
    " http://example.com": "invalid_image_url",
}


@pytest.mark.parametrize("url", BAD)
async def test_image_url_without_valid_base64_is_refused(url):
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        answer = await site.chat(messages=messages_with(image(url)), stream=True)
        if BAD[url]:
            assert problem(answer) == (400, "invalid_request_error", BAD[url], PARAM) and site.upstream.posts == []
        else:
            assert answer.status_code == 200


async def test_image_url_and_audio_data_are_required():
    async with gateway(HELLO) as site:
        for url, code in ({}, "missing_required_parameter"), ({"url": 1}, "invalid_type"):
            answer = await site.chat(messages=messages_with({"type": "image_url", "image_url": url}))
            assert problem(answer) == (400, "invalid_request_error", code, PARAM)
        for sound, place in ({}, "data"), ({"data": "QQ=="}, "format"):
            answer = await site.chat(messages=messages_with({"type": "input_audio", "input_audio": sound}))
            param = f"messages[0].content[0].input_audio.{place}"
            assert problem(answer) == (400, "invalid_request_error", "missing_required_parameter", param)


async def test_image_url_of_the_responses_api_is_fetched_once():
    async with web() as there, gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
        shown = {"type": "input_image", "image_url": f"{there.url}/a"}
        called = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c1", "output": [shown]}
        answer = await site.respond(input=[{"role": "user", "content": [shown]}, called, output], stream=True)
        assert answer.status_code == 200
        assert [*images_sent(site.upstream_body)] == [base64.b64encode(PNG).decode()] * 2
        assert len(there.requests) == 1
        shown["image_url"] = f"{there.url}/b"
        there.pages["/b"] = page(b"", 404)
        answer = await site.respond(input=[{"role": "user", "content": [shown]}])
        assert problem(answer) == (400, "invalid_request_error", FAILED, "input[0].content[0].image_url")


async def test_image_url_is_sent_inline_to_count_input_tokens():
    counted = whole({"input_tokens": 7})
    async with web() as there, gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
        site.upstream.shown["/v1/chat/completions/input_tokens"] = counted
        content = [{"type": "input_image", "image_url": f"{there.url}/a"}]
        answer = await site.client.post(
            "/v1/responses/input_tokens", json={"model": "m", "input": [{"role": "user", "content": content}]}
        )
        assert answer.json()["input_tokens"] == 7
        assert [*images_sent(site.upstream.aside[-1].json)] == [base64.b64encode(PNG).decode()]


async def test_image_fetch_ends_when_the_client_disconnects():
    async with web({"/a": hanging}) as there, gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
        client = asyncio.create_task(site.chat(messages=messages_with(image(f"{there.url}/a"))))
        await there.arrived.wait()
        client.cancel()
        await until(lambda: there.connections == 0)
        assert site.upstream.posts == []


@given(
    st.binary(max_size=40)
    | st.sampled_from(sorted(IMAGES.values())).flatmap(lambda head: st.binary().map(lambda rest: head + rest))
)
@untraced
def test_image_of_any_bytes_is_inlined_unchanged(data):
    if type := image_type(data):
        assert attachments.image_data_url(data) == inline(data, type)
        request = Request(model="m", messages=tuple(messages_with(image("http://x/"))))
        inlined = attachments.inline_images(request, {"http://x/": data})
        assert attachments.image_urls(inlined) == {} and inlined == replace(
            request, messages=tuple(messages_with(image(inline(data, type))))
        )


def test_image_inlining_keeps_messages_without_images():
    request = Request(model="m", messages=({"role": "user", "content": "x"}, {"role": "assistant", "content": None}))
    assert attachments.image_urls(request) == {} and Warnings().entries() == []
    assert [
        one is other
        for one, other in zip(attachments.inline_images(request, {}).messages, request.messages, strict=True)
    ] == [True, True]
