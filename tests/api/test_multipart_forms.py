"""Test how a multipart body is taken apart, wherever it is cut."""

import pytest

from gateway.api.files import FileParams, form_params
from gateway.api.multipart import FormReader
from gateway.errors import BadRequest

DATA = b"a\r\n--X\r\n\r\nb\x00"
BODY = (
    b'--XX\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n'
    b"--XX\r\nContent-Type: text/plain\r\n"
    b'content-disposition: form-data; name="file"; filename="\xc3\xa4 \\"b\\".txt"\r\n\r\n' + DATA + b"\r\n"
    b'--XX\r\nContent-Disposition: form-data; name="empty"; filename=""\r\n\r\n\r\n'
    b"--XX\r\nX-Other: 1\r\n\r\nnameless\r\n--XX--\r\n"
)
PARTS = [("purpose", None, b"user_data"), ("file", 'ä "b".txt', DATA), ("empty", "", b""), ("", None, b"nameless")]


def taken_apart(*pieces, boundary=b"XX"):
    """Return name, filename and bytes of each part."""
    reader, parts = FormReader(boundary), {}
    for piece in pieces:
        for part, data in reader.feed(piece):
            parts[part] = parts.get(part, b"") + data
    reader.end()
    return [(part.name, part.filename, data) for part, data in parts.items()]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_multipart_form_is_taken_apart_wherever_it_is_cut(size):
    assert taken_apart(*(BODY[i : i + size] for i in range(0, len(BODY), size))) == PARTS


@pytest.mark.parametrize(
    ("body", "boundary", "message"),
    [
        (b"hello", b"XX", "invalid"),
        (BODY[:-6], b"XX", "It has no final boundary"),
        (BODY, b"x" * 2000, "Boundary length 2000 exceeds"),
        (b"--XX\r\nA: " + b"x" * 10_000, b"XX", "Maximum header size"),
    ],
)
def test_multipart_form_that_is_invalid_is_refused(body, boundary, message):
    with pytest.raises(BadRequest, match=message) as caught:
        taken_apart(body, boundary=boundary)
    assert caught.value.problem.code == "invalid_value"


AFTER = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}


@pytest.mark.parametrize(
    ("fields", "filename", "params"),
    [
        ({"purpose": "user_data", "other": "x"}, "a", FileParams("a", "user_data", None)),
        ({"purpose": "vision", **AFTER}, "a.png", FileParams("a.png", "vision", 3600)),
        ({"purpose": "vision", "expires_after.anchor": "created_at", "expires_after.seconds": "3600"}, "a", FileParams("a", "vision", 3600)),
        ({"purpose": "vision", "expires_after": '{"anchor": "created_at", "seconds": 3600}'}, "a", FileParams("a", "vision", 3600)),
        ({"purpose": "vision", "expires_after": ""}, "a", FileParams("a", "vision", None)),
        ({"purpose": "batch"}, "a.JSONL", FileParams("a.JSONL", "batch", 30 * 86_400)),
        ({"purpose": "batch", **AFTER}, "a.jsonl", FileParams("a.jsonl", "batch", 3600)),
    ],
)  # fmt: skip
def test_file_form_has_the_lifetime_of_its_purpose(fields, filename, params):
    assert form_params(fields, filename) == params


@pytest.mark.parametrize(
    ("fields", "filename", "code", "param"),
    [
        ({}, "a", "missing_required_parameter", "purpose"),
        ({"purpose": "fun"}, "a", "invalid_value", "purpose"),
        ({"purpose": "user_data"}, "", "empty_string", "filename"),
        ({"purpose": "user_data"}, "x" * 1025, "string_above_max_length", "filename"),
        ({"purpose": "batch"}, "a.json", "invalid_value", "file"),
        ({"purpose": "fine-tune"}, "a.json", "invalid_value", "file"),
        ({"purpose": "evals", **AFTER, "expires_after[seconds]": "3599"}, "a", "integer_below_min_value", "expires_after.seconds"),
        ({"purpose": "evals", **AFTER, "expires_after[seconds]": "2592001"}, "a", "integer_above_max_value", "expires_after.seconds"),
        ({"purpose": "evals", **AFTER, "expires_after[seconds]": "1e3"}, "a", "invalid_type", "expires_after.seconds"),
        ({"purpose": "evals", **AFTER, "expires_after[anchor]": "used_at"}, "a", "invalid_value", "expires_after.anchor"),
        ({"purpose": "evals", "expires_after": "3600"}, "a", "invalid_type", "expires_after"),
        ({"purpose": "evals", "expires_after": "soon"}, "a", "invalid_type", "expires_after"),
        ({"purpose": "evals", "expires_after": "[" * 60_000}, "a", "invalid_type", "expires_after"),
        ({"purpose": "evals", "expires_after": '{"seconds": 3600}'}, "a", "missing_required_parameter", "expires_after.anchor"),
        ({"purpose": "evals", "expires_after[seconds]": "3600"}, "a", "missing_required_parameter", "expires_after.anchor"),
    ],
)  # fmt: skip
def test_file_form_that_breaks_a_rule_is_refused(fields, filename, code, param):
    with pytest.raises(BadRequest) as caught:
        form_params(fields, filename)
    assert (caught.value.problem.code, caught.value.problem.param) == (code, param)


def test_file_of_a_batch_has_a_maximum_size():
    one = FileParams("a.jsonl", "batch", None)
    one.check_size(200_000_000)
    FileParams("a", "user_data", None).check_size(200_000_001)
    with pytest.raises(BadRequest, match="200000001 bytes, more than the maximum of 200000000"):
        one.check_size(200_000_001)
