"""Test that a request or connection that has ended leaves no cycle of objects, which would stay until a collection."""

import asyncio
import gc
from contextlib import contextmanager

import pytest
from python_multipart import MultipartParser
from sqlalchemy import BindParameter
from websockets.server import ServerProtocol

from gateway.request import Request
from gateway.server.handler import IncomingRequest
from gateway.server.http.uvicorn_protocol import HttpProtocol
from gateway.server.http.websocket_protocol import WebSocketProtocol
from support.app import HELLO_MESSAGES, listening
from support.upstream import CLOSE, HELLO, chunk, head, whole
from support.wait import until
from support.websocket import connected, texts

LARGE = "a" * 300_000  # its body is read in a thread of its own
BODIES = {
    "/v1/chat/completions": {"messages": HELLO_MESSAGES},
    "/v1/responses": {"input": "Hello"},
    "/v1/messages": {"messages": HELLO_MESSAGES, "max_tokens": 9},
}
FAULTS = {
    "none": HELLO,
    "an error instead of a stream": whole({"error": "busy"}, status=503),
    "an error in the stream": [head(), chunk("Hi"), b'data: {"error":{"message":"out of memory"}}\n\n', CLOSE],
    "a close before the head": [CLOSE],
    "a close amid the stream": [head(), chunk("Hi"), CLOSE],
    "a close amid the reasoning": [head(), chunk(reasoning_content="Hm"), CLOSE],
    "a broken event": [head(), b'data: {"choices": [}\n\n', CLOSE],
}

KINDS = (IncomingRequest, HttpProtocol, WebSocketProtocol, ServerProtocol)  # of one connection of a WebSocket


def unfreed(*kinds):
    """Return the objects of these classes that are in memory; without a class, the requests."""
    return [one for one in gc.get_objects() if isinstance(one, kinds or (IncomingRequest, Request))]


@contextmanager
def without_collections():
    """Free objects by their reference counts alone."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("fault", [*FAULTS, "silence"])
async def test_request_leaves_no_garbage(path, fault):
    gate = asyncio.Event()
    script = [head(), chunk("Hi"), gate] if fault == "silence" else FAULTS[fault]
    async with listening(script, backend={"timeouts": {"idle": 0.2}}, model={"retries": 0}) as site:
        with without_collections():
            await site.client.post(path, json={**BODIES[path], "model": "m", "stream": True, "user": LARGE})
            await until(lambda: not unfreed())
        gate.set()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("text", ["a", LARGE], ids=["small", "large"])
async def test_request_that_is_refused_leaves_no_garbage(path, text):
    async with listening(HELLO) as site:
        with without_collections():
            refused = await site.client.post(
                path, json={**BODIES[path], "model": "m", "user": text, "temperature": "hot"}
            )
            assert refused.status_code == 400
            await until(lambda: not unfreed())


async def test_background_response_that_cannot_be_stored_leaves_no_garbage():
    async with listening(HELLO, store={"url": "sqlite:////proc/missing/gateway.db"}) as site:
        with without_collections():
            assert (await site.respond(background=True, user=LARGE)).status_code == 503
            await until(lambda: not unfreed())


@pytest.mark.parametrize("closes", [True, False], ids=["close", "abort"])
async def test_websocket_leaves_no_garbage(closes):
    async with listening(HELLO) as site:
        with without_collections():
            open_before = len(unfreed(*KINDS))
            async with connected(site) as socket:
                assert texts(await socket.respond()) == ["Hi"]
                if not closes:
                    socket.ws.transport.abort()
            await until(lambda: len(unfreed(*KINDS)) == open_before)


async def test_uploaded_file_leaves_no_garbage():
    async with listening(HELLO) as site:

        async def upload():
            fields = {"files": {"file": ("a.txt", b"Hello")}, "data": {"purpose": "user_data"}}
            file = (await site.client.post("/v1/files", **fields)).json()
            assert (await site.client.get(f"/v1/files/{file['id']}")).json() == file

        await upload()  # prepares the statements of the store
        with without_collections():
            before = len(unfreed(MultipartParser, BindParameter))
            await upload()
            await until(lambda: len(unfreed(MultipartParser, BindParameter)) == before)
