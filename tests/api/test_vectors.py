"""Test vectors that are read in slices: the values and the errors are those of one decoding of the whole body."""

import pytest
from msgspec import DecodeError, Raw, json

from gateway.api import vectors
from gateway.server.http.client_connection import JsonPiecesResponse

FLAT = b"[" + b", ".join(b"-0.%d" % number for number in range(1, 600)) + b"]"
NESTED = b"[" + b",".join([b"[1.5, 2]", b"[ 3e4 ]"] * 300) + b"]"
SPACED = b"[ " + b" , ".join([b"[ 1.5 ]", b"[\n3e4 ]"] * 300) + b" ] "
LONG = b"0," * 2000
BODIES = {
    "a vector": b'{"data":[{"embedding":' + FLAT + b"}]}",
    "three vectors": b'[{"e":' + FLAT + b'},{"e":[1]},{"e":' + FLAT + b"}]",
    "lists of vectors": b'{"data":[{"e":' + NESTED + b'},{"e":' + SPACED + b"}]}",
    "lists of lists of vectors": b"[" + NESTED + b"," + NESTED + b"]",
    "a list in a text": b'{"error":"of ' + FLAT + b'"}',
    "a mark of its own": b'{"":0,"data":' + FLAT + b"}",
    "a text in a list": b"[" + LONG + b'"a"]',
    "a null in a list": b"[" + LONG + b"null]",
    "lists beside numbers": b"[[" + LONG + b"1],2,[3]]",
    "an empty list": b'{"data":[]}',
    "no value": b"[" + LONG + b",1]",
    "no first value": b"[ -," + LONG + b"1]",
    "a comma at the end": b"[" + LONG + b" ]",
    "a list and a comma at the end": b"[" + b"[1]," * 1000 + b"]",
    "a number that is none": b"[" + LONG + b"1.]",
    "no end": b'{"data":[' + LONG,
    "no end of lists": b'{"data":[[1],[2]',
    "no list": b"{}",
}


def restored(value, lists):
    """Return the value with the lists in place of their marks."""
    if isinstance(value, dict):
        mark = json.encode(value)
        return (
            json.decode(lists[mark]) if mark in lists else {name: restored(one, lists) for name, one in value.items()}
        )
    return [restored(one, lists) for one in value] if isinstance(value, list) else value


@pytest.fixture(params=[64, 1 << 19], ids=["slices", "whole"])
def size(request, monkeypatch):
    monkeypatch.setattr(vectors, "_SLICE", request.param)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.usefixtures("size")
def test_folded_body_has_the_values_and_errors_of_the_whole(name):
    raw = BODIES[name]
    try:
        expected = json.decode(raw)
    except DecodeError as error:
        with pytest.raises(DecodeError) as caught:
            vectors.decode_folded(raw, json.decode)
        assert str(caught.value) == str(error)
    else:
        assert restored(*vectors.decode_folded(bytearray(raw), json.decode)) == expected


@pytest.mark.parametrize(("name", "count"), [("a vector", 1), ("three vectors", 2), ("lists of vectors", 2)])
@pytest.mark.usefixtures("size")
def test_long_lists_of_numbers_are_not_decoded(name, count):
    seen = []
    _, lists = vectors.decode_folded(BODIES[name], seen.append)
    assert len(lists) == count and len(seen[0]) < 100


@pytest.mark.usefixtures("size")
def test_vector_has_its_numbers_in_both_encodings():
    numbers = json.decode(FLAT)
    for raw in (FLAT, vectors.encode_vector(numbers, "float")):
        assert [*vectors.decode_vector(raw)] == numbers
    packed = vectors.encode_vector(numbers, "base64")
    assert [*vectors.decode_vector(packed)] == pytest.approx(numbers, rel=1e-6)
    assert vectors.encode_vector(vectors.decode_vector(packed), "base64") == packed


@pytest.mark.usefixtures("size")
def test_several_vectors_are_read_one_by_one():
    assert [*map(json.decode, vectors.vectors_in(NESTED))] == json.decode(NESTED)
    assert [*vectors.vectors_in(b"[" + FLAT + b"," + FLAT + b"]")] == [FLAT, FLAT]


def test_parts_of_a_vector_are_those_of_the_whole(monkeypatch):
    numbers = [number / 7 for number in range(100)]
    whole = [(vectors.encode_vector(numbers, form), vectors.shortened(numbers, 50)) for form in ("float", "base64")]
    monkeypatch.setattr(vectors, "_NUMBERS", 12)
    for form, (encoded, short) in zip(("float", "base64"), whole, strict=True):
        assert vectors.encode_vector(numbers, form) == encoded
        assert vectors.shortened(numbers, 50) == pytest.approx(short)


@pytest.mark.parametrize(("raw", "length"), [(b"[]", 0), (b"[ \n]", 0), (b"[1]", 1), (b"[1, 2]", 2)])
def test_length_is_counted_without_decoding(raw, length):
    assert vectors.length_of(raw) == length


@pytest.mark.parametrize("entries", [[{"index": 0, "e": Raw(FLAT)}], [{"e": Raw(NESTED)}, {"e": Raw(b"null")}]])
def test_pieces_of_a_response_are_its_json(entries):
    response = {"object": "list", "data": entries, "model": 'a "data":null', "usage": {"total_tokens": 1}}
    assert b"".join(vectors.response_pieces(response)) == json.encode(response)


async def test_pieces_are_sent_in_parts_with_their_length():
    pieces = [b"a" * 40_000, memoryview(b"b" * 70_000), b"c" * 10]
    sent = []

    async def send(message):
        sent.append(message)

    await JsonPiecesResponse(pieces, {"x-a": "b"})({}, None, send)
    head, *parts = sent
    assert dict(head["headers"]) == {b"content-length": b"110010", b"content-type": b"application/json", b"x-a": b"b"}
    assert [len(part["body"]) for part in parts] == [110_000, 10]
    assert [part["more_body"] for part in parts] == [True, False]
    assert b"".join(part["body"] for part in parts) == b"".join(pieces)
