"""Test clients that disconnect or do not read, on both event loops: the gateway closes the upstream call at once."""

import asyncio
import json
import logging
import tracemalloc
from contextlib import asynccontextmanager

import pytest

from gateway.server.app import create_app
from support.app import HELLO_MESSAGES, listening, on_both_loops, settings
from support.endless_upstream import MAX_BUFFERED, PIECE, Pouring
from support.raw_requests import request_bytes
from support.upstream import DONE, END, HANG, HELLO, Upstream, chunk, completion_body, head
from support.wait import DEADLINE, until

LONG = {"stream": {"keepalive_seconds": 600, "client_seconds": 600}}  # only the disconnect ends a response
QUICK = {"stream": {"grace_seconds": 0.02, "keepalive_seconds": 0.02}}


@asynccontextmanager
async def raw_request(site, **fields):
    """Yield reader and writer of a new connection on which a request is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
    writer.write(request_bytes(**fields))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def leave(site, writer, how):
    """Disconnect the client, and wait until the upstream sees its own connection closed."""
    assert not site.upstream.gone.is_set()
    if how == "closes":
        writer.close()
    else:
        writer.transport.abort()
    async with asyncio.timeout(DEADLINE):
        await site.upstream.gone.wait()


HALF = json.dumps(completion_body("half an answer")).encode()[:60]
STREAMED = {
    "before the head": ([HANG], None, LONG),
    "before the head, after the grace": ([HANG], b": keep-alive", QUICK),
    "between head and content": ([head(), HANG], None, LONG),
    "between head and content, after the grace": ([head(), HANG], b": keep-alive", QUICK),
    "after a role": ([head(), chunk(role="assistant", content=""), HANG], None, LONG),
    "in the middle": ([head(), chunk("Hello"), HANG], b"Hello", LONG),
    "in the middle, after silence": ([head(), chunk("Hello"), HANG], b": keep-alive", QUICK),
}
WHOLE = {
    "before the head": [HANG],
    "between head and content": [head(type="application/json"), HANG],
    "in the middle": [head(type="application/json"), HALF, HANG],
    "in the middle of an error": [head(status=500, type="application/json"), b'{"error": ', HANG],
}


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("case", STREAMED)
@on_both_loops
async def test_disconnect_of_a_streaming_client_closes_the_upstream_call(case, how, caplog):
    script, seen, more = STREAMED[case]
    async with listening(script, **more) as site, raw_request(site, stream=True) as (reader, writer):
        await site.upstream.arrived.wait()
        if seen:
            await reader.readuntil(seen)
        await leave(site, writer, how)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("case", WHOLE)
@on_both_loops
async def test_disconnect_of_a_client_without_streaming_closes_the_upstream_call(case, how, caplog):
    async with listening(WHOLE[case]) as site, raw_request(site) as (_, writer):
        await site.upstream.arrived.wait()
        await leave(site, writer, how)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@on_both_loops
async def test_disconnect_of_one_client_leaves_other_streams_alone():
    go = asyncio.Event()
    scripts = [[head(), chunk("Hello"), HANG], [head(), chunk("Hi"), go, chunk(finish="stop"), DONE, END], HELLO]
    async with listening(*scripts, **LONG) as site, raw_request(site, stream=True) as (reader, writer):
        await reader.readuntil(b"Hello")
        async with raw_request(site, stream=True) as (other, _):
            await other.readuntil(b"Hi")
            await leave(site, writer, "resets")
            go.set()
            await other.readuntil(b"[DONE]")
        assert (await site.chat(stream=True)).status_code == 200


@on_both_loops
async def test_disconnect_of_many_clients_leaves_no_tasks():
    async with listening([HANG]) as site:
        before = len(asyncio.all_tasks())
        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(ask_and_leave(site))
        await until(lambda: len(asyncio.all_tasks()) <= before + 5)


async def ask_and_leave(site):
    async with raw_request(site, stream=True):
        await site.upstream.arrived.wait()


@on_both_loops
async def test_disconnect_includes_a_half_closed_connection():
    async with listening([HANG]) as site, raw_request(site) as (_, writer):
        await site.upstream.arrived.wait()
        writer.write_eof()
        async with asyncio.timeout(DEADLINE):
            await site.upstream.gone.wait()


# Other ASGI servers


def call_of(app, receive, send):
    """Start a task that calls the application as any ASGI server does."""
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "raw_path": b"", "query_string": b"",
             "headers": [], "http_version": "1.1", "scheme": "http", "server": ("x", 80), "client": ("y", 1)}  # fmt: skip
    return asyncio.create_task(app(scope, receive, send))


@asynccontextmanager
async def app_call(messages):
    """Yield a call of the application that waits for its upstream: upstream, task, message queue, messages sent."""
    async with Upstream([[HANG]], ()).serving() as upstream:
        app = create_app(settings(upstream.url))
        body = json.dumps({"model": "m", "messages": HELLO_MESSAGES}).encode()
        queue, sent = asyncio.Queue(), []
        queue.put_nowait({"type": "http.request", "body": body, "more_body": False})
        for message in messages:
            queue.put_nowait(message)

        async def send(message):
            sent.append(message)

        async with app.router.lifespan_context(app):
            task = call_of(app, queue.get, send)
            await upstream.arrived.wait()
            yield upstream, task, queue, sent


@on_both_loops
async def test_disconnect_is_only_the_asgi_disconnect_message():
    async with app_call([{"type": "http.request", "body": b"", "more_body": False}]) as (upstream, task, queue, sent):
        assert not upstream.gone.is_set()
        queue.put_nowait({"type": "http.disconnect"})
        async with asyncio.timeout(DEADLINE):
            await task
            await upstream.gone.wait()
        assert sent == []


@on_both_loops
async def test_request_that_is_cancelled_closes_the_upstream_call():
    async with app_call([]) as (upstream, task, _, sent):
        task.cancel()
        async with asyncio.timeout(DEADLINE):
            await task
            await upstream.gone.wait()
        assert [message.get("status") for message in sent] == [503, None], "the client is told"


# Back-pressure

PIECES = 6000  # 96 MB


@on_both_loops
async def test_backpressure_of_a_client_reaches_the_backend_without_loss():
    pour = Pouring(PIECES)
    script = [head(), pour, chunk(finish="stop"), DONE, END]
    async with listening(script, model={"format": "native"}) as site, raw_request(site, stream=True) as (reader, _):
        first = await reader.readuntil(b"~~~~")
        tracemalloc.start()
        await pour.stuck()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert not pour.over.is_set()
        assert pour.sent < MAX_BUFFERED, "the backend was held back"
        assert peak < 5_000_000, "the gateway keeps little of it"
        rest, tail = first.count(b"~"), b""
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            data = await reader.read(1 << 20)
            rest, tail = rest + data.count(b"~"), (tail + data)[-40:]
        assert rest == len(PIECE) * PIECES
        assert b"data: [DONE]" in tail


@on_both_loops
async def test_disconnect_of_a_client_that_does_not_read_frees_the_backend():
    pour = Pouring(10**9)
    async with listening([head(), pour], **LONG) as site, raw_request(site, stream=True) as (reader, writer):
        await reader.readuntil(b"~~~~")
        await pour.stuck()
        writer.transport.abort()
        async with asyncio.timeout(DEADLINE):
            await pour.over.wait()
