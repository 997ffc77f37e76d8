"""Images by URL reach servers that cannot fetch them, and the gateway fetches nothing that its clients could not reach."""

import asyncio
import base64
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway import config, images
from gateway.backends import KINDS
from gateway.errors import BadRequest
from gateway.ledger import Ledger
from gateway.request import Request
from gateway.server.images import read
from support.app import gateway, problem
from support.format_events import untraced
from support.upstream import HELLO, said, whole
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


# The image itself


async def fetched(url, **limits):
    """What a server is sent in the place of the URL."""
    settings = config.Fetching(fetch=True, networks=(HERE,), **limits)
    request = Request(model="m", messages=tuple(asking(image(url))))
    ((part,),) = (one["content"] for one in (await read(request, KINDS["llamacpp"], settings, Ledger())).messages)
    return part["image_url"]["url"]


async def refused(url, **limits):
    with pytest.raises(BadRequest) as caught:
        await fetched(url, **limits)
    return caught.value.problem


@pytest.mark.parametrize("type", IMAGES)
async def test_the_type_of_an_image_is_that_of_its_bytes(type):
    async with web({"/a": page(IMAGES[type], content_type="text/html")}) as site:
        assert await fetched(f"{site.url}/a") == inline(IMAGES[type], type)


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
async def test_what_is_no_image_is_refused_whatever_it_is_called(body):
    async with web({"/a": page(body, content_type="image/png")}) as site:
        told = await refused(f"{site.url}/a")
    assert (told.status, told.code, told.param) == (400, "unsupported_image_media_type", PARAM)
    assert told.message == f"Invalid '{PARAM}': expected an image of the type PNG, JPEG, GIF or WebP."


async def test_nothing_is_unpacked():
    async with web({"/a": page(gzip.compress(PNG + bytes(1 << 20)), content_encoding="gzip")}) as site:
        assert (await refused(f"{site.url}/a", max_bytes=4096)).code == "unsupported_image_media_type"
        ((_, headers),) = site.asked
    assert headers["accept-encoding"] == "identity"


# In requests


def image(url, **more):
    return {"type": "image_url", "image_url": {"url": url, **more}}


def asking(*parts, role="user"):
    return [{"role": role, "content": [*parts]}]


def fetching(**more):
    return {"images": {"fetch": True, "networks": [HERE], **more}}


def inline(data, type="image/png"):
    return f"data:{type};base64,{base64.b64encode(data).decode()}"


def seen(asked):
    """The images that a server was sent, in base64."""
    for message in asked["messages"]:
        yield from message.get("images", ())
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url":
                yield part["image_url"]["url"].removeprefix("data:image/png;base64,")


@pytest.mark.parametrize("kind", CANNOT)
async def test_an_image_is_sent_itself_where_the_server_cannot_fetch_it(kind):
    native = {"message": {"role": "assistant", "content": "Hi"}, "done": True, "done_reason": "stop"}
    async with web() as there, gateway(whole({**said(), **native}), backend={"kind": kind}, **fetching()) as site:
        answer = await site.chat(messages=asking({"type": "text", "text": "What?"}, image(f"{there.url}/a")))
        assert [*seen(site.asked)] == [base64.b64encode(PNG).decode()]
        assert "translated:image_url" in answer.headers["x-gateway-warnings"]


@pytest.mark.parametrize("kind", FETCH)
async def test_a_url_is_passed_where_the_server_fetches_it(kind):
    async with web() as there, gateway(whole(said()), backend={"kind": kind}, **fetching()) as site:
        parts = [image(f"{there.url}/a", detail="low"), image("file:///x"), image("data:,x")]
        answer = await site.chat(messages=asking(*parts))
        assert site.asked["messages"] == asking(*parts) and there.asked == []
        assert "x-gateway-warnings" not in answer.headers


@pytest.mark.parametrize("kind", CANNOT)
async def test_without_leave_to_fetch_it_is_said_what_to_do(kind):
    async with web() as there, gateway(HELLO, backend={"kind": kind}, images={"networks": [HERE]}) as site:
        answer = await site.chat(
            messages=[
                *asking({"type": "text", "text": "x"}),
                *asking(image("data:image/png;base64,QQ=="), image(f"{there.url}/a")),
            ]
        )
        assert problem(answer) == (
            400,
            "invalid_request_error",
            "unsupported_value",
            "messages[1].content[1].image_url.url",
        )
        assert "images.fetch" in answer.json()["error"]["message"] and "data URL" in answer.json()["error"]["message"]
        assert there.asked == [] and site.upstream.posts == []


async def test_the_rest_of_a_part_and_of_a_message_stays():
    text = {"type": "text", "text": "x"}
    async with web({"/a": page(PNG), "/b": page(IMAGES["image/gif"])}) as there:
        messages = [
            {"role": "user", "content": "plain", "name": "Ann"},
            *asking(text, image(f"{there.url}/a", detail="low"), image(inline(PNG)), image(f"{there.url}/b")),
            *asking(image(f"{there.url}/a")),
        ]
        async with gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
            await site.chat(messages=messages, stream=True)
            gif = image(inline(IMAGES["image/gif"], "image/gif"))
            assert site.asked["messages"] == [
                messages[0],
                *asking(text, image(inline(PNG), detail="low"), image(inline(PNG)), gif),
                *asking(image(inline(PNG))),
            ]
        assert sorted(path for path, _ in there.asked) == ["/a", "/b"]


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
async def test_what_is_sent_as_an_image_has_to_be_base64(url):
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        answer = await site.chat(messages=asking(image(url)), stream=True)
        if BAD[url]:
            assert problem(answer) == (400, "invalid_request_error", BAD[url], PARAM) and site.upstream.posts == []
        else:
            assert answer.status_code == 200


async def test_a_url_is_needed_and_is_a_string():
    async with gateway(HELLO) as site:
        for url, code in ({}, "missing_required_parameter"), ({"url": 1}, "invalid_type"):
            answer = await site.chat(messages=asking({"type": "image_url", "image_url": url}))
            assert problem(answer) == (400, "invalid_request_error", code, PARAM)
        for sound, place in ({}, "data"), ({"data": "QQ=="}, "format"):
            answer = await site.chat(messages=asking({"type": "input_audio", "input_audio": sound}))
            param = f"messages[0].content[0].input_audio.{place}"
            assert problem(answer) == (400, "invalid_request_error", "missing_required_parameter", param)


async def test_images_of_the_other_api_are_fetched_as_well():
    async with web() as there, gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
        shown = {"type": "input_image", "image_url": f"{there.url}/a"}
        called = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c1", "output": [shown]}
        answer = await site.respond(input=[{"role": "user", "content": [shown]}, called, output], stream=True)
        assert answer.status_code == 200
        assert [*seen(site.asked)] == [base64.b64encode(PNG).decode()] * 2
        assert len(there.asked) == 1
        shown["image_url"] = f"{there.url}/b"
        there.pages["/b"] = page(b"", 404)
        answer = await site.respond(input=[{"role": "user", "content": [shown]}])
        assert problem(answer) == (400, "invalid_request_error", FAILED, "input")


async def test_images_are_counted_as_they_are_sent():
    counted = whole({"input_tokens": 7})
    async with web() as there, gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
        site.upstream.shown["/v1/chat/completions/input_tokens"] = counted
        content = [{"type": "input_image", "image_url": f"{there.url}/a"}]
        answer = await site.client.post(
            "/v1/responses/input_tokens", json={"model": "m", "input": [{"role": "user", "content": content}]}
        )
        assert answer.json()["input_tokens"] == 7
        assert [*seen(site.upstream.aside[-1].json)] == [base64.b64encode(PNG).decode()]


async def test_a_client_that_leaves_ends_the_fetching():
    async with web({"/a": hanging}) as there, gateway(HELLO, backend={"kind": "llamacpp"}, **fetching()) as site:
        client = asyncio.create_task(site.chat(messages=asking(image(f"{there.url}/a"))))
        await there.arrived.wait()
        client.cancel()
        await asyncio.wait_for(there.left.wait(), 5)
        assert site.upstream.posts == []


@given(
    st.binary(max_size=40)
    | st.sampled_from(sorted(IMAGES.values())).flatmap(lambda head: st.binary().map(lambda rest: head + rest))
)
@untraced
def test_any_image_is_the_same_in_a_message(data):
    if type := images.media_type(data):
        assert images.data_url(data) == inline(data, type)
        request = Request(model="m", messages=tuple(asking(image("http://x/"))))
        inlined = images.inlined(request, {"http://x/": data})
        assert images.addresses(inlined) == {} and inlined == replace(
            request, messages=tuple(asking(image(inline(data, type))))
        )


def test_a_message_without_images_is_left_alone():
    request = Request(model="m", messages=({"role": "user", "content": "x"}, {"role": "assistant", "content": None}))
    assert images.addresses(request) == {} and Ledger().entries() == []
    assert [
        one is other for one, other in zip(images.inlined(request, {}).messages, request.messages, strict=True)
    ] == [True, True]
