"""Test the search for the model in a multipart body, in pieces of all sizes."""

import pytest

from gateway.api.multipart import FieldFinder, boundary_of, content_type_of
from gateway.errors import BadRequest, UnsupportedMediaType

FILE = b'--XX\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n\r\n\r\n--X\r\n--\r\n'
EMPTY = b'--XX\r\ncontent-disposition: form-data; name="prompt"\r\n\r\n\r\n'
MODEL = b'--XX\r\nContent-Type: text/plain\r\ncontent-disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
BARE = b"--XX\r\nContent-Disposition: form-data; name=model\r\n\r\nwhisper\r\n"
OTHER = b'--XX\r\nContent-Disposition: form-data; name="my_model"\r\n\r\nno\r\n'
OTHERS = [
    OTHER.replace(b'"my_model"', name) for name in (b'"model[]"', b'"model x"', b"model-x", b"models", b'"models"')
]
END = b"--XX--\r\n"
# All are the field for some server.
SPELLINGS = (
    MODEL,
    BARE,
    MODEL.replace(b'"model"', b'"model"; filename="x"'),
    MODEL.replace(b"; name", b"; charset=utf-8;NAME "),
    MODEL.replace(b"; name", b";\r\n\tname"),
    MODEL.replace(b'name="model"', b"name*0=mo; name*1=del"),
    MODEL.replace(b'"model"', b'"model" x'),
    BARE.replace(b"=model", b"=model x"),
)


def found(body, size):
    finder = FieldFinder(b"XX", "model")
    for start in range(0, len(body), size):
        finder.feed(body[start : start + size])
    return finder


@pytest.mark.parametrize("parts", [(MODEL,), (FILE, MODEL), (MODEL, FILE), (OTHER, EMPTY, BARE, FILE), (EMPTY, MODEL)])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 5000])
def test_multipart_field_is_found_with_its_place(parts, size):
    body = b"".join((*parts, FILE, b"x" * 3000, END))
    finder = found(body, size)
    assert (finder.value, body[finder.begin : finder.end]) == (b"whisper", b"whisper")


@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("first", SPELLINGS)
@pytest.mark.parametrize("second", SPELLINGS)
def test_multipart_body_with_two_of_the_field_is_refused(first, second, size):
    body = first + OTHER + FILE + second + END
    with pytest.raises(BadRequest, match="two fields 'model'") as caught:
        found(body, size)
    assert (caught.value.problem.code, caught.value.problem.param) == ("invalid_value", "model")
    assert found(body.removesuffix(second + END) + END, size).value == b"whisper"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 5000])
@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        (MODEL.replace(b"\r\n", b"\n") + OTHER, "A header of a part does not end with CRLF."),
        (OTHER.replace(b"\r\n\r\n", b"\r\r\n\r\n") + MODEL, "A header of a part does not end with CRLF."),
        (MODEL + MODEL.replace(b"\r\n", b"\n"), "A header of a part does not end with CRLF."),
        (OTHER[:-2] + b"\n" + MODEL, "A boundary does not follow CRLF."),
        (OTHER[:-2] + b"\r" + MODEL, "A boundary does not follow CRLF."),
        (OTHER[:-4] + MODEL, "A boundary does not follow CRLF."),
    ],
)
def test_multipart_body_that_hides_the_field_behind_another_line_end_is_refused(hidden, message, size):
    with pytest.raises(BadRequest) as caught:
        found(hidden + MODEL.replace(b"whisper", b"tiny") + END, size)
    assert message in caught.value.problem.message and caught.value.problem.code == "invalid_value"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 5000])
@pytest.mark.parametrize("text", [b" --XX", b"---XX--XX", b"\n\r--X\n--Y", b"\n", b"\r\n\r\n"])
def test_multipart_part_may_hold_what_looks_like_a_boundary(text, size):
    assert found(FILE.replace(b"--X\r\n--", text) + MODEL + END, size).value == b"whisper"


@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("body", [END, FILE + OTHER + END, b"".join(OTHERS) + END])
def test_multipart_body_without_the_field_ends(body, size):
    finder = found(body, size)
    assert finder.ended and finder.value is None


@pytest.mark.parametrize("size", [100, 50_000])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (MODEL.replace(b"whisper", b"w" * 2000) + END, "Invalid 'model': longer than 1024 bytes."),
        (MODEL.replace(b"whisper", b"w" * 2000), "Invalid 'model': longer than 1024 bytes."),
        (b"--XX\r\nx: " + b"x" * 20_000, "The headers of a part are longer than 16384 bytes."),
    ],
)
def test_multipart_field_or_headers_that_are_too_long_are_refused(body, message, size):
    with pytest.raises(BadRequest, match=message):
        found(body, size)


def test_multipart_file_is_not_kept_by_the_search():
    finder = found(FILE + b"x" * 100_000, 1000)
    assert len(finder._buffer) < 10 and finder.value is None


def test_multipart_boundary_is_read_from_the_content_type():
    assert boundary_of("multipart/form-data; boundary=XX") == b"XX"
    assert boundary_of('multipart/form-data; charset=utf-8; boundary="X X"') == b"X X"


@pytest.mark.parametrize(
    ("type", "sent"),
    [
        ("multipart/form-data; boundary=----X_1", "multipart/form-data; boundary=----X_1"),
        ("multipart/form-data; boundary=AA; boundary=BB", "multipart/form-data; boundary=AA"),
        ("multipart/form-data; boundary*=AA; BOUNDARY=BB; charset=utf-8", "multipart/form-data; boundary=BB"),
        ('Multipart/Form-Data; boundary="X X"', 'multipart/form-data; boundary="X X"'),
    ],
)
def test_multipart_type_has_the_boundary_that_was_read_alone(type, sent):
    assert content_type_of(boundary_of(type)) == sent


BOUNDARIES = [f"multipart/form-data; boundary={one}" for one in ('""', '"a\\\\b"', "\xe9", "a\tb")]


@pytest.mark.parametrize(
    "type", ["application/json", "multipart/form-data", "", "multipart/mixed; boundary=x", *BOUNDARIES]
)
def test_multipart_boundary_is_required(type):
    with pytest.raises(UnsupportedMediaType, match="Send multipart/form-data with a boundary"):
        boundary_of(type)
