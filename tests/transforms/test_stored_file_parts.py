"""Test the pure part of stored files: which parts name them, and their content in the messages."""

import base64

import pytest

from gateway.errors import BadRequest
from gateway.request import Request
from gateway.transforms import attachments
from gateway.transforms.stored_files import (
    FileReference,
    StoredContent,
    file_references,
    inline_stored_files,
    missing_file,
)
from support.web import PNG

TEXT = {"type": "text", "text": "q"}
FILE = {"type": "file", "file": {"file_id": "file-a"}}
IMAGE = {"type": "image_url", "image_url": {"file_id": "file-b", "detail": "low"}}
CONTENTS = {"file-a": StoredContent("a.txt", b"Hello"), "file-b": StoredContent("b", PNG)}
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def request_with(*parts):
    call = {"role": "assistant", "content": None, "tool_calls": []}
    return Request(model="m", messages=({"role": "user", "content": "q"}, call, {"role": "user", "content": [*parts]}))


def inlined(*parts, contents=CONTENTS):
    request = request_with(*parts)
    return inline_stored_files(request, file_references(request), contents)


def test_reference_names_the_path_of_its_id():
    url = {"type": "image_url", "image_url": {"url": "data:,"}}
    parts = [TEXT, FILE, url, IMAGE, {"type": "file", "file": {"file_id": None}}, {"type": "input_audio"}]
    assert file_references(request_with(*parts)) == [
        FileReference("file-a", "file", "messages[2].content[1].file.file_id"),
        FileReference("file-b", "image_url", "messages[2].content[3].image_url.file_id"),
    ]
    assert file_references(Request(model="m", messages=({"role": "user", "content": "q"},))) == []


def test_content_takes_the_place_of_the_id():
    named = {"type": "file", "file": {"file_id": "file-a", "filename": "other.txt"}}
    other = {"type": "file", "file": {"file_id": "file-c"}}
    got = inlined(TEXT, FILE, named, IMAGE, other)
    assert got.messages[2]["content"] == [
        TEXT,
        {"type": "file", "file": {"file_data": b"Hello", "filename": "a.txt"}},
        {"type": "file", "file": {"file_data": b"Hello", "filename": "other.txt"}},
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        other,
    ]
    assert not got.large and [one.id for one in file_references(got)] == ["file-c"]


def test_request_with_a_large_image_is_large():
    content = StoredContent("b", PNG + bytes(1 << 20))
    got = inlined(IMAGE, contents={"file-b": content})
    url = got.messages[2]["content"][0]["image_url"]["url"]
    assert got.large and base64.b64decode(url.partition(",")[2]) == content.data


def test_image_of_several_slices_is_base64():
    data = PNG + bytes(2 * attachments.SLICE)
    url = attachments.image_data_url(data)
    assert base64.b64decode(url.partition(",")[2]) == data
    request = Request(
        model="m", messages=({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]},)
    )
    assert attachments.image_urls(request) == {}


@pytest.mark.parametrize("data", ["A" * (3 << 20) + "?", "A" * 30 + "==" + "A" * (3 << 20)])
def test_base64_is_checked_in_each_slice(data):
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    with pytest.raises(BadRequest, match="expected an image in base64"):
        attachments.image_urls(Request(model="m", messages=({"role": "user", "content": [image]},)))


def test_file_without_an_image_is_refused_as_an_image():
    image = {"type": "image_url", "image_url": {"file_id": "file-a"}}
    with pytest.raises(BadRequest) as caught:
        inlined(TEXT, FILE, image)
    problem = caught.value.problem
    assert (problem.code, problem.param) == ("unsupported_image_media_type", "messages[2].content[2].image_url.file_id")


def test_missing_file_is_named_by_the_start_of_its_id():
    problem = missing_file(FileReference("x" * 9999, "file", "p")).problem
    assert (problem.status, problem.code, problem.param) == (404, "file_not_found", "p")
    assert f"no file '{'x' * 64}'" in problem.message
