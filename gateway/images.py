"""Images in messages, for servers that have to be sent the image itself, in base64.

A part `{"type": "image_url", "image_url": {"url": …}}`, in any message, has a data URL or says where the image
is.  What an image is its first bytes decide, not what it is called.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from gateway.errors import BadRequest
from gateway.request import Message, Request

Part = dict[str, Any]


def image_urls(request: Request) -> dict[str, str]:
    """The URL of each image that has to be fetched, and the path where it stands first.

    Raises BadRequest for what is neither a URL of the web nor base64: `messages[i].content[j].image_url.url`.
    """
    found: dict[str, str] = {}
    for i, message in enumerate(request.messages):
        for j, part in _images(message):
            url, param = part["image_url"]["url"], f"messages[{i}].content[{j}].image_url.url"
            if url[:5].lower() == "data:":
                _check_data(url, param)
            elif url[:8].lower().startswith(("http://", "https://")):
                found.setdefault(url, param)
            else:
                text = f"Invalid '{param}': expected a data URL, or one that begins with http:// or https://."
                raise BadRequest(text, code="invalid_image_url", param=param)
    return found


def inline_images(request: Request, fetched: Mapping[str, bytes]) -> Request:
    """The request with these images, by their URLs, in its messages."""
    data = {url: image_data_url(image) for url, image in fetched.items()}
    return replace(request, messages=tuple(_inlined(message, data) for message in request.messages))


def image_type(data: bytes) -> str | None:
    """PNG, JPEG, GIF or WebP, the types of the API; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def image_data_url(image: bytes) -> str:
    return f"data:{image_type(image)};base64,{b64encode(image).decode()}"


def _images(message: Message) -> Iterator[tuple[int, Part]]:
    content = message.get("content")
    for i, part in enumerate(content if isinstance(content, list) else ()):
        if part["type"] == "image_url":
            yield i, part


def _check_data(url: str, param: str) -> None:
    head, _, data = url.partition(",")
    try:
        if head.lower().endswith(";base64") and b64decode(data, validate=True):
            return
    except ValueError:
        pass
    raise BadRequest(f"Invalid '{param}': expected an image in base64.", code="invalid_base64_image", param=param)


def _inlined(message: Message, data: Mapping[str, str]) -> Message:
    places = {i: data[url] for i, part in _images(message) if (url := part["image_url"]["url"]) in data}
    if not places:
        return message
    content = [
        {**part, "image_url": {**part["image_url"], "url": places[i]}} if i in places else part
        for i, part in enumerate(message["content"])
    ]
    return {**message, "content": content}
