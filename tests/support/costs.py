"""Count the cost of a chunk and of a request: function calls, and the memory peak of a chunk.

    make costs        counts again, and stores the figures in costs.json

Counted are calls of Python and of C, made by the gateway's code and by the frameworks that serve it.  Calls of the
event loop and of the test are not counted.  In the pure core, each chunk is alone in its read.  At the edge, a chunk is
sent after the one before has arrived.  So no count depends on the machine.

The stored figures are ceilings: a figure may exceed its ceiling by 3 per cent of its calls.  A change that moves them
writes them again at its end.
"""

import asyncio
import gc
import json
import sys
import threading
import tracemalloc
from functools import cache, partial
from pathlib import Path

import aiosqlite
import fastapi
import sqlalchemy
import starlette
import uvicorn

import gateway
from gateway.pipeline.pipeline import Pipeline
from gateway.request import Request
from gateway.warnings import Warnings
from support import upstream as scripted
from support.app import bearer, listening
from support.format_events import untraced
from support.messages import encoder_of
from support.paths import TESTS
from support.pipeline import call, chunk, setting, upstream
from support.responses import new_encoder
from support.turns import make_turn
from support.upstream import DONE, END, HELLO, head

STORED = TESTS / "project" / "costs.json"
SHARES = {"calls": 0.03, "bytes": 0.1}  # allowed excess over the stored figure
OTHER_PYTHON = 0.04  # allowed difference between 3.11, 3.12 and 3.13
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
WARM, TIMES = 20, 100  # chunks
REQUESTS = 8  # the cheapest counts: timers may run during the others
OWN = tuple(str(Path(package.__file__).parent) for package in (gateway, fastapi, starlette, uvicorn))
DATABASE = tuple(str(Path(package.__file__).parent) for package in (sqlalchemy, aiosqlite))
KEY = "sk-costs-0123456789"
AUTH = {"keys": [{"name": "a", "key": KEY}]}


# Counting


@cache
def is_own(code):
    """Return True for code of the gateway or of its frameworks."""
    return code.co_filename.startswith(OWN)


class Calls:
    """Count calls while the block runs.  counts: tells by the code of a call whether it counts."""

    def __init__(self, counts=is_own):
        self.counts, self.count = counts, 0

    def __enter__(self):
        self.count = 0
        gc.disable()  # a profiler that watches it would be counted
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        gc.enable()

    def _see(self, frame, event, _):
        if event in ("call", "c_call") and self.counts(frame.f_code):
            self.count += 1


class CallsInThreads(Calls):
    """Count calls of this thread, and of those that start later; the object has to exist before they start."""

    def __init__(self, counts):
        super().__init__(counts)
        threading.setprofile(self._see)

    def close(self):
        """Count nothing of later threads."""
        threading.setprofile(None)


def held(feed, data):
    """Return the memory peak while `feed` runs."""
    tracemalloc.start()
    try:
        feed(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# The pure core


def chat_turn(format):
    """Return a pipeline of a chat completion."""
    return make_turn(format=format)


def responses_turn(format):
    """Return a pipeline of a response."""
    request = Request(model="m", messages=(), stream=True)
    return Pipeline(request, lambda _: upstream(setting(format, ledger=Warnings())), new_encoder())


def message_turn(format):
    """Return a pipeline of a message."""
    request = Request(model="m", messages=(), stream=True)
    return Pipeline(request, lambda _: upstream(setting(format, ledger=Warnings())), encoder_of())


def chunk_cost(new, format, before, data):
    """Return the cost of one chunk like those before it."""
    turn = new(format)
    turn.start()
    turn.answered("text/event-stream")
    for piece in (*before, *[data] * WARM):
        turn.feed(piece)
    with Calls() as calls:
        for _ in range(TIMES):
            turn.feed(data)
    return {"calls": calls.count / TIMES, "bytes": min(held(turn.feed, data) for _ in range(WARM))}


def text(said):
    """Return a chunk with this text."""
    return chunk(content=said)


def core(new, format, data, *before):
    """Return a function that measures a chunk in the pure core."""
    return partial(chunk_cost, new, format, before, data)


# The edge


async def posted(served, path, body, key=KEY):
    """Open a connection and send the request."""
    reader, writer = await asyncio.open_connection(served.client.base_url.host, served.client.base_url.port)
    send(writer, path, body, key)
    return reader, writer


def send(writer, path, body, key=KEY):
    """Send a request."""
    data = json.dumps(body).encode()
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


async def team_request_cost(path, body, script):
    """Return the cost of one request with a key of the store, which keeps usage as well."""
    auth = {"keys": [{"name": "ops", "key": KEY, "scopes": ["admin"]}], "stored_keys": True}
    async with listening(script, auth=auth, store={"usage": True}) as served:
        added = await served.client.post("/admin/keys", json={"name": "a"}, headers=bearer(KEY))
        return await cost_at(served, path, body, added.json()["key"])


async def cost_at(served, path, body, key):
    """Return the cost of one request, from its first byte to its last, on open connections."""
    counts = []
    reader, writer = await posted(served, path, body, key)
    try:
        await end_of_body(reader)
        for _ in range(REQUESTS):
            with Calls() as calls:
                send(writer, path, body, key)
                await end_of_body(reader)
            counts.append(calls.count)
    finally:
        writer.close()
    return {"calls": min(counts[1:])}


@cache
def is_of_store(code):
    """Return True for the code of the gateway, its frameworks, and its way to the database."""
    return is_own(code) or code.co_filename.startswith(DATABASE)


async def stored_cost(body, url):
    """Return the cost of one response, that of the database's threads included."""
    counts, calls = [], CallsInThreads(is_of_store)
    try:
        async with listening(scripted.whole(scripted.said()), auth=AUTH, store={"url": url}) as served:
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


def edge(cost, *arguments):
    """Return a function that measures at the edge, on a loop of its own."""

    def run():
        with asyncio.Runner() as runner:
            return runner.run(cost(*arguments))

    return run


CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
ASKED_ITEMS = {"model": "m", "input": "Hello", "store": False}
STREAMED = {"stream": True}
BURST = [head(), b"".join([*[scripted.chunk(" word")] * 50, scripted.chunk(finish="stop"), DONE]), END]
SORTS = {
    "chunk: native text": core(chat_turn, "native", text(" word")),
    "chunk: native thought": core(chat_turn, "native", chunk(reasoning_content=" word")),
    "chunk: native call": core(
        chat_turn,
        "native",
        chunk(tool_calls=[{"index": 0, "function": {"arguments": "word"}}]),
        chunk(tool_calls=[call(0, "call_1", "f", '{"a": "')]),
    ),
    "chunk: think, thought": core(chat_turn, "think", text(" word"), text("<think>")),
    "chunk: hermes_json, text": core(chat_turn, "hermes_json", text(" word")),
    "chunk: hermes_json, call": core(
        chat_turn, "hermes_json", text(" word"), text('<tool_call>{"name": "f", "arguments": {"a": "')
    ),
    "chunk: qwen_xml, call": core(
        chat_turn, "qwen_xml", text(" word"), text("<tool_call><function=f><parameter=a>")
    ),
    "chunk: responses, text": core(responses_turn, "native", text(" word")),
    "chunk: responses, thought": core(responses_turn, "native", chunk(reasoning_content=" word")),
    "chunk: messages, text": core(message_turn, "native", text(" word")),
    "chunk: messages, thought": core(message_turn, "native", chunk(reasoning_content=" word")),
    "lone chunk: chat": edge(lone_chunk_cost, CHAT, ASKED | STREAMED),
    "lone chunk: responses": edge(lone_chunk_cost, RESPONSES, ASKED_ITEMS | STREAMED),
    "request: chat": edge(request_cost, CHAT, ASKED, scripted.whole(scripted.said())),
    "request: chat, stored key and usage": edge(team_request_cost, CHAT, ASKED, scripted.whole(scripted.said())),
    "request: chat, streamed": edge(request_cost, CHAT, ASKED | STREAMED, HELLO),
    "request: chat, a burst of 50": edge(request_cost, CHAT, ASKED | STREAMED, BURST),
    "request: responses": edge(request_cost, RESPONSES, ASKED_ITEMS, scripted.whole(scripted.said())),
    "request: responses, streamed": edge(request_cost, RESPONSES, ASKED_ITEMS | STREAMED, HELLO),
}  # fmt: skip


@untraced
def cost(sort):
    """Return the figures of one sort, by unit."""
    return SORTS[sort]()


def stored():
    """Return the stored figures by sort."""
    return json.loads(STORED.read_text())["costs"]


def ceiling(what, wanted, python=VERSION):
    """Return the ceiling of a figure; the figures of other Python versions differ a little."""
    share = SHARES[what] + (0 if python == json.loads(STORED.read_text())["python"] else OTHER_PYTHON)
    return max(wanted * (1 + share), wanted + 1)


def judged(sort, found, wanted):
    """Yield the figures above their ceilings."""
    for what, value in found.items():
        if value > (most := ceiling(what, wanted[what])):
            yield f"{sort}: {what} {value:g}, stored {wanted[what]:g}, ceiling {most:.4g}; if it is worth that: make regenerate"


if __name__ == "__main__":
    costs = {sort: cost(sort) for sort in SORTS}
    STORED.write_text(json.dumps({"python": VERSION, "costs": costs}, indent=1) + "\n")
