"""Test that bodies of any size are passed on in little memory: a side that does not read holds the other side back."""

import asyncio

import httpx

from gateway.server.app import create_app
from support.app import listening, running, settings
from support.endless_upstream import MAX_BUFFERED, PIECE, Pouring
from support.upstream import END, chunk, head

PIECES = 6000  # 96 MB
BOUNDARY = {"content-type": "multipart/form-data; boundary=XX"}
BEGIN = (
    b'--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
)
LAST = b"\r\n--XX--\r\n"


class SlowReader:
    """A backend that reads the body of a request, and answers, only behind its gate.  size: the bytes of the body."""

    def __init__(self):
        self.gate, self.size = asyncio.Event(), 0

    async def __call__(self, reader, writer):
        await reader.readuntil(b"a.wav")
        await self.gate.wait()
        end = b""
        while end != b"0\r\n\r\n":
            data = await reader.read(1 << 18)
            end, self.size = (end + data)[-5:], self.size + len(data)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()


async def parts(flow):
    """Yield a multipart body, and count its bytes."""
    yield BEGIN
    for _ in range(PIECES):
        yield PIECE.encode()
        flow.sent += len(PIECE)
        flow.moved.set()
    yield LAST


async def test_passed_upload_waits_for_a_backend_that_does_not_read():
    flow, backend = Pouring(PIECES), SlowReader()
    server = await asyncio.start_server(backend, "127.0.0.1", 0)
    config = settings(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with running(create_app(config), config) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        sent = asyncio.create_task(client.post("/v1/audio/transcriptions", content=parts(flow), headers=BOUNDARY))
        await flow.stuck()
        held = flow.sent
        backend.gate.set()
        assert (await sent).json() == {}
    server.close()
    assert held < MAX_BUFFERED < flow.sent < backend.size


async def test_passed_response_waits_for_a_client_that_does_not_read():
    flow = Pouring(PIECES)
    request = {"model": "m", "input": "Hello", "voice": "alloy"}
    async with (
        listening([head(type="audio/mpeg"), flow, END]) as site,
        site.client.stream("POST", "/v1/audio/speech", json=request) as answer,
    ):
        await flow.stuck()
        held = flow.sent
        size = 0
        async for piece in answer.aiter_raw():
            size += len(piece)
    assert held < MAX_BUFFERED < flow.sent
    assert size == PIECES * len(chunk(PIECE))
