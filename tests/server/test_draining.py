"""The end of a gateway that is told to stop: what its clients see of it."""

import asyncio
import json
import signal
import socket

import httpx
import pytest
from websockets.asyncio.client import connect

from gateway.config import Config
from gateway.server.run import run
from support.app import problem
from support.serve_process import asked, config_of, first, living, refused, rest, streaming
from support.sse import text_of
from support.upstream import HANG, HELLO, Upstream, chunk, head, paused

BOTH = pytest.mark.parametrize("workers", ["1", "2"])
STOPPED = (503, "server_error", "server_is_overloaded", None)


@BOTH
async def test_a_stream_ends_in_its_own_time_and_nobody_new_is_taken(workers, tmp_path):
    go = asyncio.Event()
    async with (
        asyncio.timeout(60),
        Upstream([paused(go)], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path), "--workers", workers) as gateway,
        streaming(gateway) as answer,
    ):
        pieces, said = await first(answer, "Hel")
        gateway.child.send_signal(signal.SIGTERM)
        await refused(gateway)
        gateway.write(config_of("http://127.0.0.1:1", tmp_path))
        gateway.child.send_signal(signal.SIGHUP)
        go.set()
        assert text_of(await rest(pieces, said)) == "Hello"
        await gateway.ended()
    assert "configuration" not in gateway.heard, "it is not read again in the end"


@BOTH
async def test_what_has_not_ended_by_then_is_told_so(workers, tmp_path):
    """Streams and whole answers, of both APIs."""
    server = {"drain_seconds": 0, "workers": int(workers)}
    async with (
        asyncio.timeout(60),
        Upstream([[head(), chunk("Hel"), HANG]], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path, server=server)) as gateway,
        streaming(gateway) as chat,
        gateway.client.stream("POST", "/v1/responses", json={"model": "m", "input": "Hi", "stream": True}) as response,
    ):
        whole_chat = asyncio.create_task(asked(gateway))
        whole_response = asyncio.create_task(gateway.client.post("/v1/responses", json={"model": "m", "input": "Hi"}))
        pieces, said = await first(chat, "Hel")
        events, told = await first(response, "Hel")
        while len(upstream.posts) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        gateway.child.send_signal(signal.SIGTERM)

        said, told = await rest(pieces, said), await rest(events, told)
        assert '"code":"server_is_overloaded"' in said and "[DONE]" not in said
        assert "event: response.failed" in told and '"code":"server_is_overloaded"' in told
        for whole in (await whole_chat, await whole_response):
            assert problem(whole) == STOPPED
            assert whole.headers["x-request-id"]
        await gateway.ended()


@BOTH
async def test_told_twice_it_stops_at_once(workers, tmp_path):
    server = {"drain_seconds": 600, "workers": int(workers)}
    async with (
        asyncio.timeout(60),
        Upstream([[head(), chunk("Hel"), HANG]], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path, server=server)) as gateway,
        streaming(gateway) as answer,
    ):
        pieces, said = await first(answer, "Hel")
        gateway.child.send_signal(signal.SIGINT)
        await refused(gateway)
        gateway.child.send_signal(signal.SIGTERM)
        assert '"code":"server_is_overloaded"' in await rest(pieces, said)
        await gateway.ended()
        await upstream.gone.wait()


async def test_who_asks_meanwhile_on_a_connection_of_before_is_told(tmp_path):
    """Readiness, and an upgrade: a connection that has work to do is closed only behind it."""
    go = asyncio.Event()
    async with (
        asyncio.timeout(60),
        Upstream([paused(go)], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path)) as gateway,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.client.base_url.port)
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        await reader.readuntil(b"Hel")
        writer.write(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.sleep(0.3)  # it has arrived
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
async def test_it_goes_on_for_a_while_and_says_that_it_will_stop(workers, tmp_path):
    """A connection is closed behind the answer then; told twice, it does not wait."""
    server = {"drain_delay_seconds": 600, "workers": int(workers)}
    async with (
        asyncio.timeout(60),
        Upstream([HELLO], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path, server=server)) as gateway,
    ):
        before = await gateway.client.get("/ready")
        assert before.status_code == 200 and "connection" not in before.headers
        gateway.child.send_signal(signal.SIGTERM)
        await draining(gateway, int(workers))
        gateway.write(config_of("http://127.0.0.1:1", tmp_path))
        gateway.child.send_signal(signal.SIGHUP)
        for stream in (False, True):
            answer = await asked(gateway, stream=stream)
            assert answer.status_code == 200 and "close" in answer.headers["connection"]
        background = {"model": "m", "input": "Hi", "background": True}
        assert (await gateway.client.post("/v1/responses", json=background)).json()["status"] == "queued"
        async with connect(str(gateway.client.base_url.copy_with(scheme="ws", path="/v1/responses"))) as socket:
            await socket.send(json.dumps({"type": "response.create", "model": "m", "input": "Hi"}))
            assert "response.created" in await socket.recv()
        assert gateway.child.returncode is None
        gateway.child.send_signal(signal.SIGTERM)
        await gateway.ended()
    assert "configuration" not in gateway.heard


async def draining(gateway, workers):
    """Until all of them say so, each connection being another one."""
    said = 0
    while said < workers * 10:
        async with httpx.AsyncClient(base_url=gateway.client.base_url, verify=False) as another:
            answer = await another.get("/ready")
        if answer.status_code == 200:
            said = 0
            await asyncio.sleep(0.02)
        else:
            assert (answer.json(), answer.headers["connection"]) == ({"status": "draining"}, "close")
            said += 1


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_that_is_taken_is_said_in_a_sentence(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=f"cannot listen on {host} port {port}: Address already in use"):
            run(Config(server={"host": host, "port": port}))
