"""Test WebSocket connections of a gateway process: the size limit of messages, and pings."""

import asyncio
import json

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from support.gateway_process import process
from support.upstream import HANG, HELLO, Upstream, chunk, head
from support.wait import DEADLINE
from support.websocket import Socket, texts

HANDSHAKE = (
    b"GET /v1/responses HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-extensions: permessage-deflate\r\n\r\n"
)
PING = b"\x89\x04"


def address(client):
    return f"ws://127.0.0.1:{client.base_url.port}/v1/responses"


async def test_websocket_message_may_be_as_large_as_a_body(tmp_path, store_url):
    limits = {"limits": {"body_bytes": 20_000}}
    async with (
        asyncio.timeout(60),
        Upstream([HELLO, [head(), chunk("Hel"), HANG]], ()).serving() as upstream,
        process(upstream.url, store_url, tmp_path, **limits) as (_, client),
        connect(address(client)) as ws,
    ):
        socket = Socket(ws)
        assert ws.protocol.extensions == []
        assert texts(await socket.respond(input="x" * 19_900)) == ["Hi"]
        await socket.create()
        await socket.until("response.output_text.delta")
        await ws.send(json.dumps({"type": "response.create", "input": "x" * 20_000}))
        async with asyncio.timeout(DEADLINE):
            await upstream.gone.wait()
        with pytest.raises(ConnectionClosed) as info:
            await socket.events()
        assert info.value.rcvd.code == 1009


@pytest.mark.parametrize("seconds", [0.05, 0])
async def test_websocket_ping_follows_keepalive_seconds(seconds, tmp_path):
    stream = {"stream": {"keepalive_seconds": seconds}}
    store = f"sqlite:///{tmp_path}/gateway.db"
    async with (
        asyncio.timeout(60),
        Upstream([HELLO], ()).serving() as upstream,
        process(upstream.url, store, tmp_path, **stream) as (_, client),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(HANDSHAKE)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 ") and b"permessage-deflate" not in answer
        if seconds:
            assert await reader.readexactly(2) == PING
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await reader.read(1)
        writer.close()
        await writer.wait_closed()
