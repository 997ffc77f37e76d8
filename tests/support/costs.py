"""Count the cost of a chunk and of a request: function calls, writes, and the memory peak of a chunk.

    make costs        counts again, and stores the figures in costs.json

Counted are calls of Python and of C, made by the gateway's code and by the frameworks that serve it.  Calls of the
event loop and of the test are not counted.  In the pure core, each chunk is alone in its read.  At the edge, a chunk is
sent after the one before has arrived.  So no count depends on the machine.

The stored figures are ceilings: a figure may exceed its ceiling by 3 per cent of its calls, and by no write.  A change that moves them
writes them again at its end.
"""

import asyncio
import json
import sys
from functools import partial

from msgspec.structs import replace

from bench import request_sorts
from gateway.pipeline.pipeline import Pipeline
from gateway.request import Request
from gateway.warnings import Warnings
from support import upstream as scripted
from support.call_counts import Calls, held
from support.edge_costs import (
    CHAT,
    RESPONSES,
    TIMES,
    WARM,
    lone_chunk_cost,
    request_cost,
    request_writes,
    stored_request_cost,
    team_request_cost,
    websocket_cost,
)
from support.format_events import untraced
from support.messages import encoder_of
from support.paths import TESTS
from support.pipeline import call, chunk, parser_settings, upstream
from support.responses import new_encoder
from support.turns import make_turn
from support.upstream import DONE, END, HELLO, head

STORED = TESTS / "project" / "costs.json"
SHARES = {"calls": 0.03, "bytes": 0.1}  # allowed excess over the stored figure
OTHER_PYTHON = 0.04  # allowed difference between 3.11, 3.12 and 3.13
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
IMAGE, TEXTS = 1 << 18, 16  # bytes, and a number: smaller than in the bench, so that they arrive in few reads


# The pure core


def chat_turn(format):
    """Return a pipeline of a chat completion."""
    return make_turn(format=format)


def responses_turn(format):
    """Return a pipeline of a response."""
    request = Request(model="m", messages=(), stream=True)
    return Pipeline(request, lambda _: upstream(parser_settings(format, ledger=Warnings())), new_encoder())


def message_turn(format):
    """Return a pipeline of a message."""
    request = Request(model="m", messages=(), stream=True)
    return Pipeline(request, lambda _: upstream(parser_settings(format, ledger=Warnings())), encoder_of())


def chunk_cost(new, format, before, data):
    """Return the cost of one chunk like those before it."""
    turn = new(format)
    turn.start()
    turn.set_content_type("text/event-stream")
    for piece in (*before, *[data] * WARM):
        turn.feed(piece)
    with Calls() as calls:
        for _ in range(TIMES):
            turn.feed(data)
    return {"calls": calls.count / TIMES, "bytes": min(held(turn.feed, data) for _ in range(WARM))}


def text(content):
    """Return a chunk with this text."""
    return chunk(content=content)


def core(new, format, data, *before):
    """Return a function that measures a chunk in the pure core."""
    return partial(chunk_cost, new, format, before, data)


def edge(cost, *arguments):
    """Return a function that measures at the edge, on a loop of its own."""

    def run():
        with asyncio.Runner() as runner:
            return runner.run(cost(*arguments))

    return run


# The sorts


def answered(sort, **more):
    """Return path, body and script of a request of the bench.  more: members that differ."""
    known = replace(request_sorts.SORTS[sort], **more)
    data = known.response()
    type = "text/event-stream" if data.startswith(b"data: ") else "application/json"
    return known.path, known.body(), scripted.whole(data, type=type)


CHAT_BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
RESPONSE_BODY = {"model": "m", "input": "Hello", "store": False}
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
    "lone chunk: chat": edge(lone_chunk_cost, CHAT, CHAT_BODY | STREAMED),
    "lone chunk: responses": edge(lone_chunk_cost, RESPONSES, RESPONSE_BODY | STREAMED),
    "request: chat": edge(request_cost, CHAT, CHAT_BODY, scripted.whole(scripted.completion_body())),
    "request: chat, stored key and usage": edge(team_request_cost, CHAT, CHAT_BODY, scripted.whole(scripted.completion_body())),
    "request: chat, streamed": edge(request_cost, CHAT, CHAT_BODY | STREAMED, HELLO),
    "request: chat, a burst of 50": edge(request_cost, CHAT, CHAT_BODY | STREAMED, BURST),
    "request: responses": edge(request_cost, RESPONSES, RESPONSE_BODY, scripted.whole(scripted.completion_body())),
    "request: responses, streamed": edge(request_cost, RESPONSES, RESPONSE_BODY | STREAMED, HELLO),
    "request: responses, stored": edge(stored_request_cost, RESPONSE_BODY | {"store": True}),
    "request: image": edge(request_cost, *answered("an image of 5 MB", body=partial(request_sorts.image, IMAGE))),
    "request: Codex turn": edge(request_cost, *answered("a Codex turn, streamed")),
    "request: embeddings": edge(
        request_cost,
        *answered(
            "embeddings 2,048 × 1,536",
            body=request_sorts.texts_to_embed(TEXTS),
            response=partial(request_sorts.vectors, TEXTS),
        ),
    ),
    "writes: stream of one token": edge(request_writes, *answered("stream of one token")),
    "writes: WebSocket turn": edge(websocket_cost, *answered("a WebSocket turn of 50 deltas")[1:]),
}  # fmt: skip


@untraced
def cost(sort):
    """Return the figures of one sort, by unit."""
    return SORTS[sort]()


def stored():
    """Return the stored figures by sort."""
    return json.loads(STORED.read_text())["costs"]


def ceiling(what, wanted, python=VERSION):
    """Return the ceiling of a figure; all but writes differ a little between Python versions."""
    if what == "writes":
        return wanted
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
