"""Measure requests and single chunks at the edge, between a client's socket and that of a scripted upstream."""

import asyncio
import json
import tempfile

from websockets.asyncio.client import connect

from support import upstream as scripted
from support.app import bearer, listening
from support.call_counts import Calls, CallsInThreads, Writes, is_of_store
from support.upstream import DONE, END, head

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
REQUESTS = 8  # the cheapest counts: timers may run during the others
WARM, TIMES = 20, 100  # chunks
ROOM = 1 << 22  # bytes of a response
KEY = "sk-costs-0123456789"
AUTH = {"keys": [{"name": "a", "key": KEY}]}


async def posted(served, path, body, key=KEY):
    """Open a connection and send the request."""
    url = served.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port, limit=ROOM)
    send(writer, path, body, key)
    return reader, writer


def send(writer, path, body, key=KEY):
    """Send a request.  body: its members, or its bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = (
        f"POST {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    )
    writer.write(f"{lines}content-length: {len(data)}\r\n\r\n".encode() + data)


async def end_of_body(reader):
    """Read until the end of the response."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 200"), head
    if b"chunked" in head:
        await reader.readuntil(b"0\r\n\r\n")
    else:
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))


def site(script):
    """Return the context of a gateway with an API key."""
    return listening(script, auth=AUTH)


async def request_cost(path, body, script):
    """Return the cost of one request with a key of the configuration."""
    async with site(script) as served:
        return await cost_at(served, path, body, KEY)


async def request_writes(path, body, script):
    """Return the writes of one request: those to the client and those to the upstream."""
    async with site(script) as served:
        return await cost_at(served, path, body, KEY, Writes, "writes")


async def team_request_cost(path, body, script):
    """Return the cost of one request with a key of the store, which keeps usage as well."""
    auth = {"keys": [{"name": "ops", "key": KEY, "scopes": ["admin"]}], "stored_keys": True}
    async with listening(script, auth=auth, store={"usage": True}) as served:
        added = await served.client.post("/admin/keys", json={"name": "a"}, headers=bearer(KEY))
        return await cost_at(served, path, body, added.json()["key"])


async def cost_at(served, path, body, key, counter=Calls, unit="calls"):
    """Return the cost of one request, from its first byte to its last, on open connections."""
    counts = []
    reader, writer = await posted(served, path, body, key)
    try:
        await end_of_body(reader)
        for _ in range(REQUESTS):
            with counter() as counted:
                send(writer, path, body, key)
                await end_of_body(reader)
            counts.append(counted.count)
    finally:
        writer.close()
    return {unit: min(counts[1:])}


async def stored_cost(body, url):
    """Return the cost of one response, that of the database's threads included."""
    counts, calls = [], CallsInThreads(is_of_store)
    try:
        async with listening(scripted.whole(scripted.completion_body()), auth=AUTH, store={"url": url}) as served:
            reader, writer = await posted(served, RESPONSES, body)
            await end_of_body(reader)
            for _ in range(REQUESTS):
                with calls:
                    send(writer, RESPONSES, body)
                    await end_of_body(reader)
                counts.append(calls.count)
            writer.close()
    finally:
        calls.close()
    return min(counts[1:])


async def stored_request_cost(body):
    """Return the cost of one stored response."""
    with tempfile.TemporaryDirectory() as folder:
        return {"calls": await stored_cost(body, f"sqlite:///{folder}/costs.db")}


async def websocket_cost(body, script):
    """Return the writes of one turn over a WebSocket: those to the client and those to the upstream."""
    counts = []
    async with site(script) as served:
        url, headers = f"{served.client.base_url}{RESPONSES}".replace("http", "ws", 1), bearer(KEY)
        async with connect(url, additional_headers=headers, compression=None, ping_interval=None) as socket:
            for _ in range(REQUESTS):
                with Writes() as writes:
                    await socket.send(body)
                    while json.loads(await socket.recv())["type"] != "response.completed":
                        pass
                counts.append(writes.count)
    return {"writes": min(counts)}


async def lone_chunk_cost(path, body):
    """Return the cost of a chunk that arrives alone: from the upstream's socket to the client's."""
    turns = [asyncio.Event() for _ in range(WARM + TIMES)]
    steps = [step for turn in turns for step in (scripted.chunk(" word"), turn)]
    async with site([head(), *steps, scripted.chunk(finish="stop"), DONE, END]) as served:
        reader, writer = await posted(served, path, body)
        for turn in turns[:WARM]:
            await reader.readuntil(b" word")
            turn.set()
        with Calls() as calls:
            for turn in turns[WARM:]:
                await reader.readuntil(b" word")
                turn.set()
        await reader.readuntil(b"0\r\n\r\n")
        writer.close()
    return {"calls": calls.count / TIMES}
