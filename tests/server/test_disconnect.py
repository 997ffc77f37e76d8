"""A client that leaves or does not read, on real sockets and both event loops: its backend is told at once."""

import asyncio
import json
import logging
import tracemalloc
from contextlib import asynccontextmanager

import pytest

from gateway.server.app import create_app
from support.app import HELLO_MESSAGES, listening, on_both_loops, settings
from support.endless_upstream import PIECE, Pouring
from support.upstream import DONE, END, HANG, HELLO, SOON, Upstream, chunk, head, said

QUICK = {"stream": {"grace_seconds": 0.02, "keepalive_seconds": 0.02}}


@asynccontextmanager
async def asking(site, **fields):
    """A client's own socket with a request on its way."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
    body = json.dumps({"model": "m", "messages": HELLO_MESSAGES, **fields}).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def leaves(site, writer, how):
    """The client goes; the upstream has to see its own connection closed, and soon."""
    assert not site.upstream.gone.is_set()
    if how == "closes":
        writer.close()
    else:
        writer.transport.abort()
    async with asyncio.timeout(SOON):
        await site.upstream.gone.wait()


HALF = json.dumps(said("half an answer")).encode()[:60]
STREAMED = {
    "before the head": ([HANG], None, {}),
    "before the head, after the grace": ([HANG], b": keep-alive", QUICK),
    "between head and content": ([head(), HANG], None, {}),
    "between head and content, after the grace": ([head(), HANG], b": keep-alive", QUICK),
    "after a role": ([head(), chunk(role="assistant", content=""), HANG], None, {}),
    "in the middle": ([head(), chunk("Hello"), HANG], b"Hello", {}),
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
async def test_when_the_client_of_a_stream_leaves_so_does_the_gateway(case, how, caplog):
    script, seen, more = STREAMED[case]
    async with listening(script, **more) as site, asking(site, stream=True) as (reader, writer):
        await site.upstream.arrived.wait()
        if seen:
            await reader.readuntil(seen)
        await leaves(site, writer, how)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("case", WHOLE)
@on_both_loops
async def test_when_the_client_of_a_whole_answer_leaves_so_does_the_gateway(case, how, caplog):
    async with listening(WHOLE[case]) as site, asking(site) as (_, writer):
        await site.upstream.arrived.wait()
        await leaves(site, writer, how)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@on_both_loops
async def test_a_client_that_leaves_takes_no_other_with_it():
    go = asyncio.Event()
    scripts = [[head(), chunk("Hello"), HANG], [head(), chunk("Hi"), go, chunk(finish="stop"), DONE, END], HELLO]
    async with listening(*scripts) as site, asking(site, stream=True) as (reader, writer):
        await reader.readuntil(b"Hello")
        async with asking(site, stream=True) as (other, _):
            await other.readuntil(b"Hi")
            await leaves(site, writer, "resets")
            go.set()
            await other.readuntil(b"[DONE]")
        assert (await site.chat(stream=True)).status_code == 200


@on_both_loops
async def test_many_clients_that_leave_leave_nothing_behind():
    async with listening([HANG]) as site:
        before = len(asyncio.all_tasks())
        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(_ask_and_leave(site))
        async with asyncio.timeout(2):
            while len(asyncio.all_tasks()) > before + 5:  # noqa: ASYNC110 (nothing tells when a task has gone)
                await asyncio.sleep(0.01)


async def _ask_and_leave(site):
    async with asking(site, stream=True):
        await site.upstream.arrived.wait()


@on_both_loops
async def test_a_client_that_closes_only_its_sending_side_counts_as_gone():
    async with listening([HANG]) as site, asking(site) as (_, writer):
        await site.upstream.arrived.wait()
        writer.write_eof()
        async with asyncio.timeout(SOON):
            await site.upstream.gone.wait()


# Servers other than ours


def call_of(app, receive, send):
    """One call of the application, as any ASGI server may make it."""
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "raw_path": b"", "query_string": b"",
             "headers": [], "http_version": "1.1", "scheme": "http", "server": ("x", 80), "client": ("y", 1)}  # fmt: skip
    return asyncio.create_task(app(scope, receive, send))


@asynccontextmanager
async def called(messages):
    """An application in the middle of a call that waits for its upstream, and the messages it still gets."""
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
async def test_only_a_disconnect_is_one():
    async with called([{"type": "http.request", "body": b"", "more_body": False}]) as (upstream, task, queue, sent):
        assert not upstream.gone.is_set()
        queue.put_nowait({"type": "http.disconnect"})
        async with asyncio.timeout(SOON):
            await task
            await upstream.gone.wait()
        assert sent == []


@on_both_loops
async def test_a_server_that_gives_a_request_up_frees_the_backend():
    async with called([]) as (upstream, task, _, sent):
        task.cancel()
        async with asyncio.timeout(SOON):
            await task
            await upstream.gone.wait()
        assert [message.get("status") for message in sent] == [503, None], "the client is told"


# Back-pressure

PIECES = 3200  # 51 MB


@on_both_loops
async def test_a_client_that_stops_reading_holds_the_backend_back_and_misses_nothing():
    pour = Pouring(PIECES)
    script = [head(), pour, chunk(finish="stop"), DONE, END]
    async with listening(script, model={"format": "native"}) as site, asking(site, stream=True) as (reader, _):
        first = await reader.readuntil(b"~~~~")
        tracemalloc.start()
        await pour.stuck()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert not pour.over.is_set()
        assert pour.sent < 25_000_000, "the backend was held back"
        assert peak < 5_000_000, "the gateway keeps little of it"
        rest, tail = first.count(b"~"), b""
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            data = await reader.read(1 << 20)
            rest, tail = rest + data.count(b"~"), (tail + data)[-40:]
        assert rest == len(PIECE) * PIECES
        assert b"data: [DONE]" in tail


@on_both_loops
async def test_a_client_that_neither_reads_nor_stays_frees_the_backend():
    pour = Pouring(10**9)
    async with listening([head(), pour]) as site, asking(site, stream=True) as (reader, writer):
        await reader.readuntil(b"~~~~")
        await pour.stuck()
        writer.transport.abort()
        async with asyncio.timeout(SOON):
            await pour.over.wait()
