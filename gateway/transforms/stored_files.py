"""Find the stored files that messages name by id, and put their content into the messages.

A part `{"type": "file", "file": {"file_id": …}}` gets the bytes as `file_data`, and the name of the file unless it has
one.  A part `{"type": "image_url", "image_url": {"file_id": …}}` gets a data URL.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends.data_urls import image_type
from gateway.errors import BadRequest, NotFound
from gateway.request import Message, Request, are_large
from gateway.transforms.attachments import image_data_url

_TYPES = ("file", "image_url")  # of the parts that may name a stored file
_MAX_ID = 64  # characters of an id in an error message
Part = dict[str, Any]


class FileReference(Struct, frozen=True):
    """A part that names a stored file.  type: of the part; param: the path of the id."""

    id: str
    type: str
    param: str


class StoredContent(Struct, frozen=True):
    """The name and the bytes of a stored file."""

    name: str
    data: bytes


def file_references(request: Request) -> list[FileReference]:
    """Return all references to stored files in a request."""
    if request.is_text_only:
        return []
    return [
        FileReference(id, part["type"], f"messages[{i}].content[{j}].{part['type']}.file_id")
        for i, message in enumerate(request.messages)
        if isinstance(content := message.get("content"), list)
        for j, part in enumerate(content)
        if (id := referenced_id(part)) is not None
    ]


def referenced_id(part: Part) -> str | None:
    """Return the id of the stored file that a part names; None if it names none."""
    if part["type"] not in _TYPES:
        return None
    id: str | None = part[part["type"]].get("file_id")
    return id


def inline_stored_files(
    request: Request, references: list[FileReference], contents: Mapping[str, StoredContent]
) -> Request:
    """Return the request with the content of stored files; parts that name other files stay.

    Raise BadRequest for an image in a format that the API lacks.

    contents: files by id.
    """
    images = {one.id: one.param for one in references if one.type == "image_url" and one.id in contents}
    urls = {id: _image_url(contents[id].data, param) for id, param in images.items()}

    def inline(part: Part) -> Part:
        id = referenced_id(part)
        if id is None or id not in contents:
            return part
        type, content = part["type"], contents[id]
        body = {name: value for name, value in part[type].items() if name != "file_id"}
        if type == "image_url":
            return {**part, type: {**body, "url": urls[id]}}
        return {**part, type: {**body, "file_data": content.data, "filename": body.get("filename") or content.name}}

    def inline_all(message: Message) -> Message:
        parts = message.get("content")
        return {**message, "content": [*map(inline, parts)]} if isinstance(parts, list) else message

    messages = tuple(map(inline_all, request.messages))
    return replace(request, messages=messages, large=are_large(messages))


def _image_url(data: bytes, param: str) -> str:
    if not image_type(data):
        message = f"Invalid '{param}': expected a file with a PNG, JPEG, GIF or WebP image."
        raise BadRequest(message, code="unsupported_image_media_type", param=param)
    return image_data_url(data)


def missing_file(reference: FileReference) -> NotFound:
    """Return the error for a file that the API key does not have."""
    message = (
        f"Invalid '{reference.param}': your API key has no file '{reference.id[:_MAX_ID]}'. "
        "It was deleted, has expired, or was not uploaded to /v1/files of this gateway."
    )
    return NotFound(message, code="file_not_found", param=reference.param)
