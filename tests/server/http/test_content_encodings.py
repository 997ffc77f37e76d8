"""Test encoded request bodies: decoded, refused, and bounded in memory."""

import asyncio
import gzip
import json
import tracemalloc
import zlib

import pytest
from backports import zstd
from fastapi import Request

from gateway.errors import BadRequest
from gateway.server.http.content_decoder import ENCODINGS, STEP, ContentDecoder, decode_beginning
from gateway.server.http.memory import Buffers, Room
from gateway.server.http.request_reader import read_body
from support.app import HELLO_MESSAGES, gateway, problem
from support.upstream import HELLO, whole

BODY = json.dumps({"model": "m", "messages": HELLO_MESSAGES}).encode()
LIMIT = 1 << 20
MEMBER, FRAME = gzip.compress(b""), zstd.compress(b"")
SKIPPABLE = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"


def zstd_stream(data, window=21):
    """Return a zstd frame without a content size, as Codex sends it."""
    one = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window})
    return one.compress(data) + one.flush()


GOOD = {
    "gzip": ("gzip", gzip.compress(BODY)),
    "by its old name": ("x-gzip", gzip.compress(BODY)),
    "in capitals": (" GZip ", gzip.compress(BODY)),
    "deflate": ("deflate", zlib.compress(BODY)),
    "zstd": ("zstd", zstd.compress(BODY)),
    "zstd of no length": ("zstd", zstd_stream(BODY)),
    "two members": ("gzip", gzip.compress(BODY[:9]) + gzip.compress(BODY[9:])),
    "two frames": ("zstd", zstd.compress(BODY[:9]) + zstd.compress(BODY[9:])),
    "what is to be skipped": ("zstd", SKIPPABLE + zstd.compress(BODY) + SKIPPABLE),
    "as it is": ("identity", BODY),
}
DAMAGED = {
    "half of it": ("gzip", gzip.compress(BODY)[:-9]),
    "no checksum": ("gzip", gzip.compress(BODY)[:-4]),
    "a wrong checksum": ("gzip", gzip.compress(BODY)[:-8] + bytes(8)),
    "half a frame": ("zstd", zstd.compress(BODY)[:-1]),
    "not encoded at all": ("gzip", BODY),
    "nor here": ("zstd", BODY),
    "something else": ("zstd", gzip.compress(BODY)),
    "deflate without its head": ("deflate", zlib.compress(BODY)[2:-4]),
    "more behind it": ("gzip", gzip.compress(BODY) + b"GET / HTTP/1.1"),
    "zeros behind it": ("gzip", gzip.compress(BODY) + bytes(512)),
    "more behind a frame": ("zstd", zstd.compress(BODY) + b"GET / HTTP/1.1"),
    "a great many members": ("gzip", gzip.compress(BODY) + MEMBER * 16),
    "a great many frames": ("zstd", zstd.compress(BODY) + FRAME * 16),
    "a window of 16 MB": ("zstd", zstd_stream(BODY, window=24)),
}  # fmt: skip


async def post(site, encoding, body):
    return await site.client.post("/v1/chat/completions", content=body, headers={"content-encoding": encoding})


@pytest.mark.parametrize("case", GOOD)
async def test_encoding_of_a_request_body_is_decoded(case):
    async with gateway(HELLO) as site:
        answer = await post(site, *GOOD[case])
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["message"]["content"] == "Hi"


@pytest.mark.parametrize("case", DAMAGED)
async def test_encoding_that_is_damaged_is_refused(case):
    async with gateway(HELLO) as site:
        refused = problem(await post(site, *DAMAGED[case]))
        assert refused == (400, "invalid_request_error", "invalid_content_encoding", None)
        assert not site.upstream.posts


@pytest.mark.parametrize("encoding", ["br", "made-up", "gzip, gzip", "identity, zstd", "zstd;q=1", "gz\xe9p"])
async def test_encoding_that_is_unknown_is_refused_by_name(encoding):
    async with gateway(HELLO) as site:
        answer = await post(site, encoding.encode("latin-1"), gzip.compress(BODY))
        assert problem(answer) == (415, "invalid_request_error", "unsupported_content_encoding", None)
        message = answer.json()["error"]["message"]
        assert f"'{encoding}'" in message and "gzip, x-gzip, deflate, zstd or identity" in message


async def test_encoding_header_lines_are_joined_and_refused():
    async with gateway(HELLO) as site:
        lines = [("content-encoding", "identity"), ("content-encoding", "gzip")]
        answer = await site.client.post("/v1/chat/completions", content=BODY, headers=lines)
        assert answer.status_code == 415 and "'identity, gzip'" in answer.text


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/conversations", "/v1/tokenize"])
async def test_encoding_is_decoded_on_every_endpoint(path):
    body = {"model": "m", "input": "Hello", "prompt": "Hello"} if path != "/v1/conversations" else {}
    async with gateway(HELLO) as site:
        plain = await site.client.post(path, json=body)
        answer = await site.client.post(
            path, content=zstd.compress(json.dumps(body).encode()), headers={"content-encoding": "zstd"}
        )
        assert answer.status_code == plain.status_code


async def test_encoding_of_an_empty_body_is_accepted():
    async with gateway(HELLO) as site:
        answer = await site.client.post("/v1/conversations", content=b"", headers={"content-encoding": "gzip"})
        assert answer.status_code == 200


async def test_encoding_does_not_change_an_idempotent_request():
    async with gateway(HELLO) as site:
        answers = [
            await site.client.post(
                "/v1/chat/completions", content=body, headers={"content-encoding": encoding, "idempotency-key": "once"}
            )
            for encoding, body in GOOD.values()
        ]
        assert len({answer.text for answer in answers}) == 1 and len(site.upstream.posts) == 1


# Bombs


def gzip_bomb():
    """10 GB of zeros in 10 MB."""
    one = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    mib = bytes(1 << 20)
    one.compress(mib) + one.flush(zlib.Z_FULL_FLUSH)
    piece = one.compress(mib) + one.flush(zlib.Z_FULL_FLUSH)
    return MEMBER[:10], piece, 10_000


def zstd_bomb():
    """10 GB of zeros in 330 KB: each block repeats one byte."""
    head = b"\x28\xb5\x2f\xfd\x00\x38"  # no length, a window of 128 KB
    block = (1 << 1 | (128 << 10) << 3).to_bytes(3, "little") + b"\x00"
    return head, block, 80_000


@pytest.mark.parametrize("encoding, bomb", [("gzip", gzip_bomb), ("zstd", zstd_bomb)])
async def test_encoding_bomb_is_refused_with_little_memory(encoding, bomb):
    head, piece, times = bomb()

    async def pieces():
        yield head
        yield piece  # what is loaded at the first use is
        most = (64 << 10) // len(piece)
        for _ in range(times // most):
            yield piece * most

    async with gateway(HELLO, limits={"body_bytes": LIMIT}) as site:
        zstd.decompress(FRAME)
        await post(site, encoding, b"")
        tracemalloc.start()
        try:
            answer = await post(site, encoding, pieces())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert problem(answer) == (413, "invalid_request_error", "request_too_large", None)
        assert peak < 3 * LIMIT + STEP


async def test_encoding_with_an_encoded_body_beyond_the_limit_is_refused():
    async with gateway(HELLO, limits={"body_bytes": 64}) as site:

        async def pieces():
            yield MEMBER * 4

        assert (await post(site, "gzip", pieces())).status_code == 413
        assert (await post(site, "gzip", MEMBER * 4)).status_code == 413


def test_decoding_steps_have_a_maximum_size():
    body = bytes(5 * STEP + 1)
    for encoding, packed in (
        ("gzip", gzip.compress(body)),
        ("deflate", zlib.compress(body)),
        ("zstd", zstd_stream(body)),
    ):
        for size in (1, 7, len(packed)):
            decoding = ContentDecoder(ENCODINGS[encoding])
            pieces = [p for at in range(0, len(packed), size) for p in decoding.feed(packed[at : at + size])]
            decoding.close()
            assert b"".join(pieces) == body and max(map(len, pieces)) <= STEP


@pytest.mark.parametrize("case", ["gzip", "zstd of no length"])
def test_decoding_of_a_cut_body_is_an_error(case):
    encoding, packed = GOOD[case]
    for end in range(1, len(packed)):
        decoding = ContentDecoder(ENCODINGS[encoding])
        assert BODY.startswith(b"".join(decoding.feed(packed[:end])))
        with pytest.raises(BadRequest):
            decoding.close()


async def test_decoding_lets_other_tasks_run_between_steps():
    body = json.dumps({"model": "m", "messages": HELLO_MESSAGES, "user": "x" * 31_000_000}).encode()
    request = Request({"type": "http", "headers": [(b"content-encoding", b"gzip")]}, receive_of(gzip.compress(body, 1)))
    turns, over = 0, False

    async def others():
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    assert await read_body(request, 32 << 20, Room(Buffers(), 1)) == body
    over = True
    await task
    assert turns >= len(body) // STEP


def receive_of(body):
    """Return an ASGI `receive` that gives the whole body at once."""

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


# Error bodies of backends


@pytest.mark.parametrize("encoding, decoded", [("", BODY), ("identity", BODY), ("gzip", b""), ("br", b"")])
def test_decoding_of_a_plain_error_body_needs_the_right_encoding(encoding, decoded):
    assert decode_beginning(BODY, encoding, LIMIT) == decoded


@pytest.mark.parametrize("name, packed", [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstd_stream)])
def test_decoding_of_an_error_body_ends_where_it_is_cut_or_too_long(name, packed):
    body = bytes(5 * STEP)
    assert decode_beginning(b"", name, LIMIT) == b""
    assert decode_beginning(packed(BODY), name, LIMIT) == BODY
    assert BODY.startswith(decode_beginning(packed(BODY)[:-9], name, LIMIT))
    assert len(decode_beginning(packed(body), name, STEP + 1)) == 2 * STEP


@pytest.mark.parametrize(
    "path, fields",
    [
        ("/v1/chat/completions", {"messages": HELLO_MESSAGES}),
        ("/v1/responses", {"input": "Hello", "stream": True}),
        ("/v1/messages", {"messages": HELLO_MESSAGES, "max_tokens": 9}),
        ("/v1/audio/speech", {"input": "Hello", "voice": "alloy"}),
    ],
)
async def test_encoding_of_a_backends_error_is_decoded(path, fields):
    """A proxy may compress errors although the gateway asks for plain bodies."""
    refusal = gzip.compress(json.dumps({"error": {"message": "The prompt holds a word that is not allowed."}}).encode())
    async with gateway(whole(refusal, status=400, content_encoding="GZip")) as site:
        answer = await site.client.post(path, json={"model": "m", **fields})
    assert answer.status_code == 400
    assert "The prompt holds a word that is not allowed." in answer.json()["error"]["message"]
