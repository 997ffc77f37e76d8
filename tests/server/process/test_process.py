"""Test the gateway as a process: its start, its answers, and how it drains streams at SIGTERM."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError

import gateway
from gateway.store import Database
from support.app import HELLO_MESSAGES
from support.serve_process import first, rest
from support.sse import text_of
from support.upstream import HANG, HELLO, Upstream, chunk, head, paused
from support.wait import DEADLINE

pytestmark = pytest.mark.smoke

START = """
import json, sys
from gateway import config, formats
from gateway.server.process.supervisor import run_gateway
said = config.parse(sys.argv[1], "test.yaml", {}, formats.format_names())
if __name__ == "__main__":
    run_gateway(said, greeting=sys.argv[2])
"""
TELL = """
import atexit
from pathlib import Path
loaded = Path(__file__).with_name("loaded")
atexit.register(lambda: loaded.write_text(" ".join(sys.modules)))
"""
# Modules that are slow to import and rarely used.
HEAVY = {
    "sqlalchemy", "asyncpg", "alembic", "cryptography", "jsonschema_rs", "backports.zstd", "pypdf", "redis", "xllamacpp",
    "httpx._client", "rich", "pygments", "jinja2", "prometheus_client", "websockets.asyncio.client",
}  # fmt: skip


def port_of(pid):
    """Return the port on which a process listens."""
    (port,) = {one.laddr.port for one in psutil.Process(pid).net_connections("tcp") if one.status == "LISTEN"}
    return port


@contextlib.asynccontextmanager
async def process(tmp_path, url, *, greeting="Hello!", clean=True, before="", usage=True, **server):
    """Start a gateway as a process; yield the process and a client of it.

    greeting: the line that it writes when it listens; clean: it logs no error; before: code that it runs first.
    usage: it writes the usage of requests to the store, a second after the first one.
    """
    configuration = {
        "server": {"port": 0, **server},
        "store": {"usage": usage},
        "backends": {"up": {"url": url}},
        "models": {"m": {"backends": ["up"]}},
    }
    file = tmp_path / "start.py"
    file.write_text(START.replace("\nif", f"{before}\nif"))
    where = {**os.environ, "PYTHONPATH": str(Path(gateway.__file__).parents[1])}
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(
        sys.executable, file, json.dumps(configuration), greeting, stderr=pipe, stdin=null, env=where, cwd=tmp_path
    )
    try:
        line = (await child.stderr.readline()).decode()
        port = port_of(child.pid)
        assert line == f"{greeting or f'gateway listens on 127.0.0.1 port {port}'}\n"
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE, verify=False) as client:
            yield child, client
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        logged = (await child.stderr.read()).decode()
        child._transport.close()
    assert not clean or not re.search("Traceback|ERROR", logged), logged


def stream_of(client):
    body = {"model": "m", "messages": HELLO_MESSAGES, "stream": True}
    return client.stream("POST", "/v1/chat/completions", json=body)


@pytest.mark.parametrize("workers", [1, 2])
async def test_process_answers_and_drains_its_streams_at_sigterm(workers, tmp_path):
    go = asyncio.Event()
    async with (
        asyncio.timeout(60),
        Upstream([HELLO, paused(go)], ()).serving() as upstream,
        process(tmp_path, upstream.url, workers=workers, drain_seconds=10) as (child, client),
    ):
        assert (await client.get("/health")).json() == {"status": "ok"}
        async with stream_of(client) as answer:
            assert text_of((await answer.aread()).decode()) == "Hi"
        async with stream_of(client) as answer, idle_connection(client.base_url.port) as idle:
            pieces, body = await first(answer, "Hel")
            child.send_signal(signal.SIGTERM)
            assert await idle.read() == b""
            go.set()
            body = await rest(pieces, body)
            assert text_of(body) == "Hello"
            assert body.endswith("data: [DONE]\n\n")
        assert await child.wait() == (0 if workers > 1 else -signal.SIGTERM)


@contextlib.asynccontextmanager
async def idle_connection(port):
    """Open a connection that has had its response; a server that begins to stop closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b'{"status":"ok"}')
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_process_ends_a_stream_after_the_drain_time(tmp_path):
    async with (
        asyncio.timeout(60),
        Upstream([[head(), chunk("Hel"), HANG]], ()).serving() as upstream,
        process(tmp_path, upstream.url, greeting="", clean=False, drain_seconds=0.2) as (child, client),
    ):
        body = ""
        async with stream_of(client) as answer:
            async for piece in answer.aiter_text():
                body += piece
                if "Hel" in piece:
                    child.send_signal(signal.SIGTERM)
        assert '"code":"server_is_overloaded"' in body and "[DONE]" not in body
        await child.wait()
        await upstream.gone.wait()


async def test_process_closes_a_websocket_after_its_running_response(tmp_path):
    go = asyncio.Event()
    async with (
        asyncio.timeout(60),
        Upstream([paused(go)], ()).serving() as upstream,
        process(tmp_path, upstream.url, drain_seconds=10) as (child, client),
        connect(f"ws://127.0.0.1:{client.base_url.port}/v1/responses") as idle,
        connect(f"ws://127.0.0.1:{client.base_url.port}/v1/responses") as busy,
    ):
        request = {"type": "response.create", "model": "m", "input": "Hello", "store": False}
        await busy.send(json.dumps(request))
        while json.loads(await busy.recv())["type"] != "response.output_text.delta":
            pass
        child.send_signal(signal.SIGTERM)
        await idle.wait_closed()
        assert idle.close_code == 1012
        await busy.send(json.dumps(request))
        go.set()
        events = []
        with contextlib.suppress(ConnectionClosedError):
            while True:
                events.append(json.loads(await busy.recv()))
        ended, refused = events[-2:]
        assert ended["response"]["output"][0]["content"][0]["text"] == "Hello"
        assert (refused["type"], refused["status"], busy.close_code) == ("error", 503, 1012)
        await child.wait()


@pytest.mark.parametrize(
    "module", ["gateway.cli.main", "gateway.server.process.supervisor", "gateway.server.process.worker"]
)
def test_process_start_does_not_import_heavy_modules(module):
    program = f"import {module}, sys; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    where = {**os.environ, "PYTHONPATH": str(Path(gateway.__file__).parents[1])}
    loaded = subprocess.run([sys.executable, "-c", program], env=where, capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


async def test_process_without_use_of_the_store_imports_no_heavy_modules(tmp_path):
    async with (
        asyncio.timeout(60),
        Upstream([HELLO], ()).serving() as upstream,
        process(tmp_path, upstream.url, before=TELL, clean=False, usage=False) as (child, client),
    ):
        async with stream_of(client) as answer:
            assert text_of((await answer.aread()).decode()) == "Hi"
        child.send_signal(signal.SIGINT)  # at which it ends as a program does that was interrupted
        await child.wait()
    loaded = set((tmp_path / "loaded").read_text().split())
    assert "gateway.server.process.worker" in loaded
    assert loaded & HEAVY == set()


async def test_process_with_a_database_of_this_release_imports_neither_alembic_nor_postgresql(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/gateway.db")
    async with database.writing():
        pass
    await database.close()
    async with (
        asyncio.timeout(60),
        Upstream([HELLO], ()).serving() as upstream,
        process(tmp_path, upstream.url, before=TELL, clean=False) as (child, client),
    ):
        async with stream_of(client) as answer:
            assert text_of((await answer.aread()).decode()) == "Hi"
        child.send_signal(signal.SIGINT)
        await child.wait()  # for the last usage, too
    loaded = set((tmp_path / "loaded").read_text().split())
    assert "sqlalchemy" in loaded
    assert loaded & {"alembic", "pygments", "asyncpg", "sqlalchemy.dialects.postgresql"} == set()
