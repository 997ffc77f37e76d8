"""Test how a gateway that gets SIGTERM or SIGINT ends its connections."""

import asyncio
import json
import signal

import httpx
import pytest
from websockets.asyncio.client import connect

from support.app import problem
from support.raw_requests import request_bytes
from support.serve_process import config_of, first, living, post_chat, refused, rest, streaming
from support.sse import text_of
from support.upstream import HANG, HELLO, Upstream, arrived, chunk, head, paused
from support.wait import until

BOTH = pytest.mark.parametrize("workers", ["1", "2"])
STOPPED = (503, "server_error", "server_is_overloaded", None)


@BOTH
async def test_drain_finishes_streams_and_refuses_new_connections(workers, tmp_path):
    go = asyncio.Event()
    async with (
        asyncio.timeout(60),
        Upstream([paused(go)], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path), "--workers", workers) as gateway,
        streaming(gateway) as answer,
    ):
        pieces, body = await first(answer, "Hel")
        gateway.child.send_signal(signal.SIGTERM)
        await refused(gateway)
        gateway.write(config_of("http://127.0.0.1:1", tmp_path))
        gateway.child.send_signal(signal.SIGHUP)
        go.set()
        assert text_of(await rest(pieces, body)) == "Hello"
        await gateway.ended()
    assert "configuration" not in gateway.output, "it is not read again in the end"


@BOTH
async def test_drain_deadline_ends_responses_with_an_error(workers, tmp_path):
    """Streams and whole responses, of both APIs."""
    server = {"drain_seconds": 0, "workers": int(workers)}
    async with (
        asyncio.timeout(60),
        Upstream([[head(), chunk("Hel"), HANG]], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path, server=server)) as gateway,
        streaming(gateway) as chat,
        gateway.client.stream("POST", "/v1/responses", json={"model": "m", "input": "Hi", "stream": True}) as response,
    ):
        whole_chat = asyncio.create_task(post_chat(gateway))
        whole_response = asyncio.create_task(gateway.client.post("/v1/responses", json={"model": "m", "input": "Hi"}))
        chunks, chat_text = await first(chat, "Hel")
        events, response_text = await first(response, "Hel")
        await until(lambda: len(upstream.posts), 4)
        gateway.child.send_signal(signal.SIGTERM)

        chat_text, response_text = await rest(chunks, chat_text), await rest(events, response_text)
        assert '"code":"server_is_overloaded"' in chat_text and "[DONE]" not in chat_text
        assert "event: response.failed" in response_text and '"code":"server_is_overloaded"' in response_text
        for whole in (await whole_chat, await whole_response):
            assert problem(whole) == STOPPED
            assert whole.headers["x-request-id"]
        await gateway.ended()


@BOTH
async def test_drain_ends_at_once_at_the_second_signal(workers, tmp_path):
    server = {"drain_seconds": 600, "workers": int(workers)}
    async with (
        asyncio.timeout(60),
        Upstream([[head(), chunk("Hel"), HANG]], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path, server=server)) as gateway,
        streaming(gateway) as answer,
    ):
        pieces, body = await first(answer, "Hel")
        gateway.child.send_signal(signal.SIGINT)
        await gateway.wait_for("running responses have up to 605 s to end; a second signal or Ctrl-C ends them at once")
        gateway.child.send_signal(signal.SIGTERM)
        assert '"code":"server_is_overloaded"' in await rest(pieces, body)
        await gateway.ended()
        await upstream.gone.wait()
    assert "Traceback" not in gateway.output


async def test_drain_answers_a_pipelined_request_with_503(tmp_path):
    """A connection with requests in progress is closed only after their responses."""
    go = asyncio.Event()
    async with (
        asyncio.timeout(60),
        Upstream([paused(go)], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path)) as gateway,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.client.base_url.port)
        writer.write(request_bytes(stream=True))
        await reader.readuntil(b"Hel")
        writer.write(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n")
        await arrived(writer)
        await gateway.client.get("/health")  # a later request: when it has its response, the one before is read
        gateway.child.send_signal(signal.SIGTERM)
        await refused(gateway)
        go.set()
        await reader.readuntil(b"[DONE]\n\n\r\n0\r\n\r\n")
        ready = (await reader.read()).decode()
        assert ready.startswith("HTTP/1.1 503 ") and "connection: close" in ready
        assert ready.endswith('{"status":"draining"}')
        writer.close()
        await gateway.ended()


@BOTH
async def test_drain_delay_keeps_serving_while_ready_is_503(workers, tmp_path):
    """Each connection is closed after its response; a second signal ends the delay."""
    server = {"drain_delay_seconds": 600, "workers": int(workers)}
    async with (
        asyncio.timeout(60),
        Upstream([HELLO], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path, server=server)) as gateway,
    ):
        before = await gateway.client.get("/ready")
        assert before.status_code == 200 and "connection" not in before.headers
        gateway.child.send_signal(signal.SIGTERM)
        await until(lambda: all_drain(gateway, int(workers)))
        gateway.write(config_of("http://127.0.0.1:1", tmp_path))
        gateway.child.send_signal(signal.SIGHUP)
        for stream in (False, True):
            answer = await post_chat(gateway, stream=stream)
            assert answer.status_code == 200 and "close" in answer.headers["connection"]
        background = {"model": "m", "input": "Hi", "background": True}
        assert (await gateway.client.post("/v1/responses", json=background)).json()["status"] == "queued"
        async with connect(str(gateway.client.base_url.copy_with(scheme="ws", path="/v1/responses"))) as socket:
            await socket.send(json.dumps({"type": "response.create", "model": "m", "input": "Hi"}))
            assert "response.created" in await socket.recv()
        assert gateway.child.returncode is None
        gateway.child.send_signal(signal.SIGTERM)
        await gateway.ended()
    assert "configuration" not in gateway.output


async def all_drain(gateway, workers):
    """Return True if many looks in a row, each over a new connection, find a worker that drains."""
    for _ in range(workers * 10):
        async with httpx.AsyncClient(base_url=gateway.client.base_url, verify=False) as client:
            answer = await client.get("/ready")
        if answer.status_code == 200:
            return False
        assert (answer.json(), answer.headers["connection"]) == ({"status": "draining"}, "close")
    return True
