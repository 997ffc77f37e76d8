"""Test how a multipart body is kept and passed on, with the messages of a scripted client."""

import pytest
from starlette.requests import ClientDisconnect, Request

from gateway.server.http import upload

TYPE = (b"content-type", b"multipart/form-data; boundary=XX")
FIELD = b'--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--XX--\r\n'


def uploaded(*bodies):
    """Return an upload of these pieces, of which None is the client's disconnect."""
    messages = [{"type": "http.request", "body": body, "more_body": True} for body in bodies[:-1]]
    last = {"type": "http.disconnect"} if bodies[-1] is None else {"type": "http.request", "body": bodies[-1]}
    remaining = iter([*messages, last])

    async def receive():
        return next(remaining)

    return upload.ClientUpload(Request({"type": "http", "headers": [TYPE]}, receive), 1 << 30)


async def test_upload_skips_empty_pieces_and_cannot_be_repeated_then():
    rest = b"x" * upload.KEPT
    one = uploaded(FIELD, rest, b"", b"end", b"")
    assert await one.read_model() == "m" and one.is_repeatable
    assert await one.whole("n") is None and one.length("n") is None
    pieces = [piece async for piece in one.pieces("large")]
    assert b"".join(pieces) == FIELD.replace(b"\r\nm\r\n", b"\r\nlarge\r\n") + rest + b"end"
    assert all(pieces) and not one.is_repeatable and one.size == len(FIELD + rest) + 3
    one.close()


async def test_upload_that_is_whole_has_a_length_and_can_be_repeated():
    one = uploaded(FIELD)
    assert await one.read_model() == "m"
    assert [await one.whole("ab") for _ in range(2)] == [FIELD.replace(b"\r\nm\r\n", b"\r\nab\r\n")] * 2
    assert one.length("ab") == len(FIELD) + 1 and one.is_repeatable
    one.close()


async def test_upload_that_is_whole_before_its_last_message_can_be_repeated():
    one = uploaded(FIELD, b"")
    assert await one.read_model() == "m" and await one.whole("m") == FIELD and one.is_repeatable
    one.close()


async def test_upload_ends_with_the_client():
    one = uploaded(FIELD[:10], None)
    with pytest.raises(ClientDisconnect):
        await one.read_model()
    one.close()
