"""Test that a request or connection that has ended leaves no cycle of objects, which would stay until a collection."""

import asyncio
import weakref
from contextlib import asynccontextmanager

import pytest
from python_multipart import MultipartParser
from websockets.server import ServerProtocol

from gateway.request import Request
from gateway.server.handler import IncomingRequest
from gateway.server.http.server_config import WebSocketProtocol
from gateway.server.http.uvicorn_protocol import HttpProtocol
from support import wait
from support.app import HELLO_MESSAGES, listening
from support.memory import instances, until_freed, watched
from support.upstream import CLOSE, HELLO, chunk, head, whole
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

REQUEST = (IncomingRequest, Request)
WEBSOCKET = (IncomingRequest, HttpProtocol, WebSocketProtocol, ServerProtocol)


@asynccontextmanager
async def leaves_none(kinds):
    """Wait until the block has left none of these classes, freed by their reference counts alone."""
    with watched():
        yield
        await until_freed(kinds)


class Late:
    """An object that a test makes."""


async def test_object_that_goes_late_is_no_garbage():
    async with leaves_none(Late):
        late = [Late()]
        asyncio.get_running_loop().call_later(0.02, late.clear)


def test_instances_are_found_beside_a_proxy_whose_object_is_gone():
    late, proxy = Late(), weakref.proxy(Late())
    with pytest.raises(ReferenceError):
        isinstance(proxy, Late)
    assert instances(Late) == [late]


async def test_garbage_is_named_with_what_holds_it(monkeypatch):
    monkeypatch.setattr(wait, "DEADLINE", 0.02)
    kept = {}
    with pytest.raises(AssertionError, match=r"Late object at .*held by \[\['dict'"):
        async with leaves_none(Late):
            kept["late"] = Late()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("fault", [*FAULTS, "silence"])
async def test_request_leaves_no_garbage(path, fault):
    gate = asyncio.Event()
    script = [head(), chunk("Hi"), gate] if fault == "silence" else FAULTS[fault]
    async with listening(script, backend={"timeouts": {"idle": 0.2}}, model={"retries": 0}) as site:
        async with leaves_none(REQUEST):
            await site.client.post(path, json={**BODIES[path], "model": "m", "stream": True, "user": LARGE})
        gate.set()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("text", ["a", LARGE], ids=["small", "large"])
async def test_request_that_is_refused_leaves_no_garbage(path, text):
    async with listening(HELLO) as site, leaves_none(REQUEST):
        body = {**BODIES[path], "model": "m", "user": text, "temperature": "hot"}
        assert (await site.client.post(path, json=body)).status_code == 400


@pytest.mark.parametrize("path", BODIES)
async def test_request_for_a_model_leaves_no_garbage_if_the_backend_lists_none(path):
    async with listening(HELLO, models=whole({}, status=500), model=False) as site, leaves_none(REQUEST):
        for _ in range(2):
            answer = await site.client.post(path, json={**BODIES[path], "model": "m", "user": LARGE})
            assert answer.status_code == 502


async def test_background_response_that_cannot_be_stored_leaves_no_garbage():
    async with listening(HELLO, store={"url": "sqlite:////proc/missing/gateway.db"}) as site, leaves_none(REQUEST):
        assert (await site.respond(background=True, user=LARGE)).status_code == 503


@pytest.mark.parametrize("closes", [True, False], ids=["close", "abort"])
async def test_websocket_leaves_no_garbage(closes):
    async with listening(HELLO) as site, leaves_none(WEBSOCKET), connected(site) as socket:
        assert texts(await socket.respond()) == ["Hi"]
        if not closes:
            socket.ws.transport.abort()


async def test_uploaded_file_leaves_no_garbage():
    form = {"files": {"file": ("a.txt", b"Hello")}, "data": {"purpose": "user_data"}}
    async with listening(HELLO) as site, leaves_none(MultipartParser):
        assert (await site.client.post("/v1/files", **form)).json()["bytes"] == 5
